"""Waits for a CPU that the cgroup's own other threads held: more threads than CPUs."""

from typing import ClassVar

import numpy as np

from api.qos import QoSClass
from api.verdicts import OWN_THREADS
from detector.rules import Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class OwnThreads(Symptom):
    """Self-inflicted, and reported because it names the culprit. The root's tasks are unrelated, so it is not
    judged."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "own_threads"
    columns: ClassVar[tuple[str, ...]] = ("cpu.wait_self_ns", "cpu.oncpu_ns")
    blame: ClassVar[BlameSource] = BlameSource(named=OWN_THREADS)
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.5, qos_thresholds={QoSClass.BE: 2.0})

    def sense(self, view: View) -> Signal | None:
        """The cgroup's own part of the wait."""
        if not view.has("cpu.wait_self_ns"):
            return None
        lost, root = view.rate("cpu.wait_self_ns"), view.tree.row_of("/")
        if root is not None:
            lost = lost.copy()
            lost[root] = np.nan
        return Signal(lost)
