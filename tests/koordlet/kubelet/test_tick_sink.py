"""The tick as a trigger: differences between tree and table; the source's figures in the frame."""

from types import SimpleNamespace
from typing import Any

import pytest

from api.frame import HOST
from api.metrics import METRICS
from koordlet.identity.pods import NO_PODS, PodTable
from koordlet.kubelet.assembly import Sources, assemble
from koordlet.kubelet.source import SourceStatus
from koordlet.kubelet.tick_sink import TreeChanges, differences, reading_of
from tests.frames import cgroup_info
from tests.koordlet.kubelet.recordings import config, places, pods, view

TABLE = PodTable(
    assemble(Sources(pods=pods(), view=view(), config=config(), places=places()), NO_PODS).pods, generation=1
)
RUNNING = {each.id: each.cgroup_path for pod in TABLE.pods for each in pod.containers if each.running}
CGROUPS = tuple(cgroup_info(number, path) for number, path in enumerate(RUNNING.values()))


class Source:
    """The part of the source that the sink uses."""

    def __init__(self) -> None:
        self.newest, self.pokes = TABLE, 0

    def table(self) -> PodTable:
        return self.newest

    def poke(self) -> None:
        self.pokes += 1


def tick(cgroups: tuple[Any, ...]) -> Any:
    return SimpleNamespace(window=SimpleNamespace(cgroups=cgroups))


def test_a_tree_as_the_table_says_has_no_differences() -> None:
    assert differences(CGROUPS, TABLE) == frozenset()


def test_containers_that_came_or_went_are_differences() -> None:
    new = cgroup_info(99, f"{CGROUPS[0].path.rpartition('/')[0]}/{'e' * 64}")
    assert differences((*CGROUPS, new), TABLE) == {"e" * 64}
    assert differences(CGROUPS[1:], TABLE) == {CGROUPS[0].container_id}
    assert differences((cgroup_info(1, "/"), *CGROUPS), TABLE) == frozenset()


def test_a_difference_pokes_once_and_again_when_there_is_another() -> None:
    source = Source()
    sink = TreeChanges(source)  # type: ignore[arg-type]
    sink(tick(CGROUPS))
    assert source.pokes == 0
    less = CGROUPS[1:]
    for _ in range(3):
        sink(tick(less))
    sink(tick(tuple(less)))
    assert source.pokes == 1
    sink(tick(CGROUPS[2:]))
    assert source.pokes == 2


def test_every_column_is_a_metric() -> None:
    status = SourceStatus("kubelet", 3.5, 1, 2, ("a",), {"kubelet": 7, "relists": 2})
    columns = reading_of(TABLE, status).tables[HOST].columns
    assert set(columns) <= {metric.column for metric in METRICS}
    figures = {name: float(column[0]) for name, column in columns.items()}
    assert figures["pods.count"] == 7
    assert figures["pods.kubelet_requests"] == 7
    assert figures["pods.relists"] == 2
    assert figures["pods.age_seconds"] == pytest.approx(3.5)


def test_no_answer_has_no_age() -> None:
    columns = reading_of(NO_PODS, SourceStatus()).tables[HOST].columns
    assert "pods.age_seconds" not in columns
