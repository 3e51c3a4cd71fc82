"""Waits for a CPU that another cgroup or a kernel thread held meanwhile."""

from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import lineage
from api.qos import QoSClass
from detector.arrays import Floats
from detector.entitlement import Shares
from detector.rules import NOT_BEST_EFFORT, Rule
from detector.symptom import BlameSource, Signal, Symptom, ratio
from detector.view import View

OTHERS = ("cpu.wait_neighbour_ns", "cpu.wait_kernel_ns")
EXPLAINED = (*OTHERS, "cpu.wait_self_ns", "cpu.wait_idle_ns")
"""Waits of which the probe knows who had the CPU."""
USED, HELD, WEIGHT, REQUEST = "cpu.oncpu_ns", "cpu.held_ns", "cpu.weight", "cpu.request_cores"
_BEST_EFFORT = frozenset({QoSClass.BE})


class CpuContention(Symptom):
    """Own threads and quotas are symptoms of their own, and a subtree of one's own is no neighbour. What kernel threads
    did for packets and block IO of one's own is no loss to others.

    A wait of unknown cause is no loss to others, for nothing shows it; but the same part of it may be as of the wait
    that is explained, so culprits share in the sum of both, and what is unknown lowers the confidence.

    What is waited beyond the own share of the CPUs opens no verdict, where the weights are known.
    """

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "contention"
    columns: ClassVar[tuple[str, ...]] = (
        *EXPLAINED,
        "cpu.wait_unknown_ns",
        "net.softirq_deferred_ns",
        "blockio.ios",
        "blockio.read_bytes",
        "blockio.write_bytes",
        USED,
        HELD,
        "cpu.wait_count",
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
        known = view.has(USED, WEIGHT)
        claim = partial(_below_share, view) if known and view.cpus else None
        starts = view.cpus > 0 and not known
        explained = view.total(*EXPLAINED)
        if explained is None or not view.has("cpu.wait_unknown_ns"):
            return Signal(seen, claim=claim, is_preliminary=starts)
        unknown = np.nan_to_num(ratio(view.rate("cpu.wait_unknown_ns"), explained))
        return Signal(seen, whole=seen * (1.0 + unknown), claim=claim, is_preliminary=starts)


def _below_share(view: View, rows: NDArray[np.intp]) -> Floats:
    """The cores that these cgroups use less than they are entitled to (`detector/entitlement.py`); infinite where a
    weight on the way to them is not known.

    A cgroup wants what it uses and what others keep it from: waits under a quota, and for its own threads on the CPUs
    it is bound to, leave CPU time to others. What it uses is the time for which it holds CPUs: what a hypervisor
    steals of that, and interrupts take, no neighbour has.
    """
    used, weights = np.nan_to_num(view.rate(HELD if view.has(HELD) else USED)), view.rate(WEIGHT)
    requests = view.rate(REQUEST) if view.has(REQUEST) else np.full(len(used), np.nan)
    tree, waited = view.tree, view.total(*OTHERS)
    shares = Shares(
        view.cgroups,
        tree.subtrees,
        used if waited is None else used + np.nan_to_num(waited),
        weights,
        cpus=view.cpus,
        is_best_effort=lambda path: tree.classes.within(path) == _BEST_EFFORT,
    )
    totals = tree.subtrees.sums(used, np.arange(len(used), dtype=np.intp))

    def claim(row: int) -> float:
        path = view.cgroups[row].path
        above = [each for each in map(tree.row_of, lineage(path)) if each is not None]
        if np.isnan(weights[above]).any():
            return np.inf
        share = shares.of(path, yields=tree.classes.of(path) is not QoSClass.BE)
        below_request = np.nan_to_num(requests[above] - totals[above])
        return float(max(share - totals[row], below_request.max(), 0.0))

    return np.array([claim(row) for row in rows.tolist()], dtype=np.float64)
