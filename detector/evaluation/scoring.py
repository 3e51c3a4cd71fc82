"""Scoring of verdicts against labels: precision, recall, culprits and time to detect. Pure.

The unit of precision is the episode, a verdict from its opening to its closing; the unit of recall is the label.
All times are wall-clock seconds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median

import msgspec

from api.verdicts import Verdict, VerdictState

NOTHING = "nothing"
"""Row of the confusion table for episodes without a label, and column for labels that no episode answers."""
GRACE_SECONDS = 5.0
"""An episode that opens this long after a label ended still answers it: rules look at the ticks behind them."""


class Label(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ground truth: a victim, the resource and cause of its loss, the culprit, and the time."""

    victim: str
    """Path of a cgroup, or a shell pattern of paths."""
    resource: str
    cause: str = ""
    """Empty: any cause of the resource."""
    culprit: str = ""
    """Path, shell pattern or bracketed name that should be blamed most; empty: not part of the score."""
    start: float = msgspec.field(name="from")
    end: float = msgspec.field(name="to")
    tolerated: bool = False
    """True for harm beside the scenario's subject, such as the culprit's own waits: its verdicts count neither way."""

    @property
    def what(self) -> str:
        """Resource and cause as the confusion table names them."""
        return f"{self.resource} {self.cause}".rstrip()


@dataclass(frozen=True, slots=True)
class VerdictEpisode:
    """A verdict's life: its lines, and the time from its first line to its closing."""

    lines: tuple[Verdict, ...]
    start: float
    end: float

    @property
    def what(self) -> str:
        """Resource and cause of its first line."""
        return f"{self.lines[0].resource} {self.lines[0].cause}"


@dataclass(frozen=True, slots=True)
class LabelOutcome:
    """Outcome of one label."""

    label: Label
    detected: bool
    seconds_to_detect: float | None
    """From the label's start to the first line of an episode that answers it; 0 where one was open before."""
    culprit: str
    """The first culprit of the line that was in effect longest within the label; empty where none was named."""
    culprit_right: bool | None
    """None where the label names no culprit or was not detected."""


@dataclass(frozen=True, slots=True)
class Score:
    """One scenario, or the total of several."""

    scenario: str
    outcomes: tuple[LabelOutcome, ...]
    right_episodes: int
    wrong_episodes: int
    confusion: Mapping[tuple[str, str], int]
    """(labelled, reported) to the number of episodes; reported `NOTHING` counts missed labels."""

    @property
    def precision(self) -> float | None:
        """Share of the episodes that answer a label; None without episodes."""
        return _share(self.right_episodes, self.right_episodes + self.wrong_episodes)

    @property
    def recall(self) -> float | None:
        """Share of the labels that an episode answers; None without labels."""
        return _share(sum(outcome.detected for outcome in self.outcomes), len(self.outcomes))

    @property
    def culprit_top1(self) -> float | None:
        """Share of the detected labels with a culprit whose culprit was blamed most."""
        judged = [outcome.culprit_right for outcome in self.outcomes if outcome.culprit_right is not None]
        return _share(sum(judged), len(judged))

    @property
    def median_seconds_to_detect(self) -> float | None:
        """Over the detected labels."""
        return median(self._delays) if self._delays else None

    @property
    def worst_seconds_to_detect(self) -> float | None:
        """Over the detected labels."""
        return max(self._delays, default=None)

    @property
    def _delays(self) -> list[float]:
        return [each.seconds_to_detect for each in self.outcomes if each.seconds_to_detect is not None]


def score(
    scenario: str,
    labels: Sequence[Label],
    verdicts: Iterable[Verdict],
    *,
    until: float,
    grace_seconds: float = GRACE_SECONDS,
) -> Score:
    """Score the verdict lines of one scenario, in the order of reporting; open ones end at `until`."""
    found = episodes(verdicts, until)
    wanted = [label for label in labels if not label.tolerated]
    outcomes = tuple(_outcome(label, found, grace_seconds) for label in wanted)
    confusion = Counter((outcome.label.what, NOTHING) for outcome in outcomes if not outcome.detected)
    right = wrong = 0
    for episode in found:
        answered = [label for label in labels if _answers(episode, label, grace_seconds)]
        if answered and all(label.tolerated for label in answered):
            continue
        meanwhile = [label for label in wanted if _meets(episode, label, grace_seconds)]
        expected = [label for label in answered if not label.tolerated] or meanwhile
        confusion[expected[0].what if expected else NOTHING, episode.what] += 1
        right += bool(answered)
        wrong += not answered
    return Score(scenario, outcomes, right, wrong, dict(confusion))


def total(scores: Iterable[Score], scenario: str = "total") -> Score:
    """Everything as if it had been one scenario: labels and episodes weigh the same in every scenario."""
    parts = list(scores)
    confusion: Counter[tuple[str, str]] = Counter()
    for part in parts:
        confusion.update(part.confusion)
    return Score(
        scenario,
        tuple(outcome for part in parts for outcome in part.outcomes),
        sum(part.right_episodes for part in parts),
        sum(part.wrong_episodes for part in parts),
        dict(confusion),
    )


def episodes(verdicts: Iterable[Verdict], until: float) -> list[VerdictEpisode]:
    """Verdict lines put together by victim and rule, by start; a line after a closing starts a new episode."""
    open_lines: dict[tuple[str, str], list[Verdict]] = {}
    found: list[VerdictEpisode] = []
    for verdict in verdicts:
        key = (verdict.victim, verdict.rule)
        if verdict.state is not VerdictState.CLOSE:
            open_lines.setdefault(key, []).append(verdict)
        elif key in open_lines:
            lines = open_lines.pop(key)
            found.append(VerdictEpisode(tuple(lines), lines[0].time, verdict.time))
    found += [VerdictEpisode(tuple(lines), lines[0].time, until) for lines in open_lines.values()]
    return sorted(found, key=lambda episode: (episode.start, episode.lines[0].victim, episode.lines[0].rule))


def _outcome(label: Label, found: Sequence[VerdictEpisode], grace_seconds: float) -> LabelOutcome:
    answers = [episode for episode in found if _answers(episode, label, grace_seconds)]
    if not answers:
        return LabelOutcome(label, False, None, "", None)
    delay = max(min(episode.start for episode in answers) - label.start, 0.0)
    culprit = _blamed(answers, label)
    right = _same(culprit, label.culprit) if label.culprit else None
    return LabelOutcome(label, True, delay, culprit, right)


def _blamed(answers: Sequence[VerdictEpisode], label: Label) -> str:
    """First culprit of the line that was in effect longest within the label; of the first line where none was
    within."""
    seconds_of: dict[str, float] = {}
    for episode in answers:
        ends = [*(line.time for line in episode.lines[1:]), episode.end]
        for line, end in zip(episode.lines, ends, strict=True):
            first = line.culprits[0].path if line.culprits else ""
            within = max(min(end, label.end) - max(line.time, label.start), 0.0)
            seconds_of[first] = seconds_of.get(first, 0.0) + within
    return max(seconds_of, key=lambda path: seconds_of[path])


def _meets(episode: VerdictEpisode, label: Label, grace_seconds: float) -> bool:
    in_time = episode.start <= label.end + grace_seconds and episode.end > label.start
    return in_time and _same(episode.lines[0].victim, label.victim)


def _answers(episode: VerdictEpisode, label: Label, grace_seconds: float) -> bool:
    return _meets(episode, label, grace_seconds) and any(
        line.resource == label.resource and label.cause in ("", line.cause) for line in episode.lines
    )


def _same(path: str, pattern: str) -> bool:
    """Return whether a path matches; brackets of culprits' names are literal, so equality comes before patterns."""
    return path == pattern or fnmatchcase(path, pattern)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
