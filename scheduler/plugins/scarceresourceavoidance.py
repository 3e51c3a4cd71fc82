"""ScarceResourceAvoidance: keeps nodes with scarce resources (GPUs, say) for pods that ask for them."""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.cluster_state.columns import Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import MAX_SCORE, Attempt, Handle, Plugin, Scores


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of ScarceResourceAvoidance."""

    resources: list[str] = msgspec.field(default_factory=list)
    """Resources that are scarce."""


@dataclass(frozen=True, slots=True, eq=False)
class Unasked:
    """Scarce resources that a class does not request."""

    asked: NDArray[np.intp]
    """Columns of the resources it asks for."""
    scarce: NDArray[np.intp]
    """Columns of scarce resources it does not."""


class ScarceResourceAvoidance(Plugin[Unasked]):
    """Scores a node by how few of the resources it offers in vain are scarce."""

    name = "ScarceResourceAvoidance"
    rank = 485
    enabled = False

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)

    def prepare(self, info: PodInfo) -> Unasked:
        """Columns of what the class asks for and of the scarce resources it leaves."""
        column = self.handle.snapshot.resource_column
        asked = [column(name) for name, amount in info.requests.items() if amount > 0 and name != "pods"]
        scarce = [column(name) for name in self.config.resources if info.requests.get(name, 0) == 0]
        pods = column("pods")
        return Unasked(np.array([*asked, pods], dtype=np.intp), np.array(scarce, dtype=np.intp))

    def score(self, attempt: Attempt, spec: Unasked, rows: Rows) -> Scores:
        """100 where nothing or nothing scarce is left unasked, less for each scarce resource among the unasked.

        `pods` is no resource that a pod could ask for, so it is not among them.
        """
        offered = attempt.snapshot.allocatable[rows] > 0
        unasked = offered.sum(axis=1) - offered[:, spec.asked].sum(axis=1)
        scarce = offered[:, spec.scarce].sum(axis=1)
        some = (unasked > 0) & (scarce > 0)
        scores: Scores = np.where(some, (unasked - scarce) * MAX_SCORE // np.maximum(unasked, 1), MAX_SCORE)
        return scores
