"""Focus of the expensive probes: their cost is measured, and their focus moved as the policy decides."""

import logging
import os
import time
from collections.abc import Mapping

import numpy as np

from api.frame import HOST, Reading, Table
from api.loss import lost_ns, total_lost_ns
from koordlet.tick import Tick
from koordlet.triage.policy import Descendants, Ids, Level, TriagePolicy, TriageSettings
from probes.libbpf import BpfError, enable_stats
from probes.probe import Probe

_log = logging.getLogger(__name__)


class FocusControl:
    """Moves the focus by `after_tick` once a tick; `reading` is for the next frame."""

    def __init__(self, settings: TriageSettings, probes: Mapping[str, Probe], *, cpus: int | None = None) -> None:
        self.probes = {name: probe for name, probe in probes.items() if probe.focusable}
        """Probes that take a focus."""
        self.policy = TriagePolicy(settings, cpus or os.cpu_count() or 1)
        self.failures = 0
        """Times that the kernel refused to move a focus."""
        self._meter = CostMeter(self.probes, settings.measure_every_ticks)
        self._descendants = Descendants(())
        self._focus: Ids | None = None
        self._focused = 0

    def after_tick(self, tick: Tick, suspects: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Move the focus by the newest frame; `suspects` has a value for each of its rows."""
        frame = tick.window.last
        if not self.probes or len(suspects) != len(frame.cgroups):
            return
        self._adapt_level()
        lost = _lost(tick) if self.policy.budget.level is Level.WORST else np.zeros(len(suspects))
        if self._descendants.cgroups is not frame.cgroups:
            self._descendants = Descendants(frame.cgroups)
        focus = self.policy.focus(frame.cgroup.ids, self._descendants.spread(suspects), lost)
        if not _same(focus, self._focus):
            self._move(focus)
        self._focused = len(frame.cgroups) if focus is None else len(focus)

    def _adapt_level(self) -> None:
        """Adapt the level to a new measurement, if there is one."""
        before, failed = self.policy.budget.level, self._meter.failures
        used = self._meter.tick()
        if used is not None:
            level = self.policy.budget.measured(used)
        elif self._meter.failures > failed:
            level = self.policy.budget.unmeasurable()
        else:
            return
        if level != before:
            cost = "at an unknown cost" if used is None else f"at {used:.1f} of {self.budget:.1f} millicores"
            _log.info("triage level: %s, %s", level.name.lower(), cost)

    @property
    def budget(self) -> float:
        """Budget of the expensive probes in millicores."""
        return self.policy.budget.millicores

    def reading(self) -> Reading:
        """Budget, cost and focus, for the table of the host."""
        columns = {
            "triage.budget_cores": np.array([self.budget / 1000]),
            "triage.used_cores": np.array([self._meter.used_millicores / 1000]),
            "triage.focused": np.array([float(self._focused)]),
            "triage.level": np.array([float(self.policy.budget.level)]),
            "triage.shed_ticks": np.array([self.policy.shed_ticks], dtype=np.uint64),
        }
        return Reading({HOST: Table({}, columns)}, {"triage.failures": self.failures + self._meter.failures})

    def _move(self, focus: Ids | None) -> None:
        for name, probe in self.probes.items():
            try:
                probe.focus(focus)
            except BpfError as error:
                self.failures += 1
                _log.debug("the focus of %s stays: %s", name, error)
        self._focus = focus

    def close(self) -> None:
        """Switch the kernel's statistics off again; idempotent."""
        self._meter.close()


class CostMeter:
    """Run time of programs in millicores, from the kernel's statistics in one tick of many: they cost too."""

    def __init__(self, probes: Mapping[str, Probe], every_ticks: int) -> None:
        self.used_millicores = 0.0
        """As last measured."""
        self.failures = 0
        self._probes = probes
        self._every_ticks = every_ticks
        self._ticks = 0
        self._descriptor = -1
        self._began: tuple[int, int] = (0, 0)

    def tick(self) -> float | None:
        """Return the millicores of the tick that ends now; None where it was not measured."""
        self._ticks += 1
        if self._descriptor >= 0:
            return self._end()
        if self._ticks % self._every_ticks == 1:
            self._begin()
        return None

    def _begin(self) -> None:
        try:
            self._descriptor = enable_stats()
            self._began = (time.monotonic_ns(), self._run_time_ns())
        except BpfError:
            self.failures += 1
            self.close()

    def _end(self) -> float | None:
        try:
            now, ran = time.monotonic_ns(), self._run_time_ns()
        except BpfError:
            self.failures += 1
            return None
        finally:
            self.close()
        began, ran_before = self._began
        self.used_millicores = 1000.0 * (ran - ran_before) / max(now - began, 1)
        return self.used_millicores

    def _run_time_ns(self) -> int:
        return sum(program.run_time_ns for probe in self._probes.values() for program in probe.stats())

    def close(self) -> None:
        """Switch the statistics off; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lost(tick: Tick) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Time that each cgroup of the newest frame lost in the tick, all causes together."""
    lost = total_lost_ns(lost_ns(tick.delta))
    return lost if len(lost) else np.zeros(len(tick.window.cgroups))


def _same(one: Ids | None, other: Ids | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
