"""Verdicts in the live view: a line for each open one, and the evidence of those of one cgroup. Pure."""

from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from api.verdict_text import culprit_in_words, in_words, loss_in_words
from api.verdicts import How, Severity, Verdict
from koordlet.top.draw import cell, seconds

MOST_LINES = 5
_COLOURS: Mapping[Severity, str] = {Severity.HIGH: "red", Severity.MEDIUM: "yellow", Severity.LOW: "white"}
_SEVERITIES = list(Severity)

NameOf = Callable[[str], str]


def room_for(verdicts: Sequence[Verdict], height: int) -> int:
    """Return the lines of the pane on a screen of `height`, its heading included; 0 without open verdicts or room."""
    most = min(MOST_LINES, (height - 6) // 3, len(verdicts))
    return most + 1 if most > 0 else 0


def ranked(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The worst first; ties by age and name, so that the screen is calm."""
    return sorted(
        verdicts,
        key=lambda verdict: (-_SEVERITIES.index(verdict.severity), verdict.since, verdict.victim, verdict.rule),
    )


def pane(verdicts: Sequence[Verdict], now_seconds: float, name_of: NameOf, *, width: int, lines: int) -> Text:
    """Heading and the worst verdicts in `lines` lines: victim, loss, cause, culprits, confidence, age."""
    free = max(width - 6 - 6 - 5 - 6 - 6, 24)
    victim, what = free // 3, free // 3
    culprit = free - victim - what
    shown = ranked(verdicts)[: max(lines - 1, 0)]
    more = len(verdicts) - len(shown)
    title = f"VICTIM (+{more} more)" if more else "VICTIM"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(
        f"{'HARM':<6} {cell(title, victim)} {'LOST':>6} {cell('TO WHAT', what)} {cell('WHOSE DOING', culprit)}"
        f" {'SURE':>5} {'SINCE':>6}",
        style="bold",
    )
    for verdict in shown:
        text.append(f"\n{verdict.severity.value:<6}", style=_COLOURS[verdict.severity])
        text.append(
            f" {cell(name_of(verdict.victim), victim)} {seconds(verdict.lost_seconds_per_second):>6}"
            f" {cell(loss_in_words(verdict), what)} {cell(_culprits(verdict, name_of, culprit), culprit)}"
            f" {verdict.confidence:>5.0%} {_since(now_seconds - verdict.since):>6}"
        )
    return text


def _culprits(verdict: Verdict, name_of: NameOf, width: int) -> str:
    """Culprits with their shares, as many as fit whole; of the first one the name is cut if it must be."""
    text = ""
    for culprit in verdict.culprits:
        share = f" {culprit.share:.0%}{'' if culprit.how is How.DIRECT else '?'}"
        name = culprit_in_words(culprit.path, name_of)
        if not text:
            text = cell(name, min(len(name), width - len(share))) + share
        elif len(text) + len(name) + len(share) + 2 <= width:
            text += f", {name}{share}"
    return text


def _since(lasted_seconds: float) -> str:
    """An age in at most six letters."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if lasted_seconds >= size:
            return f"{lasted_seconds / size:.0f} {unit}"
    return f"{max(lasted_seconds, 0):.0f} s"


def evidence(verdicts: Sequence[Verdict], now_seconds: float, name_of: NameOf) -> Text:
    """Each verdict as a sentence with its evidence; empty without any."""
    text = Text()
    for verdict in ranked(verdicts):
        text.append(
            f"{verdict.severity.value}: {in_words(verdict, name_of, most=len(verdict.culprits))}\n", style="bold"
        )
        text.append(
            f"  {verdict.confidence:.0%} of it seen directly to be theirs, since {_since(now_seconds - verdict.since)},"
            f" by rule {verdict.rule}\n"
        )
        for name, value in verdict.evidence.items():
            text.append(f"  {name:<40} {value:.4g}\n")
    return text
