"""The kernel probes of this host: opened once, read in each tick."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading
from api.plugin import Unsupported
from api.programs.heap import release_heap
from detector.breaks import no_breaks
from koordlet.agent.plugins import discover_probes
from koordlet.config import ProbeSettings
from probes.bcc.backend import open_probe
from probes.libbpf import ProgramStats
from probes.parents import Parents
from probes.probe import Kernel, Probe, ProbeLimits, check_options

_MISSED_EVERY = 5
"""Reads between two questions for missed events: a system call for each program."""

_log = logging.getLogger(__name__)


class ProbeSet:
    """Opened probes, and the reasons of those that could not be opened."""

    def __init__(
        self,
        opened: Mapping[str, Probe],
        refused: Mapping[str, Unsupported],
        partly: Mapping[str, str],
        sources: Mapping[str, str],
    ) -> None:
        # Who took pages is read before what is shared out by it.
        self.opened = dict(sorted(opened.items(), key=lambda named: named[1].page_shares is None))
        self.refused = dict(refused)
        self.partly = dict(partly)
        """Reasons by name for parts of opened probes that cannot measure on this host."""
        self.sources = dict(sources)
        """Backend of each opened probe: CO-RE objects, BCC or kernel files."""
        self._reads = 0
        self._missed: dict[str, dict[str, int]] = {}
        """Missed events by program, as asked last, by probe."""
        for counter in self.opened.values():
            if counter.page_shares is not None:
                for probe in self.opened.values():
                    probe.follow_pages(counter.page_shares)

    @classmethod
    def open(cls, settings: ProbeSettings) -> "ProbeSet":
        """Open all probes that are not disabled; a refused one does not stop the others.

        Raises SettingsError for an option that its probe does not take.
        """
        opened: dict[str, Probe] = {}
        sources: dict[str, str] = {}
        refused: dict[str, Unsupported] = {}
        kernel = Kernel()
        limits = ProbeLimits(settings.max_cgroups, settings.max_pairs, settings.options)
        kinds = discover_probes()
        check_options(limits, kinds)
        for name, kind in kinds.items():
            if name in settings.disabled or settings.backend == "none":
                refused[name] = Unsupported("disabled in the settings", f"take {name!r} out of [probes] disabled")
                continue
            try:
                opened[name], sources[name] = open_probe(kind, kernel, limits, settings.backend)
            except Unsupported as reason:
                # Not the exception itself: its frames would keep the kernel's BTF of 10 MB while the agent runs.
                refused[name] = Unsupported(reason.reason, reason.remedy)
        partly = dict(kernel.refusals)
        del kernel
        release_heap()
        return cls(opened, refused, partly, sources)

    def read(self, between: Callable[[], None] = no_breaks) -> tuple[dict[str, Reading], dict[str, str]]:
        """Return a reading of each probe, and the errors of those that failed and are tried again in the next tick.

        `between` is called before each.
        """
        asks = self._reads % _MISSED_EVERY == 0
        self._reads += 1
        readings: dict[str, Reading] = {}
        failures: dict[str, str] = {}
        for name, probe in self.opened.items():
            between()
            try:
                readings[name] = self._with_missed(name, probe, asks=asks)
            except OSError as error:
                failures[name] = str(error)
        return readings, failures

    def follow(self, parents: Parents) -> None:
        """Let the cgroups above small culprits bear their blame where these are too many to be kept one by one."""
        for probe in self.opened.values():
            if probe.pairs is not None:
                probe.pairs.parents = parents

    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Let every probe drop removed cgroups."""
        for probe in self.opened.values():
            probe.forget(ids)

    def make_room(
        self, strangers: NDArray[np.uint64], known: NDArray[np.uint64], readings: Mapping[str, Reading]
    ) -> int:
        """Drop cgroups that the walk does not know, and keep an entry for each known one; return how many found no
        room."""
        self.forget(strangers)
        refused = 0
        for name, reading in readings.items():
            if CGROUP in reading.tables and name in self.opened:
                refused += self.opened[name].reserve(known[~np.isin(known, reading.tables[CGROUP].ids)])
        return refused

    def _with_missed(self, name: str, probe: Probe, *, asks: bool) -> Reading:
        reading = probe.read()
        if asks:
            self._missed[name] = {f"{name}.{program}": count for program, count in probe.missed().items()}
        missed = self._missed.get(name)
        return replace(reading, lost={**reading.lost, **missed}) if missed else reading

    def stats(self) -> dict[str, Sequence[ProgramStats]]:
        """Return the run time of every program, by probe."""
        return {name: probe.stats() for name, probe in self.opened.items()}

    def close(self) -> None:
        """Close all; idempotent."""
        for probe in self.opened.values():
            probe.close()
        self.opened.clear()


def reported_ids(readings: Mapping[str, Reading]) -> NDArray[np.uint64]:
    """Return the cgroup ids in the dense tables of all readings, sorted."""
    found = [reading.tables[CGROUP].ids for reading in readings.values() if CGROUP in reading.tables]
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)
