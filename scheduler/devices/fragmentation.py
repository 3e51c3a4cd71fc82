"""Fragmentation of GPUs over the workload's own mix of task types, for all nodes of a cluster at once.

The measure is that of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent" (Weng et al., USENIX ATC 2023). For a node n and a task type m, F_n(m) is the free GPU percent of n that
m cannot use: all of it when m does not fit n (or asks for no GPU), else the sum over GPUs whose free percent is
below what m asks of one. F_n(M) is its mean over the distribution M of task types; a pod goes where F grows least.

With d_j, k_j the percent per GPU and the GPU count of the distinct GPU demands j, and W_j(c) the share of task
types of demand j that fit in c free millicores:

    F_n(M) = free_n - sum_j W_j(cpu_n) * [#{g: f_g >= d_j} >= k_j] * sum_{g: f_g >= d_j} f_g

For demands of one GPU (k = 1) the bracket is implied by the sum, so their part is a sum over GPUs of
Q(cpu, f) = sum_j W_j(cpu) [f >= d_j] f, a table over the workload's cpu sizes and the percents 0..100 that is made
once. Only demands of several GPUs need the counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WHOLE_PERCENT = 100
"""Percent of one whole GPU."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TaskType:
    """One kind of pod of the workload and how often it comes."""

    cpu_millicores: int
    gpus: int
    """Number of GPUs; 0 for a pod without."""
    gpu_percent: int
    """Percent of each GPU, 1..100."""
    weight: float
    models: frozenset[str] = frozenset()
    """GPU models that serve it; empty for any."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """Free resources of N nodes with at most G GPUs each; a GPU that does not exist has 0 percent free."""

    cpu_millicores: Ints
    """Shape (N,): free CPU."""
    gpu_percent: Ints
    """Shape (N, G): free percent of each GPU."""
    model: Ints
    """Shape (N,): index into the models the workload was compiled for."""


class WorkloadDistribution:
    """The distribution M of task types, compiled for the GPU models of a cluster."""

    def __init__(self, types: Iterable[TaskType], models: Sequence[str] = ("",)) -> None:
        kinds = [kind for kind in types if kind.weight > 0]
        total = sum(kind.weight for kind in kinds) or 1.0
        demands = sorted({(kind.gpus, kind.gpu_percent) for kind in kinds if kind.gpus > 0})
        self.cpu_steps = np.unique(np.array([kind.cpu_millicores for kind in kinds], dtype=np.int64))
        shares = np.zeros((len(models), len(self.cpu_steps) + 1, len(demands)))
        for kind in kinds:
            if kind.gpus > 0:
                step = int(np.searchsorted(self.cpu_steps, kind.cpu_millicores)) + 1
                served = [not kind.models or model in kind.models for model in models]
                shares[served, step, demands.index((kind.gpus, kind.gpu_percent))] += kind.weight / total
        shares = shares.cumsum(axis=1)
        gpus = np.array([count for count, _ in demands], dtype=np.int64)
        percent = np.array([each for _, each in demands], dtype=np.int64)
        levels = np.arange(WHOLE_PERCENT + 1)[:, None]
        one, many = np.flatnonzero(gpus == 1), np.flatnonzero(gpus > 1)
        self._one_worth = shares[:, :, one] @ np.where(levels >= percent[one], levels, 0).T
        """Q: shape (models, cpu sizes + 1, 101)."""
        self._many = shares[:, :, many]
        self._many_gpus = gpus[many]
        self._many_fits = (levels >= percent[many]).astype(np.int64)
        self._many_worth = self._many_fits * levels

    def fragmentation(self, state: GpuState) -> Floats:
        """F_n(M) in GPU percent, shape (N,)."""
        step = self._step(state)
        worth = self._worth_of_one(state, step, state.gpu_percent).sum(axis=1)
        fits = self._many_fits[state.gpu_percent].sum(axis=1)
        usable = self._many_worth[state.gpu_percent].sum(axis=1) * (fits >= self._many_gpus)
        worth += (self._many[state.model, step] * usable).sum(axis=1)
        return np.asarray(state.gpu_percent.sum(axis=1) - worth)

    def after_share(self, state: GpuState, percent: int) -> Floats:
        """F of each node after `percent` of each GPU in turn is taken, shape (N, G); infinite where it does not fit."""
        step = self._step(state)
        free, left = state.gpu_percent, np.maximum(state.gpu_percent - percent, 0)
        have, keep = self._worth_of_one(state, step, free), self._worth_of_one(state, step, left)
        worth = have.sum(axis=1)[:, None] - have + keep
        fits, fits_left = self._many_fits[free], self._many_fits[left]
        value, value_left = self._many_worth[free], self._many_worth[left]
        enough = fits.sum(axis=1)[:, None, :] - fits + fits_left >= self._many_gpus
        usable = (value.sum(axis=1)[:, None, :] - value + value_left) * enough
        worth += (usable * self._many[state.model, step][:, None, :]).sum(axis=2)
        after = free.sum(axis=1)[:, None] - percent - worth
        return np.where(free >= percent, after, np.inf)

    def _step(self, state: GpuState) -> npt.NDArray[np.intp]:
        """Number of the workload's cpu sizes that fit each node."""
        return np.searchsorted(self.cpu_steps, state.cpu_millicores, side="right")

    def _worth_of_one(self, state: GpuState, step: npt.NDArray[np.intp], percent: Ints) -> Floats:
        """Amounts that demands of one GPU can use of GPUs with these free percents, shape (N, G)."""
        return np.asarray(self._one_worth[state.model[:, None], step[:, None], percent])


@dataclass(frozen=True, slots=True)
class Gradient:
    """Growth of F for one pod on each node, and the GPUs that cause the smallest growth."""

    growth: Floats
    """Shape (N,): F after minus F before, in GPU percent; infinite where the pod does not fit."""
    gpu: Ints
    """Shape (N,): the GPU for a pod that shares one; -1 where none or several are taken."""


def gradient(workload: WorkloadDistribution, state: GpuState, task: TaskType) -> Gradient:
    """Return the node and GPU on which `task` fragments the cluster least; a pod of several GPUs takes the emptiest."""
    before = workload.fragmentation(state)
    cpu_left = state.cpu_millicores - task.cpu_millicores
    fits_node = cpu_left >= 0
    if task.gpus > 0:
        fits_node = fits_node & ((state.gpu_percent >= task.gpu_percent).sum(axis=1) >= task.gpus)
    growth = np.full(len(before), np.inf)
    gpu = np.full(len(before), -1, dtype=np.int64)
    rows = np.flatnonzero(fits_node)
    left = GpuState(cpu_left[rows], state.gpu_percent[rows], state.model[rows])
    if task.gpus == 1:
        after = workload.after_share(left, task.gpu_percent)
        gpu[rows] = after.argmin(axis=1)
        growth[rows] = after.min(axis=1, initial=np.inf)
    else:
        growth[rows] = workload.fragmentation(without(left, task))
    growth[rows] -= before[rows]
    return Gradient(growth, gpu)


def without(state: GpuState, task: TaskType) -> GpuState:
    """`state` after the GPUs of `task`, the emptiest first, are taken."""
    emptiest = np.argsort(-state.gpu_percent, axis=1, kind="stable")[:, : task.gpus]
    percent = state.gpu_percent.copy()
    np.put_along_axis(percent, emptiest, np.take_along_axis(percent, emptiest, axis=1) - task.gpu_percent, axis=1)
    return GpuState(state.cpu_millicores, percent, state.model)
