"""CPI2 on a node's frames: ten-second samples once a minute, histories by workload, anomalies and their antagonists."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo
from detector.arrays import Floats, Ids
from detector.checkpoint import Array, pack, unpack
from detector.cpi2.published import (
    Cpi2Policy,
    CpiSamples,
    CpiSpec,
    JobKey,
    OutlierCounter,
    antagonist_scores,
    antagonists,
    gather,
    merge_samples,
    outliers,
    refresh,
)
from detector.ring import Ring, rearranged

COUNTERS = ("pmu.cycles", "pmu.instructions", "cpu.oncpu_ns")


@dataclass(frozen=True, slots=True)
class Sampled:
    """The last sample, a row for each cgroup of the frame; NaN without sample or history."""

    cpi: Floats
    usage_cores: Floats
    mean: Floats
    threshold: Floats
    anomalous: NDArray[np.bool_]
    past: Ring
    policy: Cpi2Policy

    @property
    def lost(self) -> Floats:
        """Cores used times `1 - mean CPI / CPI` while the cgroup is anomalous, else 0; NaN without a history."""
        known = np.isfinite(self.mean) & np.isfinite(self.cpi)
        part = np.clip(1.0 - self.mean / self.cpi, 0.0, 1.0)
        return np.where(known, np.where(self.anomalous, self.usage_cores * part, 0.0), np.nan)

    def antagonists_of(self, row: int) -> list[tuple[int, float]]:
        """Rows of the antagonists with their shares of the cpu time that others used while the victim was harmed."""
        harm, usage = self.past.series(0)[:, [row]], np.nan_to_num(self.past.series(1))
        usage[:, row] = 0.0
        scores = antagonist_scores(harm, self.threshold[[row]], usage)[0]
        meanwhile = usage[harm[:, 0] > self.threshold[row]].sum(axis=0)
        whole = max(float(meanwhile.sum()), 1e-300)
        return [(other, float(meanwhile[other]) / whole) for other in antagonists(scores, self.policy).tolist()]


class SamplerState(msgspec.Struct, frozen=True):
    """Everything a sampler remembers."""

    policy: Cpi2Policy
    began_ns: int | None
    next_ns: int
    refreshed_ns: int
    ids: Array
    counters: Array
    past_ids: Array
    past: Array
    latest: tuple[Array, Array]
    outlier_times: dict[str, list[float]]
    specs: list[tuple[JobKey, CpiSpec]]
    fresh: list[tuple[JobKey, CpiSamples]]


class Cpi2Sampler:
    """Feed it the counters of every frame. A task is a cgroup, a job its workload on this CPU type."""

    def __init__(self, policy: Cpi2Policy, cpu_type: str) -> None:
        self._policy, self._cpu_type = policy, cpu_type
        self._began_ns: int | None = None
        self._next_ns = 0
        self._refreshed_ns = 0
        self._ids: Ids = np.empty(0, dtype=np.uint64)
        self._counters: Floats = np.empty((len(COUNTERS), 0))
        length = max(math.ceil(policy.correlation_seconds / policy.sample_every_seconds), 2)
        self._past = Ring(length, width=2)
        self._latest: tuple[Floats, NDArray[np.bool_]] = (np.empty((4, 0)), np.empty(0, dtype=np.bool_))
        self._counter = OutlierCounter(policy)
        self._specs: dict[JobKey, CpiSpec] = {}
        self._fresh: dict[JobKey, CpiSamples] = {}

    def step(self, cgroups: Sequence[CgroupInfo], ids: Ids, counters: Floats, now_ns: int) -> Sampled:
        """Take the values of `COUNTERS`, shape (3, cgroups), and return the last sample."""
        if self._began_ns is not None and now_ns < self._began_ns:
            self._began_ns, self._next_ns, self._refreshed_ns = None, now_ns, now_ns
        if self._began_ns is None and now_ns >= self._next_ns:
            self._began_ns, self._ids, self._counters = now_ns, ids, counters
        elif self._began_ns is not None and now_ns - self._began_ns >= self._policy.sample_seconds * 1e9:
            self._sample(cgroups, ids, counters, now_ns)
            self._next_ns = self._began_ns + int(self._policy.sample_every_seconds * 1e9)
            self._began_ns = None
        return self._latest_sample(ids)

    def _sample(self, cgroups: Sequence[CgroupInfo], ids: Ids, counters: Floats, now_ns: int) -> None:
        began = now_ns if self._began_ns is None else self._began_ns
        grown = counters - rearranged(self._counters, self._ids, ids, np.nan)
        grown = np.where(grown < 0, np.nan, grown)
        cpi = np.divide(grown[0], grown[1], out=np.full(len(ids), np.nan), where=grown[1] > 0)
        usage = grown[2] / (now_ns - began)
        jobs = [JobKey(info.workload, self._cpu_type) if info.workload else None for info in cgroups]
        specs = [self._specs.get(job) if job else None for job in jobs]
        outlying = outliers(cpi, usage, specs, self._policy)
        anomalous = self._counter.anomalies([info.path for info in cgroups], outlying, now_ns / 1e9)
        self._past.push(ids, np.stack([cpi, usage]))
        mean = np.array([spec.mean if spec else np.nan for spec in specs])
        limit = np.array([spec.threshold(self._policy.outlier_sigmas) if spec else np.nan for spec in specs])
        self._latest = (np.stack([cpi, usage, mean, limit]), anomalous)
        self._learn(cgroups, jobs, cpi, usage)
        self._refresh(now_ns)

    def _learn(self, cgroups: Sequence[CgroupInfo], jobs: Sequence[JobKey | None], cpi: Floats, usage: Floats) -> None:
        rows_of: dict[JobKey, list[int]] = defaultdict(list)
        for row, job in enumerate(jobs):
            if job:
                rows_of[job].append(row)
        for job, rows in rows_of.items():
            samples = gather([cgroups[row].path for row in rows], cpi[rows], usage[rows], self._policy)
            if samples.by_task:
                self._fresh[job] = merge_samples(self._fresh.get(job, CpiSamples()), samples)

    def _refresh(self, now_ns: int) -> None:
        """Histories grow once a period; a job's first one is made as soon as its samples suffice."""
        due = now_ns - self._refreshed_ns >= self._policy.refresh_seconds * 1e9
        for job, samples in list(self._fresh.items()):
            if due or job not in self._specs:
                spec = refresh(self._specs.get(job), samples, self._policy)
                if spec is not None and spec is not self._specs.get(job):
                    self._specs[job] = spec
                    del self._fresh[job]
        if due:
            self._refreshed_ns = now_ns

    def _latest_sample(self, ids: Ids) -> Sampled:
        numbers, anomalous = self._latest
        known = self._past.ids
        if not np.array_equal(known, ids):
            numbers = rearranged(numbers, known, ids, np.nan)
            anomalous = rearranged(anomalous, known, ids, 0)
            self._past.align(ids)
            self._latest = (numbers, anomalous)
        cpi, usage, mean, threshold = numbers
        return Sampled(cpi, usage, mean, threshold, anomalous, self._past, self._policy)

    def state(self) -> SamplerState:
        """State for `restore`."""
        return SamplerState(
            policy=self._policy,
            began_ns=self._began_ns,
            next_ns=self._next_ns,
            refreshed_ns=self._refreshed_ns,
            ids=pack(self._ids),
            counters=pack(self._counters),
            past_ids=pack(self._past.ids),
            past=pack(self._past.values),
            latest=(pack(self._latest[0]), pack(self._latest[1])),
            outlier_times=self._counter.times,
            specs=list(self._specs.items()),
            fresh=list(self._fresh.items()),
        )

    def restore(self, state: SamplerState) -> None:
        """Go on from a state; samples under another policy are forgotten."""
        if state.policy != self._policy:
            return
        self._began_ns, self._next_ns, self._refreshed_ns = state.began_ns, state.next_ns, state.refreshed_ns
        self._ids, self._counters = unpack(state.ids), unpack(state.counters)
        self._past.restore(unpack(state.past_ids), unpack(state.past))
        self._latest = (unpack(state.latest[0]), unpack(state.latest[1]))
        self._counter.times = state.outlier_times
        self._specs, self._fresh = dict(state.specs), dict(state.fresh)
