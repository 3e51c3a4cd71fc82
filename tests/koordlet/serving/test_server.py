"""The socket with a real channel: streams, reflection, clients that leave or sleep, an agent that starts again."""

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from api.verdicts import VerdictState, from_json
from koordlet.commands.verdicts import verdicts as verdicts_command
from koordlet.serving.broadcast import StreamMessage, VerdictFilter
from koordlet.serving.client import AgentClient, AgentUnavailable
from koordlet.serving.server import AgentServer
from koordlet.serving.settings import ServingSettings
from koordlet.serving.socket_file import SocketUnusable
from koordlet.serving.status import AgentStatus, Capability
from tests.verdicts import make_verdict
from tests.waiting import wait_for

STATUS = AgentStatus("n1", "0.1", "6.18", 1.0, (Capability("cpu", available=True),))
EVERYTHING = VerdictFilter()


def settings(path: Path, **given: int) -> ServingSettings:
    return ServingSettings(enabled=True, socket=str(path), **given)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "koordlet.sock"


@pytest.fixture
def server(path: Path) -> Iterator[AgentServer]:
    running = AgentServer(settings(path, max_streams=2, queue_size=50), STATUS)
    running.start()
    yield running
    running.close()


def test_only_the_owner_may_connect(server: AgentServer, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_stands_then_what_changes(server: AgentServer, path: Path) -> None:
    one, other = make_verdict("/a"), make_verdict("/b")
    server.update(STATUS, [one], (one,))
    with AgentClient(path) as client:
        assert client.open_verdicts(EVERYTHING) == [one]
        stream = client.follow(EVERYTHING)
        assert [next(stream), next(stream)] == [StreamMessage(one, 0), StreamMessage(None, 0)]
        closed = make_verdict("/a", state=VerdictState.CLOSE)
        server.update(STATUS, [closed, other], (other,))
        assert [next(stream), next(stream)] == [StreamMessage(closed, 0), StreamMessage(other, 0)]
        assert client.open_verdicts(VerdictFilter("/b")) == [other]
        assert client.open_verdicts(VerdictFilter(resource="memory")) == []


def test_the_node_says_what_it_can(server: AgentServer, path: Path) -> None:
    with AgentClient(path) as client:
        node = client.node()
    assert (node.hostname, [(each.name, each.available) for each in node.capabilities]) == ("n1", [("cpu", True)])


def test_reflection_tells_the_service(server: AgentServer, path: Path) -> None:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "koord.v1.Koordlet" in database.get_services()
        service = DescriptorPool(database).FindServiceByName("koord.v1.Koordlet")
        assert {method.name for method in service.methods} == {"Verdicts", "ListVerdicts", "Frames", "Node"}


def test_reflection_of_what_is_no_message_is_the_clients_fault(server: AgentServer, path: Path) -> None:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter([b"\xff\xff"]), timeout=20))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "ServerReflectionRequest" in caught.value.details()


def test_a_client_that_leaves_frees_its_place(server: AgentServer, path: Path) -> None:
    for _ in range(5):
        with AgentClient(path) as client:
            stream = client.follow(EVERYTHING)
            next(stream)
            assert server.broadcast.clients == 1
        wait_for(lambda: server.broadcast.clients == 0)


def test_one_follower_too_many_is_refused_and_told_why(server: AgentServer, path: Path) -> None:
    with AgentClient(path) as first, AgentClient(path) as second, AgentClient(path) as third:
        streams = [first.follow(EVERYTHING), second.follow(EVERYTHING)]
        for stream in streams:
            next(stream)
        with pytest.raises(AgentUnavailable, match="2 clients follow already"):
            next(third.follow(EVERYTHING))
        assert third.open_verdicts(EVERYTHING) == []


def test_a_client_that_sleeps_neither_slows_the_tick_nor_misses_the_end(server: AgentServer, path: Path) -> None:
    with AgentClient(path) as client:
        stream = client.follow(EVERYTHING)
        next(stream)
        longest = 0.0
        number = 0
        while not server.broadcast.dropped:  # the transport takes some before the queue fills
            batch = [make_verdict(f"/{number}/{'x' * 2000}/{each}") for each in range(20)]
            started = time.monotonic()
            server.update(STATUS, batch, (batch[-1],))
            longest = max(longest, time.monotonic() - started)
            number += 1
            assert number < 20_000
        last = make_verdict("/last")
        server.update(STATUS, [last], (last,))
        message = next(each for each in stream if each.verdict == last)
        assert message.dropped > 0
    assert longest < 5.0, "the tick waited for a client"


def test_a_stale_socket_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    running = AgentServer(settings(path), STATUS)
    running.start()
    try:
        with AgentClient(path) as client:
            assert client.node().hostname == "n1"
    finally:
        running.close()
    assert not path.exists()


def test_a_served_socket_is_not_taken(server: AgentServer, path: Path) -> None:
    second = AgentServer(settings(path), STATUS)
    with pytest.raises(SocketUnusable, match="another process serves"):
        second.start()
    with AgentClient(path) as client:
        assert client.node().hostname == "n1"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda path: path.write_text("x"), "no socket", id="a file"),
        pytest.param(lambda path: path.mkdir(), "no socket", id="a directory"),
        pytest.param(lambda path: os.mkfifo(path), "no socket", id="a pipe"),
    ],
)
def test_what_is_no_socket_is_left_alone(path: Path, make: Callable[[Path], object], message: str) -> None:
    path.parent.mkdir()
    make(path)
    with pytest.raises(SocketUnusable, match=message):
        AgentServer(settings(path), STATUS).start()
    assert path.exists()


def test_a_path_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(SocketUnusable, match="107 bytes"):
        AgentServer(settings(tmp_path / ("x" * 120)), STATUS).start()


def test_clients_hear_that_the_agent_ends_and_find_the_next_one(path: Path) -> None:
    for hostname in ("first", "second"):
        running = AgentServer(settings(path), AgentStatus(hostname, "0.1", "6.18", 1.0, ()))
        running.start()
        with AgentClient(path) as client:
            assert client.node().hostname == hostname
            stream = client.follow(EVERYTHING)
            next(stream)
            ended: list[AgentUnavailable] = []

            def wait(stream: Iterator[StreamMessage] = stream, ended: list[AgentUnavailable] = ended) -> None:
                try:
                    next(stream)
                except AgentUnavailable as error:
                    ended.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            running.close()
            thread.join(10.0)
            assert ended


def test_the_command_tells_what_stands(server: AgentServer, path: Path) -> None:
    verdict = make_verdict()
    server.update(STATUS, [verdict], (verdict,))
    ran = CliRunner().invoke(verdicts_command, ["--socket", str(path), "--json"])
    assert ran.exit_code == 0, ran.output
    assert from_json(ran.stdout.encode()) == verdict
    words = CliRunner().invoke(verdicts_command, ["--socket", str(path)])
    assert "/web lost 0.40 s/s waiting for CPU: 0.30 to /batch" in words.stdout
    none = CliRunner().invoke(verdicts_command, ["--socket", str(path), "--resource", "memory"])
    assert (none.exit_code, none.stdout) == (0, "")


def test_the_command_follows_until_the_agent_ends(path: Path) -> None:
    running = AgentServer(settings(path), STATUS)
    running.start()
    first, second = make_verdict("/a"), make_verdict("/b", state=VerdictState.CLOSE)
    running.update(STATUS, [first], (first,))

    def go_on() -> None:
        wait_for(lambda: running.broadcast.clients == 1)
        running.update(STATUS, [second], (first,))
        running.close()

    thread = threading.Thread(target=go_on)
    thread.start()
    ran = CliRunner().invoke(verdicts_command, ["--socket", str(path), "--json", "--follow"])
    thread.join()
    assert ran.exit_code == 1
    assert "hint:" in ran.stderr
    assert from_json(ran.stdout.splitlines()[0].encode()).victim == "/a"


def test_the_command_says_what_to_do_where_nobody_serves(path: Path) -> None:
    ran = CliRunner().invoke(verdicts_command, ["--socket", str(path)])
    assert ran.exit_code == 1
    assert str(path) in ran.stderr
    assert "[serving] enabled" in ran.stderr
