"""Stalls on IO that no disk of this node explains: a network or user file system, a device that holds IO back."""

from typing import ClassVar

import numpy as np

from detector.arrays import Floats
from detector.rules import Rule
from detector.symptom import Signal, Symptom
from detector.view import View

SEEN = (
    "blockio.queue_ns",
    "blockio.device_ns",
    "blockio.throttle_ns",
    "blockio.excess_ns",
    "blockio.stalled_ns",
)
"""Time of block IO, that of IO under way included."""
WAITED = ("cpu.wait_self_ns", "cpu.wait_neighbour_ns", "cpu.wait_kernel_ns")
LEAST_LEFT = 0.1
"""Seconds per second; less is not looked into."""


class UnexplainedIo(Symptom):
    """Pressure stall information less what the blockio probe sees. Only where both measure; names no culprit.

    Only the cgroup's own block IO explains its stalls, and that of its workload: a second of IO by tasks in the root
    cgroup is none in which this one waited. Pressure of a parent is its children's, so only leaves are judged.

    Replicas map the same files. A page that one of them reads, all wait for; and who holds a page's lock while it waits
    for a CPU lets the others wait, one after the other (`folio_wait_bit_common` counts as IO, mm/filemap.c).
    """

    resource: ClassVar[str] = "pressure"
    cause: ClassVar[str] = "io"
    columns: ClassVar[tuple[str, ...]] = ("pressure.io_some_us", *SEEN, *WAITED)
    # A client of a network file system waits for much of the time, so only nearly all of it is told. What one tick
    # lacks of one measure, the next has too much, so that three in a row are needed.
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.8, ticks=3, of_ticks=3)

    def sense(self, view: View) -> Signal | None:
        """Seconds in which some thread stalled, less block IO; a remainder, so never a confident one."""
        seen = view.total(*SEEN)
        if seen is None or not view.has("pressure.io_some_us"):
            return None
        own = np.nan_to_num(seen)
        left = np.maximum(np.minimum(view.rate("pressure.io_some_us"), 1.0) - own, 0.0)
        left = np.where(view.tree.leaves, left, np.nan)
        if (left > LEAST_LEFT).any():
            left = np.maximum(left - _by_replicas(view, own), 0.0)
        return Signal(left, measured=False)


def _by_replicas(view: View, own: Floats) -> Floats:
    """What the other leaves of the same workload explain of a leaf's stalls, in seconds per second: all of their block
    IO, up to the whole second, and the mean of their waits for a CPU."""
    explained = np.zeros(len(own))
    leaves = np.flatnonzero(view.tree.leaves)
    names = [view.cgroups[row].workload for row in leaves.tolist()]
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    group = np.array([number[name] for name in names], dtype=np.intp)
    named = np.array([bool(name) for name in names], dtype=np.bool_)
    waited = view.total(*WAITED)
    waits = np.zeros(len(leaves)) if waited is None else np.minimum(np.nan_to_num(waited[leaves]), 1.0)
    others = np.maximum(np.bincount(group)[group] - 1, 1)
    read = np.bincount(group, own[leaves])[group] - own[leaves]
    queued = (np.bincount(group, waits)[group] - waits) / others
    explained[leaves] = np.where(named, np.minimum(read, 1.0) + queued, 0.0)
    return explained
