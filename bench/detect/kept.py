"""Runs as `--json` keeps them: read back, joined, and printed as the tables of docs/detection.md. Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from bench.detect.goals import Counts, as_table, goals
from bench.detect.report import PRODUCT
from detector.evaluation.intervals import share_interval

_STEAL = "cpu steal"
_LEAST_STOLEN = 0.01
"""CPUs over a run: a verdict of three ticks at its threshold of 0.1 s/s is of as much, in a run of half a minute."""
_LITTLE_STOLEN = 0.1
"""CPUs, on average over a run: shorter bursts may still be above the threshold of a verdict, 0.1 s/s."""


class KeptOutcome(msgspec.Struct, frozen=True):
    """One claim of a run."""

    detected: bool
    seconds_to_detect: float | None
    culprit_right: bool | None


class KeptCount(msgspec.Struct, frozen=True):
    """Verdicts of one kind that answer a label of one kind, or nothing."""

    reported: str
    count: int


class KeptScore(msgspec.Struct, frozen=True):
    """The score of the product or a peer in one run."""

    episodes: int
    precision: float | None
    outcomes: list[KeptOutcome]
    confusion: list[KeptCount] = []

    @property
    def right(self) -> int:
        """Episodes that answer a claim."""
        return round((self.precision or 0.0) * self.episodes)

    @property
    def wrong(self) -> int:
        """Episodes that answer none."""
        return self.episodes - self.right


class KeptProof(msgspec.Struct, frozen=True):
    """A proof of a run, by measures that the product has no part in."""

    role: str
    measure: str
    measured: float
    holds: bool


class KeptDivision(msgspec.Struct, frozen=True):
    """Blame shared between two culprits: the first one's part as told, and of the CPU time used."""

    told: float
    used: float


class KeptRun(msgspec.Struct, frozen=True):
    """One run of one scenario."""

    scenario: str
    clean: bool
    others_cpus: float
    proofs: list[KeptProof]
    scores: dict[str, KeptScore]
    divisions: list[KeptDivision]
    wrong: list[str]
    span: tuple[float, float] = (0.0, 0.0)
    """Seconds since 1970; none in files of earlier versions."""
    paths: dict[str, str] = {}
    """Cgroups by role."""
    stolen_cpus: float | None = None
    """None in files of earlier versions."""

    @property
    def told_of_steal(self) -> int:
        """The product's verdicts that say what a hypervisor took, where it did by the kernel's count."""
        told = sum(each.count for each in self.scores[PRODUCT].confusion if each.reported == _STEAL)
        return told if (self.stolen_cpus or 0.0) >= _LEAST_STOLEN else 0


class Kept(msgspec.Struct, frozen=True):
    """All that one call of the bench measured."""

    facts: dict[str, Any]
    skipped: dict[str, str]
    runs: list[KeptRun]


def read(text: str | bytes) -> Kept:
    """Decode a file of `--json`. Raises ValueError."""
    return msgspec.convert(json.loads(text), Kept)  # msgspec's own decoder takes no NaN, which is what was not measured


def as_markdown(kept: Sequence[Kept]) -> str:
    """All runs together: every share with its counts and its 95 % interval."""
    runs = [run for each in kept for run in each.runs]
    if not runs:
        return "no runs"
    names = dict.fromkeys(name for run in runs for name in run.scores)
    lines = [
        _staged(kept, runs),
        "",
        "| | precision | recall | culprit top-1 | time to detect, median | 95th percentile | verdicts in clean runs |",
        "|---|---|---|---|---|---|---|",
        *(_row("Koord" if name == PRODUCT else name, name, runs) for name in names),
        "",
        "In brackets: the counts, and the 95 % interval of the share (Wilson's).",
        "",
        *as_table(goals(_counts(runs))),
        *_without_steal(runs),
        *_where_little_was_stolen(runs),
        "",
        "| scenario | runs | found | culprit named first | wrong verdicts | median, s | 95th percentile, s |",
        "|---|---|---|---|---|---|---|",
        *(_scenario_row(name, runs) for name in dict.fromkeys(run.scenario for run in runs)),
    ]
    notes = [f"- not proven: {_unproven(run)}" for run in runs if not all(each.holds for each in run.proofs)]
    notes += [f"- wrong verdict: {line}" for run in runs for line in run.wrong]
    notes += [
        f"- shared blame in `{run.scenario}`: {each.told:.0%} told, {each.used:.0%} of the CPU time used"
        for run in runs
        for each in run.divisions
    ]
    notes += [f"- not staged: `{name}`: {why}" for each in kept for name, why in each.skipped.items()]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _without_steal(runs: Sequence[KeptRun]) -> list[str]:
    """What the precision would be without verdicts about time that a hypervisor took: it did, but no label says so."""
    told = sum(run.told_of_steal for run in runs)
    if not told:
        return []
    counts = _counts(runs)
    line = (
        f"Verdicts that say what a hypervisor took, in runs in which it took CPU time by the kernel's count: {told}, "
        f"counted as wrong. Precision without them: {_share(counts.right, counts.told - told)}."
    )
    return ["", line]


def _where_little_was_stolen(runs: Sequence[KeptRun]) -> list[str]:
    """The shares of the runs in which a hypervisor took little, whatever their verdicts say; none where all did so."""
    counted = [(run, run.stolen_cpus) for run in runs if run.stolen_cpus is not None]
    quiet = [run for run, stolen_cpus in counted if stolen_cpus < _LITTLE_STOLEN]
    if not quiet or len(quiet) == len(counted):
        return []
    counts = _counts(quiet)
    line = (
        f"In {len(quiet)} of {len(counted)} runs, of {len({run.scenario for run in quiet})} scenarios, the kernel "
        f"counted less than {_LITTLE_STOLEN} CPUs of stolen time. With all their verdicts: precision "
        f"{_share(counts.right, counts.told)}, recall {_share(counts.found, counts.claims)}, culprit top-1 "
        f"{_share(counts.named, counts.judged)}, {counts.said} verdicts in {counts.clean_runs} clean runs."
    )
    return ["", line]


def _counts(runs: Sequence[KeptRun]) -> Counts:
    scores = [run.scores[PRODUCT] for run in runs]
    outcomes = [each for score in scores for each in score.outcomes]
    named = [each.culprit_right for each in outcomes if each.culprit_right is not None]
    clean = [run.scores[PRODUCT] for run in runs if run.clean]
    return Counts(
        runs=len(runs),
        clean_runs=len(clean),
        right=sum(each.right for each in scores),
        told=sum(each.episodes for each in scores),
        found=sum(each.detected for each in outcomes),
        claims=len(outcomes),
        named=sum(named),
        judged=len(named),
        said=sum(each.wrong for each in clean),
        seconds=[each.seconds_to_detect for each in outcomes if each.seconds_to_detect is not None],
    )


def _staged(kept: Sequence[Kept], runs: Sequence[KeptRun]) -> str:
    counts = Counter(run.scenario for run in runs)
    least, most = min(counts.values()), max(counts.values())
    times = f"{least}" if least == most else f"{least} to {most}"
    hosts = dict.fromkeys(_host(each.facts) for each in kept)
    others = [run.others_cpus for run in runs]
    stolen = [run.stolen_cpus for run in runs if run.stolen_cpus is not None]
    taken = f", of which a hypervisor took {np.median(stolen):.2f} and at most {max(stolen):.2f}" if stolen else ""
    return (
        f"{len(runs)} runs, {times} of each of {len(counts)} scenarios, on {'; '.join(hosts)}, with "
        f"{np.median(others):.2f} CPUs of other work in the median run and {max(others):.2f} in the worst{taken}:"
    )


def _host(facts: Mapping[str, Any]) -> str:
    cgroup = f", cgroup {facts['cgroup']}" if "cgroup" in facts else ""
    return f"{facts.get('cpus', '?')} CPUs (kernel {facts.get('kernel', '?')}{cgroup})"


def _row(title: str, name: str, runs: Sequence[KeptRun]) -> str:
    scores = [run.scores[name] for run in runs if name in run.scores]
    outcomes = [each for score in scores for each in score.outcomes]
    judged = [each.culprit_right for each in outcomes if each.culprit_right is not None]
    clean = [run for run in runs if run.clean and name in run.scores]
    said = sum(run.scores[name].wrong for run in clean)
    cells = [
        _share(sum(each.right for each in scores), sum(each.episodes for each in scores)),
        _share(sum(each.detected for each in outcomes), len(outcomes)),
        _share(sum(judged), len(judged)),
        *(f"{text} s" if text != "-" else text for text in _delays(outcomes)),
        f"{said} in {len(clean)} runs of {len({run.scenario for run in clean})} scenarios",
    ]
    return f"| {title} | {' | '.join(cells)} |"


def _scenario_row(name: str, runs: Sequence[KeptRun]) -> str:
    scores = [run.scores[PRODUCT] for run in runs if run.scenario == name]
    outcomes = [each for score in scores for each in score.outcomes]
    named = [each.culprit_right for each in outcomes if each.culprit_right is not None]
    cells = [
        str(len(scores)),
        f"{sum(each.detected for each in outcomes)} of {len(outcomes)}" if outcomes else "-",
        f"{sum(named)} of {len(named)}" if named else "-",
        str(sum(each.wrong for each in scores)),
        *_delays(outcomes),
    ]
    return f"| `{name}` | {' | '.join(cells)} |"


def _share(count: int, whole: int) -> str:
    if not whole:
        return "-"
    low, high = share_interval(count, whole)
    return f"{_percent(count / whole)} % ({count} of {whole}, {_percent(low)} to {_percent(high)} %)"


def _percent(share: float) -> str:
    return "100" if share >= 1 else f"{share * 100:.1f}"


def _delays(outcomes: Sequence[KeptOutcome]) -> tuple[str, str]:
    """Median and 95th percentile of the seconds to detect."""
    seconds = [each.seconds_to_detect for each in outcomes if each.seconds_to_detect is not None]
    return (f"{np.median(seconds):.1f}", f"{np.percentile(seconds, 95):.1f}") if seconds else ("-", "-")


def _unproven(run: KeptRun) -> str:
    proofs = (f"{each.role} {each.measure} {each.measured:.3f}" for each in run.proofs if not each.holds)
    return f"`{run.scenario}`: {', '.join(proofs)}"
