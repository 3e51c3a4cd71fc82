"""What a symptom is: one way to lose time, measured for all cgroups at once, and where its blame is found."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from api.plugin import discover
from detector.blame import Floats
from detector.view import View

UNUSUAL_SIGMAS = 2.0
"""Spreads above its usual value from which a signal is unusual."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One symptom in one tick; every array has a row for each cgroup."""

    lost: Floats
    """Seconds lost per second; NaN where it is not measured."""
    evidence: Mapping[str, Floats] = field(default_factory=dict)
    """What a verdict shows besides the rates of the symptom's columns."""
    whole: Floats | None = None
    """What the rows of the blame table sum to, where that is not the loss itself."""
    measured: bool = True
    """False where the loss is estimated from something that was counted; such a verdict has confidence 0."""


@dataclass(frozen=True, slots=True)
class BlameSource:
    """Where the culprits of a symptom are found: a table, else a name, else whoever's activity goes with the loss."""

    table: str = ""
    """Blame table whose rows are seen directly."""
    named: str = ""
    """The one legitimate culprit of the symptom, bracketed."""
    ancestor_columns: tuple[str, ...] = ()
    """With a limit further up: columns of which one is above zero in the nearest ancestor that exceeds it."""
    suspects: str = ""
    """Activity column to correlate with; only for the part that no table explains."""
    published: bool = False
    """The correlation is CPI2's own, over its samples."""
    explained: bool = False
    """The culprits are those of the other symptoms of the same cgroup, as far as these explain the loss."""


class Symptom(ABC):
    """One module of `detector.symptoms`, named by its file.

    `columns` are those of the dense table that `sense` and the blame source read; a verdict shows their rates.
    """

    resource: ClassVar[str]
    cause: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    blame: ClassVar[BlameSource] = BlameSource()
    group: ClassVar[str] = ""
    """Symptoms of one group see the same loss from different sides; only the worst of them counts in a sum."""

    @abstractmethod
    def sense(self, view: View) -> Signal | None:
        """The loss of every cgroup in this tick; None where the host does not measure it."""


def discover_symptoms() -> dict[str, Symptom]:
    """All symptoms by name, in the order of their names."""
    import detector.symptoms as package

    found = discover(package, Symptom, "koord.symptoms")  # type: ignore[type-abstract]
    return {name: found[name]() for name in sorted(found)}


def ratio(part: Floats, whole: Floats) -> Floats:
    """`part / whole`, NaN where the whole is not above zero."""
    return np.asarray(np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0), dtype=np.float64)


def slowed(view: View, cpi: Floats) -> Floats:
    """Part of the time on CPU that the usual cycles per instruction would have saved; NaN where they are not known.

    0 where they are as usual.
    """
    part = np.clip(1.0 - view.expected("cpi") / cpi, 0.0, 1.0)
    unusual = np.where(view.sigmas("cpi") >= UNUSUAL_SIGMAS, part, 0.0)
    return np.where(np.isfinite(part), unusual, np.nan)
