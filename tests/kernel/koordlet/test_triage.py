"""Triage with the stand-in events: a budget that is too small is noticed by measurement, and the focus obeys."""

import errno
import time
from collections.abc import Iterator

import numpy as np
import pytest

from api.frame import CGROUP, CgroupInfo, Frame, merge
from api.window import Window
from bench.probe_cost import ping_pong
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.agent import Agent
from koordlet.agent.detection import Detection
from koordlet.config import AgentSettings, ProbeSettings
from koordlet.tick import Tick
from koordlet.triage.focus import FocusControl
from koordlet.triage.policy import Level, TriageSettings
from probes.libbpf import BpfError
from probes.pmu import Pmu
from probes.probe import Kernel, Probe, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup

pytestmark = pytest.mark.kernel


@pytest.fixture
def pmu(kernel: Kernel) -> Iterator[Pmu]:
    opened = Pmu.open(kernel, ProbeLimits(max_cgroups=2048, options={"pmu": {"stand_in": True}}))
    yield opened
    opened.close()


class Node:
    """Frames of two cgroups from one probe."""

    def __init__(self, probe: Probe, *cgroups: TestCgroup) -> None:
        self._probe = probe
        self.ids = np.array([each.cgroup_id for each in cgroups], dtype=np.uint64)
        self._infos = tuple(CgroupInfo(each.cgroup_id, each.path, each.path) for each in cgroups)
        self._frames = [self._frame()]

    def _frame(self) -> Frame:
        tables, lost = merge(self.ids, [self._probe.read()])
        return Frame(time.monotonic_ns(), time.time_ns(), self._infos, tables, lost)

    def next_tick(self) -> Tick:
        self._frames = [self._frames[-1], self._frame()]
        return Tick.of(Window(self._frames))


def test_what_it_costs_is_measured_and_too_much_is_given_up(pmu: Pmu, tree: CgroupTree) -> None:
    settings = TriageSettings(cpu_budget_ratio=1e-6, measure_every_ticks=2)
    control = FocusControl(settings, {"pmu": pmu})
    suspects = np.array([True, False])
    with tree.make_cgroup("triage-a") as one, tree.make_cgroup("triage-b") as other:
        node = Node(pmu, one, other)
        levels, widths = [], []
        for _ in range(12):
            ping_pong(one, other, 2000)
            control.after_tick(node.next_tick(), suspects)
            levels.append(control.policy.budget.level)
            widths.append(float(control.reading().tables["host"].columns["triage.focused"][0]))
        assert levels == sorted(levels)
        assert levels[-1] is Level.NOTHING
        assert widths[0] == 2.0
        assert widths[-1] == 0.0
        assert "pmu.cycles" not in node.next_tick().window.last.tables[CGROUP].columns
        assert control.failures == 0
    control.close()


def test_within_the_budget_everybody_is_measured(pmu: Pmu, tree: CgroupTree) -> None:
    control = FocusControl(TriageSettings(cpu_budget_ratio=1.0, measure_every_ticks=2), {"pmu": pmu})
    with tree.make_cgroup("triage-c") as one, tree.make_cgroup("triage-d") as other:
        node = Node(pmu, one, other)
        for _ in range(4):
            ping_pong(one, other, 2000)
            control.after_tick(node.next_tick(), np.array([False, False]))
        host = control.reading().tables["host"].columns
        assert float(host["triage.used_cores"][0]) > 0
        assert int(host["triage.shed_ticks"][0]) == 0
        columns = node.next_tick().window.last.tables[CGROUP].columns
        assert np.all(columns["pmu.cycles"] > 0)
    control.close()


def test_a_suspect_alone_is_measured_and_the_other_is_not_zero_but_unknown(pmu: Pmu, tree: CgroupTree) -> None:
    control = FocusControl(TriageSettings(cpu_budget_ratio=1.0), {"pmu": pmu})
    control.policy.budget.level = Level.SUSPECTS
    with tree.make_cgroup("triage-e") as one, tree.make_cgroup("triage-f") as other:
        node = Node(pmu, one, other)
        control.after_tick(node.next_tick(), np.array([True, False]))
        ping_pong(one, other, 2000)
        node.next_tick()
        ping_pong(one, other, 2000)
        grown = node.next_tick().delta.table.columns["pmu.cycles"]
        assert grown[0] > 0
        assert np.isnan(grown[1])
    control.close()


def test_where_the_kernel_gives_no_statistics_only_suspects_are_measured(
    pmu: Pmu, tree: CgroupTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BpfError("bpf_enable_stats", errno.EPERM)

    monkeypatch.setattr("koordlet.triage.focus.enable_stats", refuse)
    control = FocusControl(TriageSettings(), {"pmu": pmu})
    with tree.make_cgroup("triage-g") as one, tree.make_cgroup("triage-h") as other:
        control.after_tick(Node(pmu, one, other).next_tick(), np.array([True, False]))
        reading = control.reading()
    assert float(reading.tables["host"].columns["triage.focused"][0]) == 1.0
    assert reading.lost["triage.failures"] == 1
    control.close()


def test_the_statistics_are_switched_off_between_measurements(pmu: Pmu) -> None:
    def switched_on() -> bool:
        return any(program.run_count > before[program.name] for program in pmu.stats())

    control = FocusControl(TriageSettings(measure_every_ticks=3), {"pmu": pmu})
    measured = []
    for _ in range(7):
        control._meter.tick()
        before = {program.name: program.run_count for program in pmu.stats()}
        pmu.read()
        time.sleep(0.01)
        measured.append(switched_on())
    control.close()
    assert measured == [True, False, False, True, False, False, True]


def test_the_judge_goes_on_whatever_the_focus_does(kernel: Kernel, tree: CgroupTree) -> None:
    disabled = ("blockio", "irq", "memory", "net", "resctrl", "smt", "throttle", "turnaround")
    probes = ProbeSettings(disabled=disabled, options={"pmu": {"stand_in": True}})
    agent, detection = Agent(AgentSettings(probes=probes)), Detection(Judge(JudgeSettings()))
    try:
        control = FocusControl(TriageSettings(rotation_ticks=2), agent.probes.opened)
        agent.extra_readings.append(control.reading)
        with tree.make_cgroup("triage-i") as one, tree.make_cgroup("triage-j") as other:
            for each in (one, other):
                each.spawn(["sh", "-c", "while :; do :; done"], cpus="0")
            for level in (*Level, *reversed(Level), *Level):
                for _ in range(3):
                    control.policy.budget.level = level
                    detection.step(agent.collect())
                    window = agent.store.window()
                    if window is not None:
                        control.after_tick(Tick.of(window), detection.judge.suspects)
                    time.sleep(0.05)
        assert detection.failures == 0
        assert control.failures == 0
        assert agent.store.window() is not None
        control.close()
    finally:
        agent.close()
