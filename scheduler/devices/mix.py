"""The workload's mix of pods, configured or learned from arrivals, compiled for the GPU models of the cluster."""

from collections import Counter
from collections.abc import Sequence

from scheduler.devices.fragmentation import TaskType, WorkloadDistribution
from scheduler.devices.lookahead import Filling

RELEARN_GROWTH = 1.25
"""The learned mix is compiled again when this many times the pods were seen."""


class WorkloadMix:
    """The compiled `workload`; `refresh` takes up what was learned and says whether results have changed."""

    def __init__(self, configured: Sequence[TaskType]) -> None:
        self._configured = tuple(configured)
        self._seen: Counter[tuple[int, int, int]] = Counter()
        self._compiled_at = 0
        self._models = [""]
        self.workload = WorkloadDistribution(configured, self._models)
        self._filling: Filling | None = None

    @property
    def learns(self) -> bool:
        """True when no mix was configured."""
        return not self._configured

    @property
    def filling(self) -> Filling:
        """Sequences of pods of the mix."""
        if self._filling is None:
            self._filling = Filling(self._types(), self._models)
        return self._filling

    def see(self, task: TaskType) -> None:
        """Count one arriving pod."""
        self._seen[task.cpu_millicores, task.gpus, task.gpu_percent] += 1

    def model(self, name: str) -> int:
        """Index of a GPU model among those the workload is compiled for; a model met first is compiled in."""
        if name not in self._models:
            self._models.append(name)
            self._compile()
        return self._models.index(name)

    def refresh(self) -> bool:
        """Compile the learned mix again when enough pods were seen since; True when it was."""
        seen = self._seen.total()
        if not self.learns or seen <= self._compiled_at * RELEARN_GROWTH:
            return False
        self._compiled_at = seen
        self._compile()
        return True

    def _compile(self) -> None:
        self.workload = WorkloadDistribution(self._types(), self._models)
        self._filling = None

    def _types(self) -> Sequence[TaskType]:
        return self._configured or [TaskType(*task, weight) for task, weight in self._seen.items()]
