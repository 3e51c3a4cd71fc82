"""The loop against the twin: what changed is planned, written once, and only while it leads."""

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import pytest
from prometheus_client import generate_latest

from cluster import NODES, DeltaType, Document, Key, Resource, StoreDelta, merge_patch
from cluster.twin import Fault, FaultType, Twin
from controllers.kinds import NODE, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.loop import Loop
from controllers.runtime.view import ClusterCopy, View
from controllers.runtime.writes import Writes, delete, patch
from tests.managed import built, running
from tests.waiting import wait_for

LABEL = "example.com/size"


class Sizes(Controller[ControllerSettings]):
    """Labels each node with the number of its cpus."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE,)
    period_seconds: ClassVar[float] = 3600.0

    def plan(self, view: View, now: float) -> Writes:
        nodes = view.objects(NODE)
        return Writes(
            [
                patch(NODE, node, {"metadata": {"labels": {LABEL: str(node.status.capacity["cpu"])}}}, "its size")
                for key in view.due(NODE)
                if (node := nodes.get(key)) is not None
                and node.metadata.labels.get(LABEL) != str(node.status.capacity.get("cpu"))
            ]
        )


def a_node(name: str, cpus: int = 4, **labels: str) -> Document:
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {"cpu": str(cpus)}}}


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as served:
        yield served


def label(twin: Twin, name: str) -> str | None:
    text: str | None = twin.objects(NODES)[Key("", name)]["metadata"]["labels"].get(LABEL)
    return text


def metrics(loop: Loop) -> str:
    return generate_latest(loop.metrics.registry).decode()


def test_objects_that_are_there_and_those_that_come_are_written_once(twin: Twin) -> None:
    twin.load(NODES, [a_node("a"), a_node("b", 8)])
    with running(twin, {"sizes": built(Sizes)}):
        wait_for(lambda: label(twin, "a") == "4" and label(twin, "b") == "8")
        twin.load(NODES, [a_node("c", 2)])
        wait_for(lambda: label(twin, "c") == "2")
    written = [each.record.key.name for each in twin.history(NODES) if each.type == "MODIFIED"]
    assert sorted(written) == ["a", "b", "c"]


def test_a_manager_that_does_not_lead_writes_nothing_until_it_does(twin: Twin) -> None:
    leads = threading.Event()
    twin.load(NODES, [a_node("a")])
    with running(twin, {"sizes": built(Sizes)}, leading=leads.is_set):
        with pytest.raises(AssertionError):
            wait_for(lambda: label(twin, "a"), 0.3)
        leads.set()
        wait_for(lambda: label(twin, "a") == "4")


def test_a_write_on_a_stale_read_is_refused_by_its_version_and_planned_anew(twin: Twin) -> None:
    twin.load(NODES, [a_node("a")])
    controller, seen = built(Sizes), []
    grown = merge_patch({"status": {"capacity": {"cpu": "6"}}})

    def plan(given: View, now: float) -> Writes:
        writes = Sizes.plan(controller, given, now)
        if not seen:
            seen.append(now)
            # Another client writes between our read and our write.
            with twin.client() as other:
                other.patch(NODES, Key("", "a"), grown, subresource="status")
        return writes

    controller.plan = plan  # type: ignore[method-assign]
    with running(twin, {"sizes": controller}) as loop:
        wait_for(lambda: label(twin, "a") == "6")
        wait_for(lambda: 'result="conflict"' in metrics(loop))
    labels = [each.record.document["metadata"]["labels"].get(LABEL) for each in twin.history(NODES)]
    assert "4" not in labels


def test_a_server_that_refuses_is_asked_again_with_growing_delays(twin: Twin) -> None:
    twin.load(NODES, [a_node("a")])
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"patch"}), times=3))
    with running(twin, {"sizes": built(Sizes)}):
        wait_for(lambda: label(twin, "a") == "4")


def test_a_write_whose_answer_was_lost_is_not_made_twice(twin: Twin) -> None:
    twin.load(NODES, [a_node("a")])
    twin.faults.add(Fault(FaultType.DROP, frozenset({"patch"}), times=1, after=True))
    with running(twin, {"sizes": built(Sizes)}) as loop:
        wait_for(lambda: label(twin, "a") == "4")
        wait_for(lambda: 'result="failed"' in metrics(loop))
        twin.load(NODES, [a_node("b")])
        wait_for(lambda: label(twin, "b") == "4")
    assert [each.type for each in twin.history(NODES) if each.record.key.name == "a"] == ["ADDED", "MODIFIED"]


def test_a_plan_that_raises_neither_ends_the_loop_nor_stops_the_others(twin: Twin) -> None:
    broken = built(Sizes)
    calls = []

    def fails(given: View, now: float) -> Writes:
        calls.append(now)
        raise RuntimeError("a bug")

    broken.plan = fails  # type: ignore[method-assign]
    twin.load(NODES, [a_node("a")])
    with running(twin, {"broken": broken, "sizes": built(Sizes)}) as loop:
        wait_for(lambda: label(twin, "a") == "4")
    assert calls
    assert 'koord_manager_plan_failures_total{controller="broken"}' in metrics(loop)


def test_a_manager_that_does_not_lead_keeps_no_changes(twin: Twin) -> None:
    with running(twin, {"sizes": built(Sizes)}, leading=lambda: False) as loop:
        twin.load(NODES, [a_node("a")])
        wait_for(lambda: loop.look(5.0)["nodes"])  # type: ignore[index]
        wait_for(lambda: not any(loop._copy.changed["sizes"].values()))


def test_objects_that_were_deleted_are_not_remembered_as_written() -> None:
    """The answer to a deletion comes after the watch showed it."""
    copy, found = ClusterCopy([NODE], ()), msgspec.convert(a_node("a"), Node)
    copy.register("sizes")
    for number in range(100):
        key = Key("", f"n{number}")
        node = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, name=key.name))
        copy.apply(NODE, [StoreDelta(DeltaType.ADDED, key, None, node)])
        copy.wrote("sizes", patch(NODE, node, {}, "its size"), 1.0)
        assert copy.view("sizes", full=False).written_seconds(NODE, key) == 1.0
        copy.apply(NODE, [StoreDelta(DeltaType.DELETED, key, node, None)])
        copy.wrote("sizes", delete(NODE, node, "it is gone"), 2.0)
    assert copy.written == {"sizes": {}}
