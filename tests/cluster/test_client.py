"""Requests that the client repeats, and those that it refuses."""

import socket
from dataclasses import replace

import pytest

from api.kube.objects import Node
from cluster import (
    CONFIG_MAPS,
    NODES,
    Backoff,
    Client,
    ClientSettings,
    Forbidden,
    Informer,
    Key,
    Patch,
    PatchType,
    TooManyRequests,
    Unavailable,
    Undecodable,
    Withheld,
    merge_patch,
)
from cluster.client import contains
from cluster.transport import Request, Transport
from cluster.twin import Fault, FaultType, Twin
from tests.waiting import wait_for

FEW = ClientSettings(requests_per_second=1e6, burst=1000, attempts=3, backoff=Backoff(0.001, 0.01))
NODE = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}


def refusing(twin: Twin, status: int, *verbs: str, times: int | None = None) -> None:
    twin.faults.add(Fault(FaultType.ERROR, frozenset(verbs), status=status, times=times))


def calls(twin: Twin, verb: str) -> int:
    return sum(count for (name, _), count in twin.requests.items() if name == verb)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_reads_are_repeated_until_patience_ends(twin: Twin, status: int) -> None:
    twin.load(NODES, [NODE])
    refusing(twin, status, "get", times=2)
    with twin.client(FEW) as client:
        assert client.get(NODES, Key("", "n"))["metadata"]["name"] == "n"
        assert calls(twin, "get") == 3
        refusing(twin, status, "get")
        with pytest.raises((TooManyRequests, Unavailable)):
            client.get(NODES, Key("", "n"))
        assert calls(twin, "get") == 6


def test_every_attempt_is_observed(twin: Twin) -> None:
    heard: list[tuple[str, int]] = []
    refusing(twin, 503, "list", times=1)
    twin.faults.add(Fault(FaultType.DROP, frozenset({"list"}), times=1))
    with Client(twin.endpoint(), FEW, observe=lambda method, status, _: heard.append((method, status))) as client:
        client.list(NODES)
    assert heard == [("GET", 503), ("GET", 0), ("GET", 200)]


def test_what_needs_a_human_is_not_repeated(twin: Twin) -> None:
    refusing(twin, 403, "list")
    with twin.client(FEW) as client, pytest.raises(Forbidden):
        client.list(NODES)
    assert calls(twin, "list") == 1


def test_a_json_patch_is_not_sent_twice_in_doubt(twin: Twin) -> None:
    twin.load(CONFIG_MAPS, [{"metadata": {"name": "a", "namespace": "d"}, "data": {"list": ""}}])
    twin.faults.add(Fault(FaultType.DROP, frozenset({"patch"}), after=True, times=1))
    patch = Patch(PatchType.JSON, [{"op": "add", "path": "/data/x", "value": "1"}])
    with twin.client(FEW) as client:
        with pytest.raises(Unavailable) as lost:
            client.patch(CONFIG_MAPS, Key("d", "a"), patch)
        assert lost.value.ambiguous
        assert calls(twin, "patch") == 1
        # Shed load certainly did nothing, so that is repeated.
        refusing(twin, 429, "patch", times=1)
        client.patch(CONFIG_MAPS, Key("d", "a"), patch)


def test_a_partial_struct_is_not_written_back(twin: Twin) -> None:
    twin.load(NODES, [NODE])
    with twin.client(FEW) as client:
        node = client.get(NODES.of(Node), Key("", "n"))
        assert node.status.allocatable == {"cpu": "4"}
        with pytest.raises(TypeError, match="patch it instead"):
            client.update(NODES.of(Node), node)


def test_one_unreadable_object_hides_no_other(twin: Twin) -> None:
    twin.load(NODES, [NODE, {"metadata": {"name": "odd"}, "spec": {"unschedulable": "perhaps"}}])
    with twin.client(FEW) as client:
        listing = client.list(NODES.of(Node))
        assert [node.metadata.name for node in listing.values] == ["n"]
        (problem,) = [item.problem for item in listing.items if item.value is None]
        assert "unschedulable" in problem
        with pytest.raises(Undecodable):
            client.get(NODES.of(Node), Key("", "odd"))
        with Informer(client, NODES.of(Node)) as informer:
            assert informer.wait_synced(5)
            assert list(informer.snapshot()) == [Key("", "n")]
            assert informer.undecodable == 1
            client.patch(NODES, Key("", "odd"), merge_patch({"spec": {"unschedulable": True}}))
            wait_for(lambda: Key("", "odd") in informer.snapshot())


def test_a_namespace_is_needed_where_the_kind_has_one(twin: Twin) -> None:
    with twin.client(FEW) as client:
        with pytest.raises(ValueError, match="namespace"):
            client.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
        assert client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="d")["metadata"]["namespace"] == "d"


def test_no_attempts_are_a_mistake(twin: Twin) -> None:
    with Client(twin.endpoint(), ClientSettings(attempts=0)) as client, pytest.raises(ValueError, match="attempt"):
        client.list(NODES)


@pytest.mark.parametrize(
    ("existing", "wanted", "expected"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 1}, True, id="subset"),
        pytest.param({"a": 1}, {"a": 2}, False, id="other-value"),
        pytest.param({"a": 1}, {"b": 1}, False, id="other-key"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True, id="nested-subset"),
        pytest.param({"a": [{"n": 1, "default": 2}]}, {"a": [{"n": 1}]}, True, id="list-of-subsets"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, False, id="shorter-list"),
        pytest.param({"a": None}, {"a": {}}, False, id="none-for-object"),
        pytest.param(1, 1.0, True, id="int-for-float"),
    ],
)
def test_containment(existing: object, wanted: object, expected: bool) -> None:
    assert contains(existing, wanted) is expected


def test_a_write_is_not_repeated_once_another_may_write(twin: Twin) -> None:
    twin.load(NODES, [NODE])
    # Each try is asked for twice: before it, and where its bytes go out.
    allowed = [True, True, False]
    refusing(twin, 503, "patch", times=1)
    with Client(twin.endpoint(), FEW, may_write=lambda: allowed.pop(0)) as client:
        with pytest.raises(Withheld):
            client.patch(NODES, Key("", "n"), merge_patch({"metadata": {"labels": {"a": "b"}}}))
        assert (calls(twin, "patch"), allowed) == (1, [])
        # Reads go on without the lead.
        assert "labels" not in client.get(NODES, Key("", "n"))["metadata"]


def test_a_write_does_not_go_out_where_the_lead_ends_while_it_is_made_ready(twin: Twin) -> None:
    twin.load(NODES, [NODE])
    leads = [True]

    def credentials() -> str:
        leads.clear()
        return ""

    slow = replace(twin.endpoint(), authorization=credentials)
    with Client(slow, FEW, may_write=lambda: bool(leads)) as client:
        with pytest.raises(Withheld):
            client.delete(NODES, Key("", "n"))
        leads.append(True)
        writes = client.quick_writes(1)
        wait_for(writes.has_room)
        assert not writes.send("n", Request("DELETE", NODES.object_path(Key("", "n"))))
        writes.close()
    assert calls(twin, "delete") == 0


def test_the_kernel_gives_up_what_was_not_acknowledged_in_time(twin: Twin) -> None:
    with Transport(twin.endpoint(), ClientSettings(timeout_seconds=3.5)).open_socket() as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 3500
