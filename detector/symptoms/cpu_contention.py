"""Waits for a CPU that another cgroup or a kernel thread held meanwhile."""

from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from api.qos import QoSClass
from detector.arrays import Floats
from detector.entitlement import Shares
from detector.rules import NOT_BEST_EFFORT, Rule
from detector.symptom import BlameSource, Signal, Symptom, ratio
from detector.view import View

OTHERS = ("cpu.wait_neighbour_ns", "cpu.wait_kernel_ns")
EXPLAINED = (*OTHERS, "cpu.wait_self_ns", "cpu.wait_idle_ns")
"""Waits of which the probe knows who had the CPU."""
USED, WAITED, WEIGHT, REQUEST = "cpu.oncpu_ns", "cpu.wait_ns", "cpu.weight", "cpu.request_cores"
_BEST_EFFORT = frozenset({QoSClass.BE})


class CpuContention(Symptom):
    """Own threads and quotas are symptoms of their own, and a subtree of one's own is no neighbour.

    A wait of unknown cause is no loss to others, for nothing shows it; but the same part of it may be as of the wait
    that is explained, so culprits share in the sum of both, and what is unknown lowers the confidence.

    What is waited beyond the own share of the CPUs opens no verdict, where the weights are known.
    """

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "contention"
    columns: ClassVar[tuple[str, ...]] = (
        *EXPLAINED,
        "cpu.wait_unknown_ns",
        USED,
        "cpu.wait_count",
        WAITED,
        WEIGHT,
        REQUEST,
    )
    blame: ClassVar[BlameSource] = BlameSource(table="cpu.blame")
    default_rule: ClassVar[Rule | None] = Rule(selector=NOT_BEST_EFFORT, progress_ratio=0.02, least_ratio=0.4)
    usual: ClassVar[str] = "cpu_contention"

    def sense(self, view: View) -> Signal | None:
        """Neighbours' and the kernel's part of the wait."""
        seen = view.cpu_contention
        if seen is None:
            return None
        claim = partial(_below_share, view) if view.has(USED, WAITED, WEIGHT) and view.cpus else None
        explained = view.total(*EXPLAINED)
        if explained is None or not view.has("cpu.wait_unknown_ns"):
            return Signal(seen, claim=claim)
        unknown = np.nan_to_num(ratio(view.rate("cpu.wait_unknown_ns"), explained))
        return Signal(seen, whole=seen * (1.0 + unknown), claim=claim)


def _below_share(view: View, rows: NDArray[np.intp]) -> Floats:
    """The cores that these cgroups use less than they are entitled to (`detector/entitlement.py`)."""
    used, requests = view.rate(USED), view.rate(REQUEST) if view.has(REQUEST) else None
    tree, wanted = view.tree, np.nan_to_num(used) + np.nan_to_num(view.rate(WAITED))
    shares = Shares(
        view.cgroups,
        tree.subtrees,
        wanted,
        view.rate(WEIGHT),
        cpus=view.cpus,
        is_best_effort=lambda path: tree.classes.within(path) == _BEST_EFFORT,
    )
    entitled = np.array([_entitled(view, shares, row) for row in rows.tolist()])
    if requests is not None:
        entitled = np.fmax(entitled, requests[rows])
    return np.asarray(np.maximum(entitled - tree.subtrees.sums(used, rows), 0.0), dtype=np.float64)


def _entitled(view: View, shares: Shares, row: int) -> float:
    path = view.cgroups[row].path
    return shares.of(path, yields=view.tree.classes.of(path) is not QoSClass.BE)
