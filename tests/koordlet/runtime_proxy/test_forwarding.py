"""What passes through the proxy is what was sent: messages, metadata, deadlines, cancellation, status."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import msgspec
import pytest

from koordlet.runtime_proxy.settings import ProxySettings
from tests.fake_cri import EXEC_OUTPUT, UNHEARD_OF, FakeRuntime, Kubelet, ProxyThread, kubelet_of, text_field
from tests.waiting import wait_for

EVENTS = "/runtime.v1.RuntimeService/GetContainerEvents"
URL = text_field(1, b"http://127.0.0.1:1/stream/token")


def test_a_pods_life(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    pod = kubelet.run_pod(metadata={"name": "web", "uid": "u1", "namespace": "shop"})
    container = kubelet.create(pod, metadata={"name": "app"})
    kubelet.on_container("StartContainer", container)
    assert kubelet.call("ExecSync", text_field(1, container.encode())) == EXEC_OUTPUT
    for name in ("Exec", "Attach", "PortForward"):
        assert kubelet.call(name, text_field(1, container.encode())) == URL
    kubelet.on_container("ReopenContainerLog", container)
    kubelet.on_container("UpdateContainerResources", container)
    kubelet.on_container("StopContainer", container)
    kubelet.on_container("RemoveContainer", container)
    kubelet.on_pod("StopPodSandbox", pod)
    kubelet.on_pod("RemovePodSandbox", pod)
    own = {"ListPodSandbox", "ListContainers"}  # the proxy's own, at its start
    assert [name for name in runtime.names() if name not in own] == [
        "RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync", "Exec", "Attach", "PortForward",
        "ReopenContainerLog", "UpdateContainerResources", "StopContainer", "RemoveContainer", "StopPodSandbox",
        "RemovePodSandbox",
    ]  # fmt: skip
    assert not runtime.pods
    assert not runtime.containers


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("/runtime.v1.ImageService/ImageStatus", id="image-service"),
        pytest.param("/runtime.v1.RuntimeService/FromTheFuture", id="unknown-method"),
        pytest.param("/runtime.v2.RuntimeService/Version", id="unknown-service"),
        pytest.param("/runtime.v1.RuntimeService/StartContainer", id="hooked-malformed-request"),
    ],
)
def test_bytes_pass_as_they_are(method: str, kubelet: Kubelet, runtime: FakeRuntime) -> None:
    name = method.rpartition("/")[2]
    runtime.answers[name] = lambda request, _context: request[::-1]
    data = bytes(range(256))
    assert kubelet.call(method, data) == data[::-1]
    assert runtime.requests(name) == [data]


@pytest.mark.parametrize("name", ["Status", "FromTheFuture", "RunPodSandbox"])
def test_status_details_and_metadata_come_back(name: str, kubelet: Kubelet, runtime: FakeRuntime) -> None:
    long_reason = 'failed to create shim: "' + "é" * 20_000

    def refuse(_request: bytes, context: grpc.ServicerContext) -> bytes:
        context.send_initial_metadata((("first", "1"),))
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x05\x00"), ("last", "2")))
        return context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, long_reason)

    runtime.answers[name] = refuse
    with pytest.raises(grpc.RpcError) as failure:
        kubelet.call(name)
    error = failure.value
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == long_reason
    assert {each.key: each.value for each in error.trailing_metadata()} == {
        "grpc-status-details-bin": b"\x08\x05\x00",
        "last": "2",
    }


def test_a_method_that_the_runtime_lacks_is_unimplemented(kubelet: Kubelet) -> None:
    # The kubelet falls back on older methods where newer ones are unimplemented, and nowhere else.
    method = f"/runtime.v1.RuntimeService/{UNHEARD_OF}"
    for _ in range(20):
        for call in (
            kubelet.channel.unary_stream(method)(b"x"),
            kubelet.channel.stream_stream(method)(iter([b"x"])),
        ):
            with pytest.raises(grpc.RpcError) as failure:
                next(call)
            assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


def test_a_conversation(kubelet: Kubelet) -> None:
    questions: queue.Queue[bytes | None] = queue.Queue()
    answers = kubelet.channel.stream_stream("/runtime.v1.RuntimeService/Echo")(iter(questions.get, None))
    for number in range(5):
        questions.put(b"question%d" % number)
        assert next(answers) == b"question%d" % number
        time.sleep(0.06 * (number < 2))  # both sides of the time in which a second message is waited for
    questions.put(None)
    assert list(answers) == []
    assert kubelet.channel.stream_stream("/runtime.v1.RuntimeService/Echo")(iter(())).code() is grpc.StatusCode.OK


@pytest.mark.parametrize("name", ["Status", "FromTheFuture", "RunPodSandbox"])
def test_metadata_and_deadline_reach_the_runtime(name: str, kubelet: Kubelet, runtime: FakeRuntime) -> None:
    def answer(_request: bytes, context: grpc.ServicerContext) -> bytes:
        context.send_initial_metadata((("first", "1"),))
        context.set_trailing_metadata((("last-bin", b"\x00\xff"),))
        return b""

    runtime.answers[name] = answer
    call = kubelet.channel.unary_unary(f"/runtime.v1.RuntimeService/{name}")
    sent = (("traceparent", "00-1-2-01"), ("baggage-bin", b"\x00\x01"))
    _, done = call.with_call(b"", timeout=33.0, metadata=sent)
    (received,) = [each for each in runtime.calls if each.name == name]
    assert dict(sent).items() <= received.metadata.items()
    assert received.seconds_left is not None
    assert 20 < received.seconds_left < 34  # the wire carries whole units
    assert ("first", "1") in [(each.key, each.value) for each in done.initial_metadata()]
    assert ("last-bin", b"\x00\xff") in [(each.key, each.value) for each in done.trailing_metadata()]


def test_calls_without_deadline_have_none(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    kubelet.channel.unary_unary("/runtime.v1.RuntimeService/Version")(b"")
    (received,) = [each for each in runtime.calls if each.name == "Version"]
    assert received.seconds_left is None or received.seconds_left > 1e6


def test_messages_up_to_the_kubelets_limit(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    runtime.answers["ListImages"] = lambda request, _context: bytes(len(request))
    just = bytes((16 << 20) - 5)
    assert kubelet.call("/runtime.v1.ImageService/ListImages", just) == just
    runtime.answers["ListImages"] = lambda _request, _context: bytes((16 << 20) + 1)
    with pytest.raises(grpc.RpcError) as failure:
        kubelet.call("/runtime.v1.ImageService/ListImages")
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["ExecSync", "FromTheFuture"])
def test_a_cancelled_call_is_cancelled_at_the_runtime(name: str, kubelet: Kubelet, runtime: FakeRuntime) -> None:
    entered, ended = threading.Event(), threading.Event()

    def wait(_request: bytes, context: grpc.ServicerContext) -> bytes:
        context.add_callback(ended.set)
        entered.set()
        assert ended.wait(20)
        return b""

    runtime.answers[name] = wait
    call = kubelet.channel.unary_unary(f"/runtime.v1.RuntimeService/{name}").future(b"")
    assert entered.wait(10)
    assert not ended.is_set()
    call.cancel()
    assert ended.wait(10)


def test_a_deadline_ends_the_call_at_the_runtime(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    ended = threading.Event()

    def wait(_request: bytes, context: grpc.ServicerContext) -> bytes:
        context.add_callback(ended.set)
        assert ended.wait(20)
        return b""

    runtime.answers["ExecSync"] = wait
    with pytest.raises(grpc.RpcError) as failure:
        kubelet.call("ExecSync", timeout=0.3)
    assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
    assert ended.wait(10)


def test_events_come_one_by_one(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    events = kubelet.channel.unary_stream(EVENTS)(b"")
    for number in range(20):
        runtime.events.put(b"event%d" % number)
        assert next(events) == b"event%d" % number
    runtime.events.put(None)
    assert list(events) == []
    assert events.code() is grpc.StatusCode.OK


def test_a_cancelled_stream_is_cancelled_at_the_runtime(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    events = kubelet.channel.unary_stream(EVENTS)(b"")
    runtime.events.put(b"first")
    assert next(events) == b"first"
    assert not runtime.cancelled.is_set()
    events.cancel()
    assert runtime.cancelled.wait(10)


def test_a_reader_that_waits_holds_the_runtime_back(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    flood = kubelet.channel.unary_stream("/runtime.v1.RuntimeService/Flood")(b"")
    next(flood)
    wait_for(lambda: runtime.sent >= 2)
    before = -1
    while before != runtime.sent:  # until the runtime no longer proceeds
        before = runtime.sent
        threading.Event().wait(0.3)
    assert runtime.sent < 200  # of 1000 messages of 1 MiB
    flood.cancel()
    assert runtime.cancelled.wait(10)


def test_many_long_calls_do_not_hold_up_short_ones(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    streams = [kubelet.channel.unary_stream(EVENTS)(b"") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(kubelet.call, "Version") for _ in range(200)]
        assert all(each.result() for each in done)
    for stream in streams:
        stream.cancel()


def test_without_a_runtime_calls_fail_at_once_and_recover(settings: ProxySettings) -> None:
    thread = ProxyThread(settings)
    thread.start()
    with kubelet_of(Path(settings.socket)) as kubelet:
        for name in ("Version", "FromTheFuture", "RunPodSandbox"):
            with pytest.raises(grpc.RpcError) as failure:
                kubelet.call(name)
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        for _ in range(2):  # the runtime starts, and starts again
            with FakeRuntime(Path(settings.backend)):
                wait_for(lambda: answers(kubelet))
            wait_for(lambda: not answers(kubelet))
    thread.stop()


def answers(kubelet: Kubelet) -> bool:
    """Return whether a call succeeds."""
    try:
        return bool(kubelet.call("Version"))
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        return False


def test_a_runtime_that_ends_in_mid_call(kubelet: Kubelet, runtime: FakeRuntime) -> None:
    entered = threading.Event()

    def wait(_request: bytes, context: grpc.ServicerContext) -> bytes:
        entered.set()
        threading.Event().wait(5)
        return b""

    runtime.answers["PullImage"] = wait
    call = kubelet.channel.unary_unary("/runtime.v1.ImageService/PullImage").future(b"", timeout=30)
    assert entered.wait(10)
    runtime.stop()
    assert call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def test_images_from_another_socket(settings: ProxySettings, runtime: FakeRuntime, tmp_path: Path) -> None:
    with FakeRuntime(tmp_path / "images.sock") as images:
        thread = ProxyThread(msgspec.structs.replace(settings, image_backend=str(images.socket)))
        thread.start()
        images.answers["ListImages"] = lambda _request, _context: b"images"
        with kubelet_of(Path(settings.socket)) as kubelet:
            assert kubelet.call("/runtime.v1.ImageService/ListImages") == b"images"
            assert kubelet.call("Version")
        thread.stop()
        assert "Version" not in images.names()
