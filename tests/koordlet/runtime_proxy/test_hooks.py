"""Hook servers behind the proxy: what they are asked, and what their answers and failures do to the call."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.settings import ProxySettings
from tests.fake_cri import FakeHookServer, FakeRuntime, Kubelet, ProxyThread, Register, kubelet_of
from tests.waiting import wait_for

META = {"name": "web", "uid": "u1", "namespace": "shop", "attempt": 2}
POD: dict[str, Any] = {
    "metadata": META,
    "labels": {"koordinator.sh/qosClass": "BE"},
    "annotations": {"note": "1"},
    "linux": {"cgroup_parent": "/kubepods/besteffort/podu1", "resources": {"cpu_shares": 2}},
}
CONTAINER: dict[str, Any] = {
    "metadata": {"name": "app", "attempt": 1},
    "annotations": {"hash": "x"},
    "envs": [{"key": "B", "value": b"\xff"}, {"key": "A", "value": b"1"}],
    "linux": {"resources": {"cpu_period": 100000, "cpu_shares": 2, "oom_score_adj": 1000, "cpuset_cpus": "0-3"}},
}
UNKNOWN = b"\xfa\xff\x01\x03new"
"""Field 4095 of a later version, with the text `new`."""


def asked_pod(hooks: FakeHookServer, name: str) -> pb.PodSandboxHookRequest:
    """Return the only request of a hook."""
    (request,) = hooks.requests(name)
    return pb.PodSandboxHookRequest.FromString(request)


def asked_container(hooks: FakeHookServer, name: str) -> pb.ContainerResourceHookRequest:
    """Return the only request of a hook."""
    (request,) = hooks.requests(name)
    return pb.ContainerResourceHookRequest.FromString(request)


def test_every_hook_of_a_life_is_called_in_its_place(
    kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer
) -> None:
    order: list[str] = []

    def record(server: FakeHookServer | FakeRuntime, name: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            order.append(name)
            return server.default(name, request, context)

        return answer

    calls = ("RunPodSandbox", "CreateContainer", "StartContainer", "UpdateContainerResources", "StopContainer")
    for name in (*calls, "StopPodSandbox"):
        runtime.answers[name] = record(runtime, name)
    for hook in ("PreRunPodSandbox", "PostStopPodSandbox", "PreCreateContainer", "PreStartContainer",
                 "PostStartContainer", "PostStopContainer", "PreUpdateContainerResources"):  # fmt: skip
        hooks.answers[f"{hook}Hook"] = record(hooks, f"{hook}Hook")
    pod = kubelet.run_pod(**POD)
    container = kubelet.create(pod, **CONTAINER)
    for name in calls[2:]:
        kubelet.on_container(name, container)
    kubelet.on_container("StopContainer", container)
    kubelet.on_pod("StopPodSandbox", pod)
    kubelet.on_pod("StopPodSandbox", pod)
    assert order == [
        "PreRunPodSandboxHook", "RunPodSandbox",
        "PreCreateContainerHook", "CreateContainer",
        "PreStartContainerHook", "StartContainer", "PostStartContainerHook",
        "PreUpdateContainerResourcesHook", "UpdateContainerResources",
        "StopContainer", "PostStopContainerHook", "StopContainer",
        "StopPodSandbox", "PostStopPodSandboxHook", "StopPodSandbox",
    ]  # fmt: skip


def test_a_hook_knows_pod_and_container(kubelet: Kubelet, hooks: FakeHookServer) -> None:
    pod = kubelet.run_pod(**POD)
    container = kubelet.create(pod, cri.PodSandboxConfig(**POD), **CONTAINER)
    kubelet.on_container("StartContainer", container)
    of_pod = asked_pod(hooks, "PreRunPodSandboxHook")
    assert (of_pod.pod_meta.name, of_pod.pod_meta.uid, of_pod.pod_meta.namespace) == ("web", "u1", "shop")
    assert of_pod.pod_meta.attempt == 2
    assert (of_pod.labels, of_pod.annotations) == (POD["labels"], POD["annotations"])
    assert (of_pod.cgroup_parent, of_pod.resources.cpu_shares) == ("/kubepods/besteffort/podu1", 2)
    for name, container_id in (("PreCreateContainerHook", ""), ("PostStartContainerHook", container)):
        asked = asked_container(hooks, name)
        assert asked.pod_meta == of_pod.pod_meta
        assert (asked.pod_labels, asked.pod_annotations) == (POD["labels"], POD["annotations"])
        assert asked.pod_cgroup_parent == "/kubepods/besteffort/podu1"
        assert asked.pod_resources.cpu_shares == 2
        assert (asked.container_meta.name, asked.container_meta.attempt) == ("app", 1)
        assert asked.container_meta.id == container_id
        assert asked.container_annotations == {"hash": "x"}
        assert (asked.container_resources.cpu_shares, asked.container_resources.oom_score_adj) == (2, 1000)
        assert asked.container_envs == {"A": "1", "B": "�"}


def test_answers_change_the_call(kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer) -> None:
    def pod_answer(answer: pb.PodSandboxHookResponse) -> None:
        answer.labels["added"] = "yes"
        answer.annotations["note"] = "2"
        answer.cgroup_parent = "/offline/podu1"
        answer.resources.cpu_shares = 4

    def container_answer(answer: pb.ContainerResourceHookResponse) -> None:
        answer.container_annotations["added"] = "yes"
        resources = answer.container_resources
        resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes = 512, -1, 1 << 30
        resources.cpuset_cpus = ""
        resources.unified["memory.high"] = "123"
        answer.container_envs["NVIDIA_VISIBLE_DEVICES"] = "0,1"

    hooks.change_pod("PreRunPodSandboxHook", pod_answer)
    hooks.change_container("PreCreateContainerHook", container_answer)
    pod = kubelet.run_pod(**POD)
    kubelet.create(pod, cri.PodSandboxConfig(**POD), **CONTAINER)
    config = runtime.pods[pod].config
    assert config.labels == {**POD["labels"], "added": "yes"}
    assert config.annotations == {"note": "2"}
    assert (config.linux.cgroup_parent, config.linux.resources.cpu_shares) == ("/offline/podu1", 4)
    created = runtime.containers["container0"]
    assert created.sandbox_config.linux.cgroup_parent == "/offline/podu1"
    assert created.config.annotations == {"hash": "x", "added": "yes"}
    resources = created.config.linux.resources
    assert (resources.cpu_shares, resources.cpu_quota, resources.cpu_period) == (512, -1, 100000)
    assert (resources.memory_limit_in_bytes, resources.oom_score_adj, resources.cpuset_cpus) == (1 << 30, 1000, "")
    assert resources.unified == {"memory.high": "123"}
    assert [(env.key, env.value) for env in created.config.envs] == [
        ("B", b"\xff"),
        ("A", b"1"),
        ("NVIDIA_VISIBLE_DEVICES", b"0,1"),
    ]


def test_an_answer_without_changes_leaves_the_bytes(
    kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer
) -> None:
    config = cri.PodSandboxConfig(**POD).SerializeToString() + UNKNOWN
    data = UNKNOWN + b"\x0a" + bytes((len(config),)) + config
    kubelet.call("RunPodSandbox", data)
    assert hooks.names() == ["PreRunPodSandboxHook"]
    assert runtime.requests("RunPodSandbox") == [data]


def test_unknown_fields_survive_a_change(kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer) -> None:
    hooks.change_pod("PreRunPodSandboxHook", lambda answer: answer.labels.update(added="yes"))
    linux = cri.LinuxPodSandboxConfig(cgroup_parent="/p").SerializeToString() + UNKNOWN
    config = b"\x42" + bytes((len(linux),)) + linux + UNKNOWN
    kubelet.call("RunPodSandbox", b"\x0a" + bytes((len(config),)) + config + UNKNOWN)
    (sent,) = runtime.requests("RunPodSandbox")
    assert sent.endswith(UNKNOWN)
    message = cri.RunPodSandboxRequest.FromString(sent)
    assert message.config.labels == {"added": "yes"}
    assert message.config.linux.SerializeToString() == linux
    assert sent.count(UNKNOWN) == 3


def test_an_update_writes_what_was_asked_and_what_the_hook_changes(
    kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer
) -> None:
    container = kubelet.create(kubelet.run_pod(**POD), **CONTAINER)
    hooks.change_container(
        "PreUpdateContainerResourcesHook", lambda answer: setattr(answer.container_resources, "cpu_quota", -1)
    )
    update = cri.UpdateContainerResourcesRequest(container_id=container, linux={"cpuset_cpus": "2"})
    kubelet.call("UpdateContainerResources", update.SerializeToString() + UNKNOWN)
    asked = asked_container(hooks, "PreUpdateContainerResourcesHook").container_resources
    assert (asked.cpuset_cpus, asked.cpu_shares, asked.oom_score_adj) == ("2", 2, 1000)  # the stored ones, updated
    (sent,) = runtime.requests("UpdateContainerResources")
    assert sent.endswith(UNKNOWN)
    linux = cri.UpdateContainerResourcesRequest.FromString(sent).linux
    assert linux == cri.LinuxContainerResources(cpuset_cpus="2", cpu_quota=-1)


def test_pods_with_the_skip_label_are_not_asked_about(kubelet: Kubelet, hooks: FakeHookServer) -> None:
    labels = {"runtimeproxy.koordinator.sh/skip-hookserver": "true"}
    pod = kubelet.run_pod(metadata=META, labels=labels)
    container = kubelet.create(pod, **CONTAINER)
    kubelet.on_container("StartContainer", container)
    kubelet.on_container("StopContainer", container)
    kubelet.on_pod("StopPodSandbox", pod)
    assert hooks.names() == []


def test_a_container_from_before_the_proxy(
    settings: ProxySettings, runtime: FakeRuntime, hooks: FakeHookServer
) -> None:
    with kubelet_of(Path(settings.backend)) as direct:
        container = direct.create(direct.run_pod(**POD), **CONTAINER)
    thread = ProxyThread(settings)
    thread.start()
    with kubelet_of(Path(settings.socket)) as kubelet:
        kubelet.on_container("StartContainer", container)
        with kubelet_of(Path(settings.backend)) as direct:
            late = direct.create(direct.run_pod(**{**POD, "metadata": {**META, "uid": "u2"}}), **CONTAINER)
        kubelet.on_container("StopContainer", late)
    asked = asked_container(hooks, "PreStartContainerHook")
    assert (asked.pod_meta.uid, asked.container_meta.name, asked.container_meta.id) == ("u1", "app", container)
    assert (asked.pod_labels, asked.pod_cgroup_parent) == (POD["labels"], "/kubepods/besteffort/podu1")
    assert asked.container_resources.cpu_shares == 2
    assert asked_container(hooks, "PostStopContainerHook").pod_meta.uid == "u2"
    thread.stop()


def test_removed_pods_are_forgotten(kubelet: Kubelet, proxy: ProxyThread, hooks: FakeHookServer) -> None:
    store = proxy.proxy.inventory.store
    pod = kubelet.run_pod(**POD)
    container, other = kubelet.create(pod, **CONTAINER), kubelet.create(pod, **CONTAINER)
    assert store.ids() == {pod, container, other}
    kubelet.on_container("RemoveContainer", other)
    assert store.ids() == {pod, container}
    kubelet.on_pod("RemovePodSandbox", pod)
    assert store.ids() == set()


def abort(_request: bytes, context: grpc.ServicerContext) -> bytes:
    return context.abort(grpc.StatusCode.PERMISSION_DENIED, "no such rule")


def malformed(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    return b"\xff\xff\xff"


def nonsense(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    return pb.PodSandboxHookResponse(cgroup_parent="/../..", labels={"added": "yes"}).SerializeToString()


def slow(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    time.sleep(3)
    return b""


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        pytest.param(abort, grpc.StatusCode.PERMISSION_DENIED, "no such rule", id="error"),
        pytest.param(malformed, grpc.StatusCode.INTERNAL, "no message of this hook", id="malformed"),
        pytest.param(nonsense, grpc.StatusCode.INTERNAL, "cgroup_parent", id="nonsense"),
        pytest.param(slow, grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", id="slow"),
        pytest.param(None, grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE", id="dead"),
    ],
)
@pytest.mark.parametrize("policy", ["Ignore", "", "Fail"])
def test_a_failed_hook(
    answer: Callable[[bytes, grpc.ServicerContext], bytes] | None,
    code: grpc.StatusCode,
    words: str,
    policy: str,
    kubelet: Kubelet,
    runtime: FakeRuntime,
    hooks: FakeHookServer,
    register: Register,
) -> None:
    register(hooks.socket, policy=policy)
    if answer is None:
        hooks.stop()
    else:
        hooks.answers["PreRunPodSandboxHook"] = answer
    if policy == "Fail":
        with pytest.raises(grpc.RpcError) as failure:
            kubelet.run_pod(**POD)
        error = failure.value
        assert isinstance(error, grpc.Call)
        assert error.code() is code
        assert words in (error.details() or "")
        assert "PreRunPodSandbox of hooks.json" in (error.details() or "")
        assert runtime.requests("RunPodSandbox") == []
    else:
        kubelet.run_pod(**POD)
        (sent,) = runtime.requests("RunPodSandbox")
        assert sent == cri.RunPodSandboxRequest(config=cri.PodSandboxConfig(**POD)).SerializeToString()


def test_failures_after_a_call_never_count(kubelet: Kubelet, hooks: FakeHookServer, register: Register) -> None:
    register(hooks.socket, policy="Fail")
    container = kubelet.create(kubelet.run_pod(**POD), **CONTAINER)
    hooks.answers["PostStartContainerHook"] = abort
    kubelet.on_container("StartContainer", container)
    hooks.stop()
    kubelet.on_container("StopContainer", container)


def test_a_stop_that_was_not_heard_of_is_told_again(kubelet: Kubelet, hooks: FakeHookServer) -> None:
    pod = kubelet.run_pod(**POD)
    hooks.answers["PostStopPodSandboxHook"] = abort
    kubelet.on_pod("StopPodSandbox", pod)
    del hooks.answers["PostStopPodSandboxHook"]
    kubelet.on_pod("StopPodSandbox", pod)
    kubelet.on_pod("StopPodSandbox", pod)
    assert len(hooks.requests("PostStopPodSandboxHook")) == 2


def test_a_malformed_request_and_strict_hooks(
    kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer, register: Register
) -> None:
    runtime.answers["RunPodSandbox"] = lambda _request, _context: b""
    kubelet.call("RunPodSandbox", b"\xff\xff")
    register(hooks.socket, policy="Fail")
    with pytest.raises(grpc.RpcError) as failure:
        kubelet.call("RunPodSandbox", b"\xff\xff")
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
    assert runtime.requests("RunPodSandbox") == [b"\xff\xff"]


def test_several_servers_are_asked_in_order_of_their_files(
    kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer, register: Register, tmp_path: Path
) -> None:
    with FakeHookServer(tmp_path / "second.sock") as second:
        register(second.socket, name="late.json", hooks=("PreRunPodSandbox",))
        hooks.change_pod("PreRunPodSandboxHook", lambda answer: answer.labels.update(first="1", who="first"))
        second.change_pod("PreRunPodSandboxHook", lambda answer: answer.labels.update(who="second"))
        pod = kubelet.run_pod(labels={"own": "0"})
        assert runtime.pods[pod].config.labels == {"own": "0", "first": "1", "who": "second"}
        assert asked_pod(second, "PreRunPodSandboxHook").labels == {"own": "0", "first": "1", "who": "first"}


def test_a_registration_holds_from_the_next_call_on(
    kubelet: Kubelet, settings: ProxySettings, hooks: FakeHookServer, register: Register
) -> None:
    kubelet.run_pod(**POD)
    (Path(settings.hook_directory) / "hooks.json").unlink()
    kubelet.run_pod(**POD)
    assert len(hooks.calls) == 1
    register(hooks.socket, hooks=("PreRunPodSandbox", "PreRemoveRunPodSandbox", "FromTheFuture"))
    kubelet.create(kubelet.run_pod(**POD), **CONTAINER)
    assert hooks.names() == ["PreRunPodSandboxHook"] * 2


def test_a_hook_server_that_starts_again(kubelet: Kubelet, hooks: FakeHookServer) -> None:
    kubelet.run_pod(**POD)
    hooks.stop()
    kubelet.run_pod(**POD)
    hooks.start()

    def is_asked() -> bool:
        kubelet.run_pod(**POD)
        return len(hooks.calls) > 1

    wait_for(is_asked, interval_seconds=0.1)


def test_calls_of_other_pods_do_not_wait_for_a_slow_hook(
    kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer
) -> None:
    entered, released = threading.Event(), threading.Event()

    def hold(request: bytes, context: grpc.ServicerContext) -> bytes:
        if pb.PodSandboxHookRequest.FromString(request).pod_meta.name == "slow":
            entered.set()
            assert released.wait(20)
        return b""

    hooks.answers["PreRunPodSandboxHook"] = hold
    thread = threading.Thread(target=lambda: kubelet.run_pod(metadata={"name": "slow"}))
    thread.start()
    assert entered.wait(5)
    kubelet.run_pod(**POD)
    assert [pod.config.metadata.name for pod in runtime.pods.values()] == ["web"]
    released.set()
    thread.join()
    assert {pod.config.metadata.name for pod in runtime.pods.values()} == {"web", "slow"}


def test_a_slow_hook_leaves_half_of_the_deadline(kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer) -> None:
    hooks.answers["PreRunPodSandboxHook"] = slow
    kubelet.call("RunPodSandbox", timeout=1.6)
    (call,) = [each for each in runtime.calls if each.name == "RunPodSandbox"]
    assert call.seconds_left is not None
    assert call.seconds_left < 1.0


def test_the_caller_leaves_while_a_hook_is_asked(kubelet: Kubelet, runtime: FakeRuntime, hooks: FakeHookServer) -> None:
    entered, left = threading.Event(), threading.Event()

    def hold(_request: bytes, context: grpc.ServicerContext) -> bytes:
        context.add_callback(left.set)
        entered.set()
        assert left.wait(20)
        return b""

    hooks.answers["PreRunPodSandboxHook"] = hold
    call = kubelet.channel.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox").future(b"", timeout=20)
    assert entered.wait(20)
    call.cancel()
    assert left.wait(20)
    kubelet.call("Version")
    assert runtime.requests("RunPodSandbox") == []
