"""Rows of profiles from frames: one for each container with a workload's name, with the features of the models.
Pure."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo
from api.lake import AMOUNTS, OOM_KILLS
from api.window import Window
from detector.judging.features import features
from detector.models.features import FEATURE_COLUMNS
from detector.view import View

AmountsOf = Callable[[CgroupInfo], tuple[float, ...]]
"""Requests and limits of a container in the order of AMOUNTS, NaN where there is none."""
NO_AMOUNTS = (float("nan"),) * len(AMOUNTS)


def no_amounts(_: CgroupInfo) -> tuple[float, ...]:
    """Return no amounts: where no source tells of pods."""
    return NO_AMOUNTS


class ProfileSegment(msgspec.Struct, frozen=True):
    """Table to write; floats are packed little-endian, in the order of the rows."""

    texts: dict[str, list[str]]
    flags: dict[str, list[bool]]
    floats: dict[str, bytes]

    def __len__(self) -> int:
        return next((len(column) for column in self.texts.values()), 0)

    def column(self, name: str) -> NDArray[np.float64]:
        """One column of numbers."""
        return np.frombuffer(self.floats[name], dtype="<f8")


_TEXTS = ("workload", "container", "namespace", "node_type", "path", "qos")


class Rows:
    """Gathers rows until `take`; workloads are compared within a `node_type`."""

    def __init__(self, node_type: str, span_seconds: float, amounts_of: AmountsOf = no_amounts) -> None:
        self._amounts_of = amounts_of
        self._node_type = node_type
        self._span_seconds = span_seconds
        self._texts: dict[str, list[str]] = {name: [] for name in _TEXTS}
        self._harmed: list[bool] = []
        self._times: list[NDArray[np.float64]] = []
        self._parts: list[dict[str, NDArray[np.float64]]] = []

    def __len__(self) -> int:
        return len(self._harmed)

    def add(self, window: Window, victims: Iterable[str], oom_kills: Sequence[tuple[CgroupInfo, int]] = ()) -> int:
        """Add the newest tick of a window, as the judge reads it; returns the number of rows.

        `victims` are the paths with an open verdict: their rows are marked `interference` and never taken for normal.
        `oom_kills` are those since the rows before; a container that is gone has a row with nothing else in it.
        """
        view = View(window, FEATURE_COLUMNS, span_seconds=self._span_seconds)
        rows = [row for row, info in enumerate(view.cgroups) if info.workload]
        kills = {info.id: count for info, count in oom_kills}
        living = {info.id for info in view.cgroups}
        infos = [view.cgroups[row] for row in rows]
        infos += [info for info, _ in oom_kills if info.workload and info.id not in living]
        if not infos:
            return 0
        names, matrix = features(view)
        harmed = frozenset(victims)
        for info in infos:
            values = (info.workload, info.container, info.namespace, self._node_type, info.path, info.qos)
            for column, value in zip(self._texts.values(), values, strict=True):
                column.append(value)
            self._harmed.append(info.path in harmed)
        self._times.append(np.full(len(infos), window.last.wall_ns / 1e9))
        measured = np.full((len(infos), len(names)), np.nan)
        measured[: len(rows)] = matrix[rows]
        amounts = np.array([self._amounts_of(info) for info in infos]).T
        part = {name: measured[:, place] for place, name in enumerate(names)}
        part |= dict(zip(AMOUNTS, amounts, strict=True))
        part[OOM_KILLS] = np.array([float(kills.get(info.id, 0)) for info in infos])
        self._parts.append(part)
        return len(infos)

    def take(self) -> ProfileSegment:
        """Return the rows gathered so far and forget them; a feature unknown to some rows is NaN there."""
        names = list(dict.fromkeys(name for part in self._parts for name in part))
        lengths = [len(times) for times in self._times]
        floats = {
            name: np.concatenate(
                [part.get(name, np.full(length, np.nan)) for part, length in zip(self._parts, lengths, strict=True)]
            )
            for name in names
        }
        segment = ProfileSegment(
            texts=self._texts,
            flags={"interference": self._harmed},
            floats={name: column.astype("<f8").tobytes() for name, column in (self._timed() | floats).items()},
        )
        self._texts = {name: [] for name in self._texts}
        self._harmed, self._times, self._parts = [], [], []
        return segment

    def _timed(self) -> dict[str, NDArray[np.float64]]:
        return {"time": np.concatenate(self._times) if self._times else np.empty(0)}
