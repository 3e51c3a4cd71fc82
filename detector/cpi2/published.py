"""CPI2 as published (Zhang et al., "CPI2: CPU performance isolation for shared compute clusters", EuroSys 2013).

Victims are outliers of cycles per instruction against their job's history on the same CPU type; antagonists are found
by correlating the victim's CPI with the neighbours' cpu usage. It complements direct blame, which sees the holder of a
resource; its culprits are correlated and are labelled so. It does not see queueing for a CPU: a waiting task has no
CPI.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from detector.arrays import Floats, product

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Cpi2Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The published parameters. Each task is sampled for ten seconds once a minute."""

    outlier_sigmas: Positive = 2.0
    anomaly_outliers: Annotated[int, msgspec.Meta(ge=1)] = 3
    anomaly_seconds: Positive = 300.0
    min_usage_cores: Annotated[float, msgspec.Meta(ge=0)] = 0.25
    """Samples of tasks that use less say nothing about interference."""
    min_tasks: Annotated[int, msgspec.Meta(ge=1)] = 5
    min_samples_per_task: Annotated[int, msgspec.Meta(ge=1)] = 100
    age_weight: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.9
    """Weight of history at each refresh."""
    correlation_seconds: Positive = 600.0
    antagonist_correlation: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.35
    sample_seconds: Positive = 10.0
    sample_every_seconds: Positive = 60.0
    refresh_seconds: Positive = 86_400.0


class JobKey(msgspec.Struct, frozen=True):
    """CPI depends on the program and the CPU, so it is compared only within both."""

    workload: str
    cpu_type: str


class CpiSpec(msgspec.Struct, frozen=True):
    """CPI of a job on one CPU type; `count` is the aged number of samples."""

    count: float
    mean: float
    sigma: float

    def threshold(self, sigmas: float) -> float:
        """CPI above which a sample is an outlier."""
        return self.mean + sigmas * self.sigma


class CpiSamples(msgspec.Struct, frozen=True):
    """Samples of one job on one CPU type since the last refresh; `by_task` counts them for each task.

    `squares` is the sum of squared distances from the mean, merged by Chan's formula (Chan, Golub and LeVeque, 1983).
    """

    mean: float = 0.0
    squares: float = 0.0
    by_task: Mapping[str, int] = {}

    @property
    def count(self) -> int:
        """Samples of all tasks."""
        return sum(self.by_task.values())


def gather(tasks: Sequence[str], cpi: Floats, usage_cores: Floats, policy: Cpi2Policy) -> CpiSamples:
    """One job's samples that count, each with its task: measured, and taken while the task used enough cpu."""
    kept = np.flatnonzero(np.isfinite(cpi) & (usage_cores >= policy.min_usage_cores))
    if not len(kept):
        return CpiSamples()
    mean = float(cpi[kept].mean())
    by_task = Counter(tasks[row] for row in kept.tolist())
    return CpiSamples(mean, float(((cpi[kept] - mean) ** 2).sum()), dict(sorted(by_task.items())))


def merge_samples(one: CpiSamples, two: CpiSamples) -> CpiSamples:
    """Both as one, from tasks of any node; associative and commutative up to rounding."""
    count = one.count + two.count
    if not count:
        return CpiSamples()
    apart = two.mean - one.mean
    mean = (one.mean * one.count + two.mean * two.count) / count
    squares = one.squares + two.squares + apart * apart * one.count * two.count / count
    tasks = sorted({*one.by_task, *two.by_task})
    return CpiSamples(mean, squares, {task: one.by_task.get(task, 0) + two.by_task.get(task, 0) for task in tasks})


def refresh(history: CpiSpec | None, fresh: CpiSamples, policy: Cpi2Policy) -> CpiSpec | None:
    """Return the job's new history; with too few tasks or samples, `history` unchanged."""
    enough = [samples for samples in fresh.by_task.values() if samples >= policy.min_samples_per_task]
    if len(enough) < policy.min_tasks:
        return history
    if history is None:
        return CpiSpec(float(fresh.count), fresh.mean, math.sqrt(fresh.squares / fresh.count))
    old = history.count * policy.age_weight
    count = old + fresh.count
    mean = (old * history.mean + fresh.count * fresh.mean) / count
    apart = fresh.mean - history.mean
    squares = old * history.sigma**2 + fresh.squares + apart * apart * old * fresh.count / count
    return CpiSpec(count, mean, math.sqrt(squares / count))


def outliers(
    cpi: NDArray[np.float64], usage_cores: NDArray[np.float64], specs: Sequence[CpiSpec | None], policy: Cpi2Policy
) -> NDArray[np.bool_]:
    """Return the tasks whose samples are outliers; one without a history or with little usage never is."""
    limits = np.array([spec.threshold(policy.outlier_sigmas) if spec else np.inf for spec in specs], dtype=np.float64)
    return np.asarray((cpi > limits) & (usage_cores >= policy.min_usage_cores), dtype=np.bool_)


class OutlierCounter:
    """Remembers outliers of tasks long enough to call an anomaly; times are monotonic seconds."""

    def __init__(self, policy: Cpi2Policy) -> None:
        self._policy = policy
        self._times: dict[str, deque[float]] = {}

    @property
    def times(self) -> dict[str, list[float]]:
        """Seconds of each task's outliers that still count."""
        return {task: list(times) for task, times in self._times.items()}

    @times.setter
    def times(self, times: Mapping[str, Sequence[float]]) -> None:
        self._times = {task: deque(each) for task, each in times.items()}

    def anomalies(self, tasks: Sequence[str], outlying: NDArray[np.bool_], now_seconds: float) -> NDArray[np.bool_]:
        """Take one sample of each task; which of them have enough outliers. Tasks not named are forgotten in time."""
        for row in np.flatnonzero(outlying).tolist():
            self._times.setdefault(tasks[row], deque()).append(now_seconds)
        for task_name in list(self._times):
            times = self._times[task_name]
            while times and now_seconds - times[0] >= self._policy.anomaly_seconds:
                times.popleft()
            if not times:
                del self._times[task_name]
        needed = self._policy.anomaly_outliers
        return np.array([len(self._times.get(task, ())) >= needed for task in tasks], dtype=np.bool_)


def antagonist_scores(harm: Floats, thresholds: Floats, usage: Floats) -> Floats:
    """Correlation of each suspect's usage with each victim's harm (its CPI, its loss), from -1 to 1.

    `harm` has shape (times, victims), `thresholds` (victims,), `usage` (times, suspects), aligned in time; the answer
    has shape (victims, suspects). With u a suspect's usage normalised to sum 1 and T the threshold, each sample adds u
    (1 - T / harm) where the harm is above T and u (harm / T - 1) where it is below. Samples at which the victim's harm
    was not measured count for no suspect; a suspect that used nothing scores 0.
    """
    if not (thresholds > 0).all():
        raise ValueError(f"a threshold of {thresholds.min()} is not positive")
    measured = np.isfinite(harm)
    whole = np.where(measured, harm, thresholds)
    weight = np.where(whole > thresholds, 1.0 - thresholds / np.maximum(whole, thresholds), whole / thresholds - 1.0)
    used = np.where(np.isfinite(usage), np.maximum(usage, 0.0), 0.0)
    total = used.sum(axis=0) if measured.all() else product(measured.T.astype(np.float64), used)
    return product(np.where(measured, weight, 0.0).T, used) / np.where(total > 0, total, 1.0)


def antagonists(scores: Floats, policy: Cpi2Policy) -> NDArray[np.intp]:
    """Suspects to be called antagonists, the highest score first; none when nothing correlates enough."""
    order = np.argsort(-scores, kind="stable")
    return order[scores[order] >= policy.antagonist_correlation]
