"""A recording through the same judge that sat on the node: the same frames and state, hence the same verdicts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from api.frame import Frame
from api.verdicts import Verdict
from detector.judging.judge import Judge, JudgeSettings
from detector.recording.files import segments
from detector.recording.format import MAGIC, Header, RecordingRefused
from detector.registry import discover_symptoms
from detector.rules import Rule


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One replayed tick."""

    frame: Frame
    verdicts: Sequence[Verdict]
    judge: Judge
    """The judge after the frame."""
    header: Header
    read_bytes: int
    """Of all segments so far."""


def replay(
    paths: Sequence[Path], report: Callable[[str], None], rules: tuple[Rule, ...] | None = None
) -> Iterator[ReplayStep]:
    """Every frame of the segments in order, judged; by the recorded rules unless others are given.

    Each segment goes on from the state recorded in it, as the node did. With other rules the state of the segment
    before is kept, unless frames between are missing. Damaged, dropped and failed parts are passed to `report`. Raises
    RecordingRefused where no part can be used, OSError for a file that cannot be read.
    """
    before, judge, whole, read_bytes = None, None, False, 0
    reported_missing: tuple[str, ...] = ()
    for segment in segments(paths, report):
        path, header = segment.path, segment.header
        follows = before is not None and (header.run, header.number) == (before.run, before.number + 1)
        if before is not None and not follows:
            report(f"{path}: does not follow on the segment before it; frames between them are missing")
        if judge is None or rules is None or not (follows and whole):
            judge = resumed(path, header, rules)
            missing = judge.missing_symptoms
            if missing and missing != reported_missing:
                report(f"{path}: symptoms not installed here: {', '.join(missing)}; what they explained is left out")
            reported_missing = missing
        failures = 0
        for offset, frame in segment.placed_frames():
            verdicts, failure = _judged(judge, frame)
            failures += bool(failure)
            if failure and failures == 1:
                report(f"{path}: at byte {offset}: a frame could not be judged: {failure}")
            yield ReplayStep(frame, verdicts, judge, header, read_bytes + offset)
        if segment.damage is not None:
            damage = segment.damage
            report(f"{path}: at byte {damage.offset}: {damage.reason}; the last {damage.lost_bytes} bytes are dropped")
        before, whole = header, segment.damage is None
        read_bytes += segment.bytes


def resumed(path: Path, header: Header, rules: tuple[Rule, ...] | None = None) -> Judge:
    """The judge at the start of a segment. Raises RecordingRefused where its settings or state make none."""
    settings = header.settings if rules is None else msgspec.structs.replace(header.settings, rules=rules)
    try:
        _check_rules(settings)
        return Judge.resume(settings, header.checkpoint)
    except Exception as error:
        raise RecordingRefused(str(path), len(MAGIC), f"the judge cannot go on from its state: {error}") from error


def _check_rules(settings: JudgeSettings) -> None:
    known = discover_symptoms()
    for rule in settings.rules:
        unknown = sorted({*rule.symptoms, *rule.unless_measured} - set(known))
        if unknown:
            raise ValueError(f"rule {rule.name} needs {', '.join(unknown)}, which is not installed here")


def _judged(judge: Judge, frame: Frame) -> tuple[Sequence[Verdict], str]:
    """A frame that the judge could not judge gave no verdict on the node either."""
    try:
        return judge.step(frame), ""
    except Exception as error:  # noqa: BLE001 - as in the agent, which goes on with the next frame
        return (), f"{type(error).__name__}: {error}"
