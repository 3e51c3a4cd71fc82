"""What one run told, live or replayed, as it is kept, joined with others and printed. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from api.cgroup_path import is_within
from api.verdict_text import in_words
from api.verdicts import Verdict, VerdictState
from detector.evaluation.intervals import most_events

DAY_SECONDS = 86_400.0
JOINT_SECONDS = 15.0
"""A jump from one recorded moment to another is no work of any cgroup; what opens so soon after may be its doing."""


_WHAT_BOUNDS_HOLD_FOR = """\
A live part's bound is of the rate about such work; a replay's holds given its recordings
and says nothing of work that they do not hold."""


class Blamed(StrEnum):
    """What a verdict blames most."""

    OWN = "one of its own"
    NONE = "none, or the kernel"
    FOREIGN = "others of the machine"
    """Cgroups that are not the bench's: real waits on a machine that does other work too."""


class Told(msgspec.Struct, frozen=True):
    """One verdict about ordinary work."""

    time: float
    """Seconds since 1970: of its arrival live, of the recorded tick in a replay."""
    rule: str
    blamed: Blamed
    words: str
    after_joint_seconds: float | None = None
    """Replayed time since the series last jumped; None live, and where the recording was judged in its own order."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    kind: str
    """`live` or `replay`; they are never added up."""
    seconds: float
    cgroups: int
    """Of the bench's own."""
    told: tuple[Told, ...]
    busy_cpus: float
    """CPUs that were busy with others' work in the live run."""
    prefix: str
    """Path of the cgroup that held all others."""
    recording: str = ""
    """Directory of the recording, empty for none."""
    span: tuple[float, float] = (0.0, 0.0)
    """Seconds since 1970 between which a live run was measured."""
    recorded_seconds: float = 0.0
    """Length of what a replay was drawn from."""


def told_of(verdict: Verdict, prefix: str, seconds: float, after_joint_seconds: float | None = None) -> Told:
    """A verdict as it is kept."""
    return Told(seconds, verdict.rule, blamed(verdict, prefix), in_words(verdict), after_joint_seconds)


def open_at_the_end(lines: Iterable[Verdict], prefix: str) -> list[Verdict]:
    """Return the last line of each verdict about a cgroup below the prefix that these lines leave open.

    What opened while the work started and is open when the measurement begins hides others of its rule about the same
    cgroup for as long as it stays, so it counts as one that opened then.
    """
    last: dict[tuple[str, str], Verdict] = {}
    for line in lines:
        last.pop((line.victim, line.rule), None)
        if line.state is not VerdictState.CLOSE and is_within(line.victim, prefix):
            last[line.victim, line.rule] = line
    return list(last.values())


def blamed(verdict: Verdict, prefix: str) -> Blamed:
    """Return what a verdict blames most."""
    path = verdict.culprits[0].path if verdict.culprits else ""
    if not path.startswith("/"):
        return Blamed.NONE
    return Blamed.OWN if is_within(path, prefix) else Blamed.FOREIGN


def summary(parts: Sequence[Part]) -> str:
    """Counts by rule and blame and the rates with their bounds: of live parts, and apart from them of replays."""
    lines: list[str] = []
    for kind in ("live", "replay"):
        found = [each for each in parts if each.kind == kind]
        if found:
            lines += [*([""] if lines else []), *_of_kind(kind, found)]
    if any(each.kind == "replay" for each in parts):
        lines += ["", _WHAT_BOUNDS_HOLD_FOR]
    return "\n".join(lines)


def _of_kind(kind: str, parts: Sequence[Part]) -> list[str]:
    seconds = sum(each.seconds for each in parts)
    told = [verdict for part in parts for verdict in part.told]
    cgroups = sorted({each.cgroups for each in parts})
    recorded = {(each.recording, each.span): each.recorded_seconds for each in parts}
    drawn = f", drawn from {sum(recorded.values()) / 3600:.2f} h" if kind == "replay" else ""
    given = "given the recordings" if kind == "replay" else ""
    counted = " or ".join(map(str, cgroups))
    lines = [f"{kind}: {seconds / 3600:.2f} node-hours in {len(parts)} part(s), {counted} cgroups{drawn}"]
    for (rule, culprit), count in sorted(Counter((each.rule, each.blamed) for each in told).items()):
        alike = [each for each in told if (each.rule, each.blamed) == (rule, culprit)]
        lines.append(f"  {rule:<20} blames {culprit:<22} {count:>5}{_origin(kind, alike)}")
    for name, kept in ((f"all but {Blamed.FOREIGN}", (Blamed.OWN, Blamed.NONE)), ("all", tuple(Blamed))):
        lines.append(f"  {name}: {rate(sum(each.blamed in kept for each in told), seconds, given)}")
    worst = max(each.busy_cpus for each in parts)
    mean = sum(each.busy_cpus * each.seconds for each in parts) / seconds if seconds else 0.0
    return [
        *lines,
        f"  CPUs busy with others' work: {mean:.2f}" + (f", worst part {worst:.2f}" if len(parts) > 1 else ""),
    ]


def rate(count: int, seconds: float, given: str = "") -> str:
    """A count as a rate a node-day, with the upper bound of a Poisson rate and what the bound is conditional on."""
    days = seconds / DAY_SECONDS
    if days <= 0:
        return f"{count} verdicts in no time"
    most = most_events(count) / days
    bound = f"at most {most:.2f} (95 %{given and f', {given}'})"
    return f"{count} verdicts in {seconds / 3600:.2f} node-hours: {count / days:.2f} a node-day, {bound}"


def _origin(kind: str, told: Sequence[Told]) -> str:
    """Recorded minutes that replayed verdicts come from: the same minute, drawn again, is no new evidence."""
    if kind != "replay":
        return ""
    minutes = len({int(each.time // 60) for each in told})
    near = sum(each.after_joint_seconds is not None and each.after_joint_seconds <= JOINT_SECONDS for each in told)
    return f"   from {minutes} recorded minutes" + (f", {near} within {JOINT_SECONDS:g} s of a joint" if near else "")
