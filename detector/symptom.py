"""Symptom: one way to lose time, measured for every cgroup at once, and where its blame is found.

Writing a symptom
-----------------

A symptom is two files: one module in `detector/symptoms/` that defines one subclass of `Symptom`, and its test,
`tests/detector/symptoms/test_<name>.py`. The name of the file is the name of the symptom: rules, evidence
(`<name>.lost`) and recordings use it. No list names symptoms; `koord-detector symptoms` prints the table of
`docs/verdicts.md` anew. A distribution outside this project names its class under the entry point group
`koord.symptoms`: `page_refault = "its_package.page_refault:PageRefault"`. A complete one:

    from typing import ClassVar

    from detector.rules import Rule
    from detector.symptom import BlameSource, Signal, Symptom
    from detector.view import View

    class PageRefault(Symptom):
        "Pages read again soon after reclaim took them. An estimate from a count, so never a confident one."

        resource: ClassVar[str] = "memory"
        cause: ClassVar[str] = "refault"
        columns: ClassVar[tuple[str, ...]] = ("memstat.refaults", "memory.pressure_pages")
        blame: ClassVar[BlameSource] = BlameSource(suspects="memory.pressure_pages")
        default_rule: ClassVar[Rule | None] = Rule(threshold=0.2)

        def sense(self, view: View) -> Signal | None:
            "A tenth of a millisecond for each page."
            pages = view.total("memstat.refaults")
            return None if pages is None else Signal(pages * 1e-4, measured=False)

*The unit of work is a tick, not a cgroup.* `sense` is called once a tick and answers one array with a row for each
cgroup of the newest frame, in the order of `view.cgroups`. It is arithmetic on the view: no clock, no I/O, nothing
kept between ticks, because a replay must say again what the node said and only the engine's state is in a
checkpoint.

*The currency is seconds lost per second.* `view.rate(column)` gives growth per second in base units: nanoseconds
and microseconds become seconds per second, counts and bytes become counts and bytes per second; gauges are as the
newest frame has them. What sums over threads or requests may exceed 1. NaN says "not measured for this cgroup", 0
says "measured, nothing lost", and None in place of a `Signal` says that this host does not measure the symptom at
all.

*Columns are declared.* `columns` lists every column of `api/metrics.py` that `sense` and the blame source read,
also `suspects`, `used` and `ancestor_columns` of `BlameSource`. The view has no others (`rate` raises KeyError for a
column that is not measured; `has` and `total` ask first), the recorder keeps exactly these, and a verdict shows their
rates as evidence.

*The view* also offers: `total`, a sum of those columns that are measured; `expected` and `sigmas`, the usual value
of a signal of `detector/judging/signals.py` for this workload at this load and how many spreads above it the tick
is (NaN while a baseline warms up; `judgements` is empty without baselines); `blame`, a blame table without blame on
the victim's own subtree; `by_others`, a loss without the part that the victim's own subtree is to blame for;
`tree`, parents and leaves, for columns that a parent sums over its children; `once`, what several symptoms work out
of the same view.

*Blame.* The first of these that a `BlameSource` sets names the culprits: `named`, one bracketed name of
`api/verdicts.py` (`OWN_QUOTA`, `KERNEL`, ...); `ancestor_columns`, the nearest ancestor that limits, and with `used`
those that used up its limit; `explained`,
the culprits of the cgroup's other symptoms; `table`, the kernel's own account of who held the resource, which is
`direct`, and for what no table explains `suspects`, a column whose activity is correlated with the loss. An empty
`BlameSource` names no culprit.

*A default rule* makes a symptom open verdicts without settings. Its name is the symptom's with dashes unless it
gives one. Default rules over several symptoms are the `COMPOSITIONS` of `detector/rules.py`. A symptom in neither
is measured for rules of the settings.

*Elsewhere* an unknown symptom needs nothing: verdicts read "to <resource> <cause>" unless `api/verdict_text.py` has
words for it, the response tries the steps of its resource, and recordings carry its name. A recording replays with
the symptoms that the node had; a rule on a symptom that is not installed is refused by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from api.verdicts import How
from detector.arrays import Floats
from detector.rules import Rule
from detector.view import View

UNUSUAL_SIGMAS = 2.0
"""Spreads above its usual value from which a signal is unusual; the spread is that of the middle half of the ticks and
says nothing of a heavy tail."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One symptom in one tick; every array has a row for each cgroup."""

    lost: Floats
    """Seconds lost per second; NaN where it is not measured."""
    evidence: Mapping[str, Floats] = field(default_factory=dict)
    """Numbers that a verdict shows besides the rates of the symptom's columns."""
    whole: Floats | None = None
    """The whole that a row of the blame table is a share of; None: the loss itself. Needed where the loss is only a
    part of the time that the table charges, as with SMT, which charges exposure."""
    claim: Callable[[NDArray[np.intp]], Floats] | None = None
    """For some rows, the seconds per second that they may hold against others, as far as they lost so much: what fair
    division costs is told, and opens no verdict. None: all that is lost."""
    is_preliminary: bool = False
    """True while the agent has yet to read what a claim goes by: no verdict opens by a single tick."""
    measured: bool = True
    """False for a loss that is estimated from a count: its verdicts have confidence 0, open only after the ticks of
    their rule, and an anomaly model does not ease their threshold."""


@dataclass(frozen=True, slots=True)
class BlameSource:
    """Source of a symptom's culprits: a name, ancestors, other symptoms, or a table and correlation for the rest."""

    table: str = ""
    """Blame table, such as `cpu.blame`: victims, culprits and the time that the kernel side saw them hold."""
    named: str = ""
    """The one legitimate culprit of the symptom, in brackets."""
    ancestor_columns: tuple[str, ...] = ()
    """For a limit further up: it is that of the nearest ancestor in which one of these columns is above zero and
    finite: an infinite limit is none."""
    used: str = ""
    """With `ancestor_columns`: what the limit is on. Other cgroups below the ancestor are culprits by their shares of
    it; the ancestor keeps the victim's own. Without it, or where nothing is used, the ancestor is the only culprit."""
    full_ratio: float = 0.0
    """With `used`, where the columns are limits in its unit: the part of a limit from which it may be the one that is
    run into. Of several ancestors that limit it is then the nearest whose use is so high, else the nearest."""
    used_how: How = How.DIRECT
    """With `used`: correlated where a big share does not show that its owner caused the loss, as of memory held, which
    is read in turn and may have been there for long."""
    takers: str = ""
    """Column of what is taken from a store that all share: other cgroups are culprits by their shares of what was
    taken in the tick. Correlated, for it does not show from which cgroup it was taken."""
    least_taken: float = 0.0
    """With `takers`: what others must have taken in a second; less is not their doing."""
    takers_below: bool = False
    """True where that column of a cgroup holds those below it too: only leaves are culprits then."""
    suspects: str = ""
    """Activity column to correlate with the loss, for the part that no table explains."""
    published: bool = False
    """Correlate as CPI2 does, over its samples."""
    explained: bool = False
    """Take the culprits of the cgroup's other symptoms, as far as these explain the loss."""


class Symptom(ABC):
    """Base of all symptoms (see the module docstring). Attributes hold for all hosts; `sense` is called once a tick."""

    resource: ClassVar[str]
    """The resource that verdicts name: cpu, memory, blockio, network, cache, service or pressure; others are shown
    and reported, but no response and no scheduler knows them."""
    cause: ClassVar[str]
    """The cause that verdicts name; with the resource unique among symptoms, but for two that estimate one loss."""
    columns: ClassVar[tuple[str, ...]]
    """Columns of the dense table that `sense` and the blame source read; a verdict shows their rates."""
    blame: ClassVar[BlameSource] = BlameSource()
    usual: ClassVar[str] = ""
    """Signal of `detector/judging/signals.py` that is this loss itself: what one ordinary tick in a thousand exceeds
    raises the thresholds of rules on it, to twice at most."""
    group: ClassVar[str] = ""
    """Symptoms of one group see the same loss from different sides; only the worst of them counts in a sum."""
    default_rule: ClassVar[Rule | None] = None
    """The rule that judges by this symptom alone without settings; `any_of` and an empty name are filled in."""

    @abstractmethod
    def sense(self, view: View) -> Signal | None:
        """Return the loss of every cgroup in this tick; None where the host does not measure it."""


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return `part / whole`, NaN where the whole is not above zero."""
    return np.asarray(np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0), dtype=np.float64)


def slowed(view: View, cpi: Floats) -> Floats:
    """Return the part of the time on CPU that the usual cycles per instruction would have saved.

    0 where they are as usual, NaN where the usual ones are not known. Unusual is what lies above the spread and above
    all but a hundredth of the ordinary ticks, so rules on it want `detector.rules.UNUSUAL_TICKS`.
    """
    part = np.clip(1.0 - view.expected("cpi") / cpi, 0.0, 1.0)
    unusual = (view.sigmas("cpi") >= UNUSUAL_SIGMAS) & (cpi > view.upper("cpi"))
    return np.where(np.isfinite(part), np.where(unusual, part, 0.0), np.nan)
