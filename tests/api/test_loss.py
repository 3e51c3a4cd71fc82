"""The ledger of lost time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.loss import CAUSED_BY_OTHERS, LOSS_CAUSES, lost_ns, lost_to_others_ns, total_lost_ns
from api.metrics import BY_COLUMN, WAIT_CAUSES
from api.window import Window
from detector.explain.story import lost_between
from detector.registry import discover_symptoms
from detector.view import View
from koordlet.control.harm import tick_of
from koordlet.response.observation import HostCapabilities, observe
from koordlet.top.rows import rows
from tests.frames import make_frame

CGROUPS = {1: "/online", 2: "/batch"}
SECONDS = 2.0
OWN_COLUMNS = sorted({column for cause in LOSS_CAUSES for column in cause.less})
LEDGER_COLUMNS = sorted({column for cause in LOSS_CAUSES for column in cause.columns})
SYMPTOMS = {
    "cpu_contention": ("cpu:neighbour", "cpu:kernel"),
    "irq_theft": ("cpu:irq",),
    "reclaim": ("memory:global",),
    "compaction": ("memory:compaction",),
    "blockio_delay": ("blockio:queue", "blockio:device"),
    "network_delay": ("net:qdisc",),
}
"""The symptoms that lose time to others, and the ledger's causes that they report."""
GROWTH = st.lists(st.one_of(st.integers(0, 10), st.integers(0, 10**13)), min_size=len(CGROUPS), max_size=len(CGROUPS))
DELTAS = st.dictionaries(st.sampled_from(LEDGER_COLUMNS), GROWTH)
IO_AND_RECLAIM = st.fixed_dictionaries(
    dict.fromkeys(("blockio.queue_ns", "blockio.excess_ns", "memory.stall_global_ns", *OWN_COLUMNS), GROWTH)
)


def window_of(growth: dict[str, list[int]]) -> Window:
    """Two frames between which the columns grew so much, with time on CPU beside them."""
    grown = {**growth, "cpu.oncpu_ns": [10**9] * len(CGROUPS)}
    zero = {name: [0] * len(CGROUPS) for name in grown}
    return Window([make_frame(0, CGROUPS, zero), make_frame(SECONDS, CGROUPS, grown)])


def test_causes_are_summed_by_name_and_unmeasured_ones_are_absent() -> None:
    cgroups = {1: "/a"}
    columns = {"cpu.wait_neighbour_ns": [7], "cpu.irq_ns": [2], "cpu.softirq_ns": [3]}
    zero = {name: [0] for name in columns}
    ledger = lost_ns(Window([make_frame(0, cgroups, zero), make_frame(1, cgroups, columns)]).delta())
    assert {name: column.tolist() for name, column in ledger.items()} == {"cpu:neighbour": [7.0], "cpu:irq": [5.0]}
    assert total_lost_ns(ledger).tolist() == [12.0]
    assert np.size(total_lost_ns({})) == 0


def test_every_cause_names_known_columns_and_every_wait_is_in_the_ledger() -> None:
    named = {column for cause in LOSS_CAUSES for column in cause.columns}
    assert named | set(OWN_COLUMNS) <= set(BY_COLUMN)
    assert {f"cpu.wait_{cause}_ns" for cause in WAIT_CAUSES} <= named


@pytest.mark.parametrize(
    ("queue", "excess", "own", "expected"),
    [
        pytest.param(900, 100, 0, (900, 100, 0), id="none-own"),
        pytest.param(900, 100, 500, (450, 50, 500), id="half-own-in-proportion"),
        pytest.param(900, 100, 1000, (0, 0, 1000), id="all-own"),
        pytest.param(900, 100, 5000, (0, 0, 1000), id="own-beyond-the-whole"),
        pytest.param(0, 0, 5, (0, 0, 0), id="nothing-lost"),
        pytest.param(1, 2, 1, (1, 1, 1), id="whole-nanoseconds"),
    ],
)
def test_own_io_is_taken_off_queue_and_excess_together(
    queue: int, excess: int, own: int, expected: tuple[int, int, int]
) -> None:
    growth = {"blockio.queue_ns": [queue, 0], "blockio.excess_ns": [excess, 0], "blockio.self_ns": [own, 0]}
    ledger = lost_ns(window_of(growth).delta())
    assert tuple(ledger[f"blockio:{name}"][0] for name in ("queue", "device", "self")) == expected


def test_the_own_part_of_a_cause_that_was_not_measured_is_absent() -> None:
    assert lost_ns(window_of({"blockio.self_ns": [5, 5]}).delta()) == {}
    assert list(lost_ns(window_of({"blockio.queue_ns": [5, 5]}).delta())) == ["blockio:queue"]


def test_causes_that_are_not_asked_for_still_share_the_own_part() -> None:
    columns = window_of({name: [100, 0] for name in ("blockio.queue_ns", "blockio.excess_ns", "blockio.self_ns")})
    (queue,) = lost_to_others_ns(columns.delta().table.columns, ["blockio:queue"]).values()
    assert queue.tolist() == [50.0, 0.0]


@given(st.one_of(DELTAS, IO_AND_RECLAIM))
def test_the_whole_ledger_keeps_all_that_was_lost_and_no_part_is_negative(growth: dict[str, list[int]]) -> None:
    ledger = lost_ns(window_of(growth).delta())
    measured = [np.array(values) for name, values in growth.items() if name not in OWN_COLUMNS]
    assert total_lost_ns(ledger).tolist() == (np.sum(measured, axis=0).tolist() if measured else [])
    assert all((column >= 0).all() for column in ledger.values())


@given(st.one_of(DELTAS, IO_AND_RECLAIM))
def test_every_reader_of_the_ledger_finds_the_same_loss_to_others_to_the_nanosecond(
    growth: dict[str, list[int]],
) -> None:
    window = window_of(growth)
    delta = window.delta()
    ledger = lost_to_others_ns(delta.table.columns)
    expected = pytest.approx(total_lost_ns(ledger) if ledger else np.zeros(len(CGROUPS)), abs=0.5, rel=0)

    harm = tick_of(delta)
    assert (harm is None) == (not ledger)
    assert harm is None or harm[0] * 1e9 == expected

    by_resource = observe(window, delta, (), HostCapabilities()).lost
    assert sum(by_resource.values(), np.zeros(len(CGROUPS))) * (1e9 * SECONDS) == expected

    assert np.array([row.by_others for row in rows(window)]) * (1e9 * SECONDS) == expected

    story = lost_between(*window.frames)
    assert [
        sum(lost for cause, lost in story[path].items() if cause in CAUSED_BY_OTHERS) * (1e9 * SECONDS)
        for path in CGROUPS.values()
    ] == expected

    assert {cause for causes in SYMPTOMS.values() for cause in causes} == CAUSED_BY_OTHERS
    for name, causes in SYMPTOMS.items():
        symptom = discover_symptoms()[name]
        signal = symptom.sense(View(window, symptom.columns))
        own = {cause: ledger[cause] for cause in causes if cause in ledger}
        assert (signal is None) == (not own), name
        assert signal is None or signal.lost * (1e9 * SECONDS) == pytest.approx(total_lost_ns(own), abs=0.5, rel=0)
