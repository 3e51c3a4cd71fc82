"""Plain words for notable moments: who loses time, to what, to whom. Pure: a window in, lines out."""

from collections.abc import Iterator

import numpy as np

from api.frame import KERNEL_ID, OTHER_ID
from api.loss import LOSS_CAUSES, lost_ns, total_lost_ns
from api.window import Window
from koordlet.snapshot import KERNEL_PATH, OTHER_PATH, PathOf

_SHARE = 0.05


class NotableLosses:
    """Says when a cgroup starts to lose notable time, when what it loses doubles or halves, and when it stops."""

    def __init__(self, threshold_seconds_per_second: float) -> None:
        self._threshold = threshold_seconds_per_second
        self._said: dict[str, float] = {}

    def lines(self, window: Window, path_of: PathOf) -> Iterator[str]:
        """Lines for the newest window (two frames suffice)."""
        delta = window.delta()
        ledger = lost_ns(delta)
        total = total_lost_ns(ledger) / 1e9 / delta.seconds
        alive = set()
        for row in np.argsort(-total, kind="stable").tolist() if len(total) else ():
            info, rate = window.cgroups[row], float(total[row])
            alive.add(info.path)
            said = self._said.get(info.path)
            if rate < self._threshold / 2 and said is not None:
                del self._said[info.path]
                yield f"{info.path} no longer loses notable time"
            elif rate >= self._threshold and (said is None or rate > 2 * said or rate < said / 2):
                self._said[info.path] = rate
                causes = {name: float(column[row]) / 1e9 / delta.seconds for name, column in ledger.items()}
                yield f"{info.path} loses {rate:.2f} s/s: {describe(causes)}{_culprits(window, info.id, path_of)}"
        for path in [path for path in self._said if path not in alive]:
            del self._said[path]


def describe(causes: dict[str, float]) -> str:
    """The causes that matter, biggest first."""
    whole = sum(causes.values())
    order = {cause.name: position for position, cause in enumerate(LOSS_CAUSES)}
    ranked = sorted(causes.items(), key=lambda item: (-item[1], order[item[0]]))
    return ", ".join(f"{name} {value:.2f}" for name, value in ranked if value >= _SHARE * whole)


def _culprits(window: Window, victim: int, path_of: PathOf, most: int = 3) -> str:
    if "cpu.blame" not in window.last.tables:
        return ""
    delta = window.delta("cpu.blame")
    mine = np.flatnonzero(delta.table.ids == victim)
    amounts = delta.table.columns["cpu.blame_ns"].astype(np.float64) / 1e9 / delta.seconds
    ranked = sorted(mine.tolist(), key=lambda row: -amounts[row])[:most]
    named = [
        f"{name_of(int(delta.table.keys['culprit'][row]), path_of)} {amounts[row]:.2f}"
        for row in ranked
        if amounts[row] >= 0.01
    ]
    return f"; CPU held by {', '.join(named)}" if named else ""


def name_of(identity: int, path_of: PathOf) -> str:
    """A culprit in words."""
    if identity == KERNEL_ID:
        return KERNEL_PATH
    if identity == OTHER_ID:
        return OTHER_PATH
    return path_of(identity) or "[gone]"
