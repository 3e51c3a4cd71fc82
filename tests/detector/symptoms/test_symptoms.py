"""Each symptom over one tick: what it counts as lost, and that it is silent where nothing measures it."""

from collections.abc import Mapping

import numpy as np
import pytest

from api.metrics import BY_COLUMN
from api.window import Window
from detector.baselines.values import Judgement
from detector.rules import DEFAULT_RULES
from detector.symptom import discover_symptoms
from detector.view import View
from tests.frames import make_frame

ALL = discover_symptoms()
MS = 10**6


def judged(expected: float, sigmas: float) -> Judgement:
    one = np.array([expected])
    return Judgement(one, one, one, np.array([sigmas]), np.array([2]), np.array([100]), one)


def view(name: str, grown: Mapping[str, float], sigmas: float = 9.0) -> View:
    """A tick of one second in which one cgroup's columns grew so much; usual are a CPI of 1, 10 % misses and 2 ms."""
    made = [make_frame(t, {1: "/web"}, {column: [value * t] for column, value in grown.items()}) for t in (0, 1)]
    seen = View(Window(made), ALL[name].columns)
    usual = {"cpi": 1.0, "llc_miss_ratio": 0.1, "turnaround": 0.002, "others_memory_traffic": 1e6}
    seen.judgements = {signal: judged(value, sigmas) for signal, value in usual.items()}
    return seen


IO = {"blockio.queue_ns": 900 * MS, "blockio.excess_ns": 100 * MS, "blockio.self_ns": 400 * MS}
STALLED = {"pressure.cpu_some_us": 500_000, "cpustat.throttled_ns": 400 * MS, "pressure.io_some_us": 200_000}
PMU = {"cpu.oncpu_ns": 800 * MS, "pmu.cycles": 2000, "pmu.instructions": 1000, "pmu.llc_references": 100}


@pytest.mark.parametrize(
    ("name", "grown", "lost"),
    [
        ("cpu_contention", {"cpu.wait_neighbour_ns": 300 * MS, "cpu.wait_kernel_ns": 20 * MS}, 0.32),
        ("own_threads", {"cpu.wait_self_ns": 300 * MS}, 0.3),
        ("own_quota", {"cpu.wait_own_quota_ns": 200 * MS, "cpustat.throttled_ns": 900 * MS}, 0.2),
        ("ancestor_quota", {"cpu.wait_ancestor_quota_ns": 250 * MS}, 0.25),
        ("reclaim", {"memory.stall_global_ns": 300 * MS, "memory.stall_global_self_ns": 100 * MS}, 0.2),
        ("compaction", {"memory.stall_compaction_ns": 70 * MS}, 0.07),
        ("own_memory_limit", {"memory.stall_own_limit_ns": 70 * MS}, 0.07),
        ("ancestor_memory_limit", {"memory.stall_ancestor_limit_ns": 70 * MS}, 0.07),
        ("blockio_delay", IO, 0.6),
        ("blockio_limit", {"blockio.throttle_ns": 70 * MS}, 0.07),
        ("network_delay", {"net.qdisc_delay_ns": 70 * MS}, 0.07),
        ("network_retransmit", {"net.tcp_retransmits": 5}, 1.0),
        ("irq_theft", {"cpu.irq_ns": 30 * MS, "cpu.softirq_ns": 40 * MS}, 0.07),
        ("irq_theft", {"cpu.irq_ns": 30 * MS, "cpu.softirq_ns": 40 * MS, "net.softirq_rx_ns": 15 * MS}, 0.04),
        ("irq_theft", {"cpu.softirq_ns": 250 * MS, "net.softirq_rx_ns": 210 * MS}, 0.0),
        ("smt_sibling", {"cpu.smt_foreign_ns": 400 * MS}, 0.14),
        ("smt_sibling", {"cpu.smt_foreign_ns": 400 * MS, "pmu.cycles": 2000, "pmu.instructions": 1000}, 0.2),
        ("cache_pressure", {**PMU, "pmu.llc_misses": 30}, 0.4),
        ("cache_pressure", {**PMU, "pmu.llc_misses": 5}, 0.0),
        ("cpi_outlier", {c: PMU[c] for c in ("cpu.oncpu_ns", "pmu.cycles", "pmu.instructions")}, 0.4),
        ("memory_bandwidth", {**PMU, "resctrl.mbm_total_bytes": 5}, 0.4),
        ("turnaround", {"turnaround.requests": 100, "turnaround.sum_ns": 500 * MS}, 0.3),
        ("turnaround", {"turnaround.requests": 100, "turnaround.sum_ns": 100 * MS}, 0.0),
        ("pressure", STALLED, 0.2),
    ],
)
def test_loss(name: str, grown: Mapping[str, float], lost: float) -> None:
    signal = ALL[name].sense(view(name, grown))
    assert signal is not None
    assert signal.lost == pytest.approx([lost])


@pytest.mark.parametrize("name", ALL)
def test_silent_where_nothing_is_measured(name: str) -> None:
    assert ALL[name].sense(view(name, {})) is None


@pytest.mark.parametrize("name", ALL)
def test_columns_are_known_and_the_module_has_a_docstring(name: str) -> None:
    symptom = ALL[name]
    assert set(symptom.columns) <= set(BY_COLUMN)
    assert {symptom.blame.suspects, *symptom.blame.ancestor_columns} <= {"", *symptom.columns}
    assert type(symptom).__doc__


def test_default_rules_use_every_symptom() -> None:
    assert {name for rule in DEFAULT_RULES for name in rule.symptoms} == set(ALL)


@pytest.mark.parametrize("name", ["cache_pressure", "cpi_outlier", "memory_bandwidth", "turnaround"])
def test_what_is_within_the_usual_spread_is_no_loss(name: str) -> None:
    requests = {"turnaround.requests": 100, "turnaround.sum_ns": 500 * MS}
    grown = {**PMU, **requests, "pmu.llc_misses": 30, "resctrl.mbm_total_bytes": 5}
    signal = ALL[name].sense(view(name, {c: grown[c] for c in ALL[name].columns}, sigmas=1.0))
    assert signal is not None
    assert signal.lost == pytest.approx([0.0])
