"""What a node would leave unused if it were filled up: pods of the workload's mix, tried one after another.

The gradient asks which single pod of the mix still fits. That many of them together run out of cpu long before they run
out of GPUs, or that their shares of a GPU leave a rest that few pods ask for, shows only when a node is filled. Here a
node is filled with `SEQUENCES` random sequences of `LENGTH` pods of the mix, the same for every node and state, and
judged by the GPUs that stay free on average. A pod goes where this grows least. The sequences say nothing about the
order in which pods will come.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from scheduler.devices.fragmentation import Floats, GpuState, Gradient, TaskType, without

SEQUENCES = 16
LENGTH = 48
"""Pods of a sequence; more than a node of eight GPUs takes of most mixes, for those that do not fit are passed over."""
MAX_STATES = 65536
"""States of a node whose answers are kept."""


class Filling:
    """The sequences, compiled for the GPU models of a cluster, and what they left of the states met so far."""

    def __init__(self, types: Iterable[TaskType], models: Sequence[str] = ("",)) -> None:
        kinds = [kind for kind in types if kind.gpus > 0 and kind.weight > 0]
        drawn = _drawn(np.array([kind.weight for kind in kinds], dtype=np.float64))
        cpu = np.array([kind.cpu_millicores for kind in kinds], dtype=np.int64)
        self._cpu, self._length = cpu[drawn], drawn.shape[1]
        self._gpus = np.array([kind.gpus for kind in kinds], dtype=np.int64)[drawn]
        self._percent = np.array([kind.gpu_percent for kind in kinds], dtype=np.int64)[drawn]
        served = [[not kind.models or model in kind.models for kind in kinds] for model in models]
        self._served = np.array(served, dtype=bool).reshape(len(models), len(kinds))[:, drawn]
        """bool[models, sequences, length]: nodes of the model may take the pod."""
        self._known: dict[bytes, float] = {}

    def unused(self, state: GpuState) -> Floats:
        """GPU percent that stays free of each node, the mean over the sequences, shape (N,)."""
        percent = -np.sort(-state.gpu_percent, axis=1)
        packed = np.column_stack((state.cpu_millicores, state.model, percent)).astype(np.int32)
        keys = [row.tobytes() for row in packed]
        first = {key: index for index, key in reversed(list(enumerate(keys))) if key not in self._known}
        if first:
            if len(self._known) + len(first) > MAX_STATES:
                self._known.clear()
                first = {key: index for index, key in enumerate(keys)}
            rows = list(first.values())
            left = self._filled(GpuState(state.cpu_millicores[rows], percent[rows], state.model[rows]))
            self._known |= zip(first, left.tolist(), strict=True)
        return np.array([self._known[key] for key in keys], dtype=np.float64)

    def gradient(self, state: GpuState, task: TaskType) -> Gradient:
        """Growth of what stays unused by one pod on each node, and the GPU of the smallest growth."""
        nodes, gpus = state.gpu_percent.shape
        growth, gpu = np.full(nodes, np.inf), np.full(nodes, -1, dtype=np.int64)
        enough = (state.gpu_percent >= task.gpu_percent).sum(axis=1) >= task.gpus
        cpu = state.cpu_millicores - task.cpu_millicores
        rows = np.flatnonzero((cpu >= 0) & (enough if task.gpus else True))
        left = GpuState(cpu[rows], state.gpu_percent[rows], state.model[rows])
        if task.gpus == 1:
            at, which = np.nonzero(left.gpu_percent >= task.gpu_percent)
            percent = left.gpu_percent[at]
            percent[np.arange(at.size), which] -= task.gpu_percent
            after = np.full((rows.size, gpus), np.inf)
            after[at, which] = self.unused(GpuState(left.cpu_millicores[at], percent, left.model[at]))
            gpu[rows], growth[rows] = after.argmin(axis=1), after.min(axis=1, initial=np.inf)
        else:
            growth[rows] = self.unused(without(left, task) if task.gpus else left)
        growth[rows] -= self.unused(GpuState(state.cpu_millicores[rows], left.gpu_percent, left.model))
        return Gradient(growth, gpu)

    def _filled(self, state: GpuState) -> Floats:
        """Free GPU percent at the end: a pod of one GPU takes the fullest that serves, one of several the first."""
        sequences = self._cpu.shape[0]
        cpu = np.repeat(state.cpu_millicores[:, None], sequences, axis=1)
        free = np.repeat(state.gpu_percent[:, None, :], sequences, axis=1).astype(np.int16)
        served, places = self._served[state.model], np.arange(state.gpu_percent.shape[1])
        for step in range(self._length):
            asked_cpu, asked = self._cpu[:, step], self._percent[:, step].astype(np.int16)[:, None]
            gpus = self._gpus[:, step]
            serves = free >= asked
            serves &= ((asked_cpu <= cpu) & served[:, :, step])[:, :, None]
            fullest = np.where(serves, free, _NONE).argmin(axis=2)
            taken = serves & (places == fullest[:, :, None])
            several = np.flatnonzero(gpus > 1)
            if several.size:
                counted = serves[:, several].cumsum(axis=2)
                enough = counted[:, :, -1:] >= gpus[several, None]
                taken[:, several] = serves[:, several] & (counted <= gpus[several, None]) & enough
            free -= taken * asked
            cpu -= taken.any(axis=2) * asked_cpu
        return np.asarray(free.sum(axis=2, dtype=np.int64).mean(axis=1))


_NONE = np.int16(32767)
"""More than any GPU has free."""


def _drawn(weights: Floats) -> npt.NDArray[np.intp]:
    """Kinds in random sequences, each as often as its weight says; no sequence where there are no kinds."""
    if not weights.size:
        return np.zeros((1, 0), dtype=np.intp)
    count = SEQUENCES * LENGTH
    shares = weights.cumsum() / weights.sum()
    kinds = np.searchsorted(shares, (np.arange(count) + 0.5) / count).clip(max=weights.size - 1)
    return np.random.default_rng(0).permutation(kinds).reshape(SEQUENCES, LENGTH)
