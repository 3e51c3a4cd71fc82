"""Story: verdicts, diagnoses and losses of one cgroup around a time of a recording, by judging it again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from api.frame import CgroupInfo, Frame
from api.loss import lost_ns
from api.stacks import StackEvidence
from api.verdicts import Verdict
from api.window import Window
from detector.explain.times import format_date_time, format_time
from detector.explain.victims import listing, matching
from detector.judging.diagnosis import RuleDiagnosis
from detector.recording.files import RecordedSegment, segments
from detector.recording.format import Header
from detector.recording.replay import replay

_GAP_NS = 5 * 10**9
"""A time further than this from any frame was not recorded."""


def _ignore(_text: str) -> None:
    """Drop a warning."""


class NotRecorded(ValueError):
    """The time or the cgroup is not in the recording; the message lists those that are."""


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """One segment with frames, and when its first one was taken."""

    path: Path
    header: Header
    first_ns: int


@dataclass(frozen=True, slots=True)
class StoryTick:
    """One tick of the cgroup."""

    wall_ns: int
    causes: Mapping[str, float]
    """Lost seconds per second by cause of the loss ledger."""
    diagnoses: tuple[RuleDiagnosis, ...]
    """Of every rule; empty where the cgroup was not there."""
    verdicts: tuple[Verdict, ...]
    """Verdict lines about it in this tick."""


@dataclass(slots=True)
class Story:
    """One cgroup around one time."""

    victim: CgroupInfo
    others: tuple[CgroupInfo, ...]
    """Further cgroups that match; they lost less."""
    at_ns: int
    first_ns: int
    """When the recording began."""
    header: Header
    ticks: list[StoryTick] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Name by path of every cgroup seen."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Why probes and collectors measured nothing, by name."""
    stacks: tuple[StackEvidence, ...] = ()
    """Stacks of its verdicts around the time."""

    @property
    def now(self) -> StoryTick:
        """The tick nearest to the time."""
        return min(self.ticks, key=lambda tick: abs(tick.wall_ns - self.at_ns))

    def within(self, seconds: float) -> "Story":
        """Return the story with only the ticks within so many seconds; the nearest one stays in any case."""
        near = [tick for tick in self.ticks if abs(tick.wall_ns - self.at_ns) <= seconds * 1e9]
        return replace(self, ticks=near or [self.now])

    def name_of(self, path: str) -> str:
        """Name of a path."""
        return self.names.get(path, path)


def recorded_spans(paths: Sequence[Path], report: Callable[[str], None] = _ignore) -> list[RecordedSpan]:
    """Segments that hold a frame. Raises RecordingRefused where no file is a recording, NotRecorded without a frame."""
    parts = []
    for segment in segments(paths, report):
        first = next(segment.frames(), None)
        if first is not None:
            parts.append(RecordedSpan(segment.path, segment.header, first.wall_ns))
    if not parts:
        raise NotRecorded(f"{', '.join(map(str, paths))}: not a single frame was recorded")
    return parts


def time_span(parts: Sequence[RecordedSpan]) -> tuple[int, int]:
    """Wall clocks of the first and the last frame."""
    last = max(frame.wall_ns for frame in RecordedSegment(parts[-1].path).frames())
    return parts[0].first_ns, last


def gather_story(
    parts: Sequence[RecordedSpan],
    victim: str,
    at_ns: int,
    around_seconds: float,
    report: Callable[[str], None] = _ignore,
) -> Story:
    """Return the story of the matching cgroup that lost most within `around_seconds` of the time.

    Raises NotRecorded without a frame at the time or a matching cgroup around it.
    """
    reach_ns = round(around_seconds * 1e9)
    near = _near(parts, at_ns - reach_ns, at_ns + reach_ns)
    frames = [frame for frame in _frames(near) if abs(frame.wall_ns - at_ns) <= reach_ns]
    _check_recorded(parts, frames, at_ns)
    losses = _losses(near, at_ns, reach_ns)
    matched = matching(victim, {info.path: info for frame in frames for info in frame.cgroups}.values())
    if not matched:
        raise NotRecorded(_no_such_cgroup(victim, frames, losses, at_ns))
    ranked = sorted(matched, key=lambda info: -sum(sum(tick.values()) for tick in losses.get(info.path, {}).values()))
    story = Story(ranked[0], tuple(ranked[1:]), at_ns, parts[0].first_ns, near[-1].header)
    for step in replay([part.path for part in near], report):
        story.names |= {info.path: info.name for info in step.frame.cgroups}
        if abs(step.frame.wall_ns - at_ns) > reach_ns:
            continue
        reported = tuple(verdict for verdict in step.verdicts if verdict.victim == story.victim.path)
        causes = losses.get(story.victim.path, {}).get(step.frame.wall_ns, {})
        story.ticks.append(StoryTick(step.frame.wall_ns, causes, step.judge.diagnose(story.victim.path), reported))
        if step.frame.wall_ns <= at_ns or not story.sources:
            story.header, story.sources = step.header, step.frame.sources
    story.stacks = tuple(_stacks(near, story.victim.path, at_ns, reach_ns))
    return story


def _stacks(parts: Sequence[RecordedSpan], victim: str, at_ns: int, reach_ns: int) -> Iterator[StackEvidence]:
    """Stacks of the victim's verdicts; they are written a few seconds after what they tell of."""
    for part in parts:
        for evidence in RecordedSegment(part.path).stacks():
            if evidence.victim == victim and abs(evidence.time * 1e9 - at_ns) <= reach_ns:
                yield evidence


def _near(parts: Sequence[RecordedSpan], from_ns: int, to_ns: int) -> list[RecordedSpan]:
    """The segments that reach into a span of time; one at least."""
    ends = [part.first_ns for part in parts[1:]] + [1 << 63]
    near = [part for part, end in zip(parts, ends, strict=True) if part.first_ns <= to_ns and end >= from_ns]
    return near or [parts[0]]


def _frames(parts: Sequence[RecordedSpan]) -> Iterator[Frame]:
    for part in parts:
        yield from RecordedSegment(part.path).frames()


def _losses(parts: Sequence[RecordedSpan], at_ns: int, reach_ns: int) -> dict[str, dict[int, dict[str, float]]]:
    """By path and wall clock: seconds lost per second, by cause; not across frames that are missing."""
    losses: dict[str, dict[int, dict[str, float]]] = {}
    before: Frame | None = None
    follows: tuple[str, int] | None = None
    for part in parts:
        if (part.header.run, part.header.number) != follows:
            before = None
        follows = part.header.run, part.header.number + 1
        for frame in _frames([part]):
            if before is not None and abs(frame.wall_ns - at_ns) <= reach_ns:
                for path, causes in lost_between(before, frame).items():
                    losses.setdefault(path, {})[frame.wall_ns] = causes
            before = frame
    return losses


def lost_between(before: Frame, frame: Frame) -> dict[str, dict[str, float]]:
    """Seconds lost per second between two frames, by path and cause of the ledger."""
    if frame.monotonic_ns <= before.monotonic_ns:
        return {}
    delta = Window((before, frame)).delta()
    ledger = {name: column / 1e9 / delta.seconds for name, column in lost_ns(delta).items()}
    return {
        info.path: {name: float(column[row]) for name, column in ledger.items()}
        for row, info in enumerate(frame.cgroups)
    }


def _check_recorded(parts: Sequence[RecordedSpan], frames: Sequence[Frame], at_ns: int) -> None:
    if frames and min(abs(frame.wall_ns - at_ns) for frame in frames) <= _GAP_NS:
        return
    first_ns, last_ns = time_span(parts)
    at, first, last = (format_date_time(each) for each in (at_ns, first_ns, last_ns))
    text = f"nothing was recorded at {at}; the recording spans {first} to {last}"
    if first_ns <= at_ns <= last_ns:
        times = [frame.wall_ns for part in _near(parts, at_ns, at_ns) for frame in RecordedSegment(part.path).frames()]
        before = max((time for time in times if time <= at_ns), default=first_ns)
        after = min((part.first_ns for part in parts if part.first_ns > at_ns), default=last_ns)
        text += f", with a gap from {format_time(before)} to {format_time(after)}"
    raise NotRecorded(text)


def _no_such_cgroup(
    victim: str, frames: Sequence[Frame], losses: Mapping[str, Mapping[int, Mapping[str, float]]], at_ns: int
) -> str:
    there = {info.path: info for frame in frames for info in frame.cgroups}
    lost = {path: sum(sum(tick.values()) for tick in losses.get(path, {}).values()) for path in there}
    ranked = sorted(there.values(), key=lambda info: -lost[info.path])
    return (
        f"no cgroup {victim!r} around {format_time(at_ns)}; "
        f"there were {len(there)}, the largest loss first:\n{listing(ranked)}"
    )
