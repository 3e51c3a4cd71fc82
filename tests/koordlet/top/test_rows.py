"""Rows of the live view from made frames: rates, causes that sum, culprits in order, honest gaps."""

from dataclasses import replace

import numpy as np
import pytest

from api.frame import KERNEL_ID, OTHER_ID, CgroupInfo, Frame, Table
from api.histogram import SLOTS
from api.window import Window
from koordlet.agent.frame_store import thin
from koordlet.top.rows import GONE, Order, TopRow, facts, latencies, ordered, rows
from tests.frames import make_frame

PATHS = {1: "/victim", 2: "/hog", 3: "/quiet"}


def _window(
    last: dict[str, list[int]], *, seconds: float = 2.0, blame: dict[tuple[int, int], int] | None = None
) -> Window:
    zeros = {name: [0] * len(PATHS) for name in last}
    empty = dict.fromkeys(blame, 0) if blame else {}
    return Window(
        [make_frame(10.0, PATHS, zeros, blame=empty), make_frame(10.0 + seconds, PATHS, last, blame=blame or {})]
    )


def _by_name(window: Window) -> dict[str, TopRow]:
    return {row.info.name: row for row in rows(window)}


def test_rates_are_seconds_per_second_and_causes_sum_to_the_loss() -> None:
    found = _by_name(
        _window(
            {
                "cpu.wait_neighbour_ns": [1_000_000_000, 0, 0],
                "cpu.wait_self_ns": [500_000_000, 0, 0],
                "memory.stall_global_ns": [100_000_000, 0, 0],
                "cpu.oncpu_ns": [200_000_000, 2_000_000_000, 0],
            }
        )
    )
    assert found["victim"].causes == {"cpu:neighbour": 0.5, "cpu:self": 0.25, "memory:global": 0.05}
    assert found["victim"].lost == pytest.approx(sum(found["victim"].causes.values()))
    assert found["victim"].by_others == pytest.approx(0.55)
    assert found["hog"].oncpu == 1.0
    assert found["hog"].causes == {}
    assert [name for name, row in found.items() if row.is_quiet] == ["quiet"]


def test_rates_are_of_the_newest_seconds_only() -> None:
    grown = [0, 100, 100, 100, 100, 100, 100]
    frames = [
        make_frame(float(second), PATHS, {"cpu.wait_neighbour_ns": [total * 10**9, 0, 0]})
        for second, total in enumerate(grown)
    ]
    assert _by_name(Window(frames))["victim"].lost == 0.0


def test_on_cpu_falls_back_to_the_controllers_count() -> None:
    assert _by_name(_window({"cpustat.usage_ns": [0, 1_000_000_000, 0]}))["hog"].oncpu == 0.5


def test_nothing_measured_is_a_row_without_loss() -> None:
    assert [row.lost for row in rows(_window({}))] == [0.0, 0.0, 0.0]


def test_sharescome_biggest_first_with_names() -> None:
    blame = {(1, 2): 600, (1, KERNEL_ID): 800, (1, OTHER_ID): 100, (1, 99): 700, (2, 1): 5}
    found = _by_name(_window({"cpu.wait_neighbour_ns": [10**9, 0, 0]}, blame={k: v * 10**6 for k, v in blame.items()}))
    assert [(culprit.name, culprit.lost) for culprit in found["victim"].culprits] == [
        ("[kernel]", 0.4),
        (GONE, 0.35),
        ("hog", 0.3),
    ]
    assert [culprit.name for culprit in found["hog"].culprits] == ["victim"]


def test_sharesof_all_resources_are_ranked_together_and_oneself_is_none() -> None:
    window = _window({"cpu.wait_neighbour_ns": [1, 0, 0]}, blame={(1, 2): 10**9})
    keys = {"cgroup": np.array([1, 1], dtype=np.uint64), "culprit": np.array([3, 1], dtype=np.uint64)}
    frames = [
        replace(
            frame,
            tables={
                **frame.tables,
                "memory.blame": Table(keys, {"memory.blame_ns": np.array([ns, ns], dtype=np.uint64)}),
                "smt.blame": Table(keys, {"smt.blame_ns": np.array([ns * 9, 0], dtype=np.uint64)}),
            },
        )
        for frame, ns in zip(window.frames, (0, 2 * 10**9), strict=True)
    ]
    victim = _by_name(Window(frames))["victim"]
    assert [(culprit.resource, culprit.name, culprit.lost) for culprit in victim.culprits] == [
        ("memory", "quiet", 1.0),
        ("cpu", "hog", 0.5),
    ]


def test_a_thinned_frame_does_not_turn_totals_into_growth() -> None:
    window = _window({"cpu.wait_neighbour_ns": [1, 0, 0]}, blame={(1, 2): 10**12})
    assert _by_name(Window([thin(window.frames[0]), window.last]))["victim"].culprits == ()


def _with_hist(frame: Frame, count: int) -> Frame:
    slots = np.zeros((len(PATHS), SLOTS), dtype=np.uint64)
    slots[0, 3] = count
    dense = Table(frame.cgroup.keys, {**frame.cgroup.columns, "cpu.wait_hist": slots})
    return replace(frame, tables={**frame.tables, "cgroup": dense})


def test_latencies_are_of_the_window_and_only_where_counted() -> None:
    window = _window({"cpu.oncpu_ns": [1, 1, 1]})
    grown = Window([_with_hist(window.frames[0], 5), _with_hist(window.last, 15)])
    (wait,) = latencies(grown, 1)
    assert wait.name == "run-queue wait"
    assert 4096e-9 <= wait.p50 <= wait.p99 <= 8192e-9
    assert latencies(grown, 2) == []
    assert latencies(grown, 77) == []
    assert latencies(Window([thin(grown.frames[0]), grown.last]), 1) == []


def test_facts_are_what_is_measured_and_a_number() -> None:
    window = _window(
        {
            "pmu.cycles": [3000, 1, 0],
            "pmu.instructions": [2000, 0, 0],
            "turnaround.requests": [20, 0, 0],
            "cpu.smt_foreign_ns": [10**9, 0, 0],
            "memstat.usage_bytes": [4096, 1, 1],
            "resctrl.mbm_total_bytes": [float("nan"), 100, 0],  # type: ignore[list-item]
        }
    )
    assert facts(window, 1) == {
        "cycles_per_instruction": 1.5,
        "requests_per_second": 10.0,
        "smt_foreign": 0.5,
        "memory_usage_bytes": 4096.0,
    }
    assert facts(window, 2)["memory_bytes_per_second"] == 50.0
    assert "cycles_per_instruction" not in facts(window, 2)
    assert facts(window, 77) == {}


def _row(path: str, lost: float, causes: dict[str, float], oncpu: float) -> TopRow:
    return TopRow(CgroupInfo(hash(path) & 0xFFFF, path, path[1:]), lost, causes, oncpu, ())


@pytest.mark.parametrize(
    ("order", "expected"),
    [(Order.LOST, "acb"), (Order.BY_OTHERS, "bca"), (Order.ONCPU, "cab"), (Order.NAME, "abc")],
)
def test_orders(order: Order, expected: str) -> None:
    made = [
        _row("/a", 3.0, {"cpu:self": 3.0}, 1.0),
        _row("/b", 1.0, {"cpu:neighbour": 1.0}, 0.0),
        _row("/c", 2.0, {"cpu:self": 1.5, "blockio:queue": 0.5}, 2.0),
    ]
    assert "".join(row.info.name for row in ordered(made, order)) == expected


def test_orders_go_round() -> None:
    order = Order.LOST
    seen = []
    for _ in Order:
        seen.append(order)
        order = order.following
    assert (set(seen), order) == (set(Order), Order.LOST)
