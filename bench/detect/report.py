"""Report of the runs as text and JSON. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from api.verdict_text import in_words
from bench.detect.goals import Counts, goals
from bench.detect.measures import GAUGES
from bench.detect.peers import PEERS, spans_of, told_by
from bench.detect.runner import Run
from bench.detect.shares import Division, division
from detector.evaluation.report import as_json, as_text
from detector.evaluation.scoring import LabelOutcome, Score, episodes, score, total

PRODUCT = "koord"


@dataclass(frozen=True, slots=True)
class Scored:
    """A run with the scores of the product and of each peer."""

    run: Run
    scores: Mapping[str, Score]

    @property
    def product(self) -> Score:
        """The product's own score."""
        return self.scores[PRODUCT]

    @property
    def is_proven(self) -> bool:
        """Return whether the scenario did what it claims, by measures that the product has no part in."""
        return all(each.holds for each in self.run.proven)


def scored(run: Run) -> Scored:
    """Score the product, and the peers with causes left out of the labels."""
    name = run.scenario.name
    scores = {PRODUCT: score(name, run.labels, run.verdicts, until=run.until)}
    resources = [msgspec.structs.replace(label, cause="") for label in run.labels]
    spans = spans_of(run.samples, GAUGES)
    victims = [role for role in run.paths if role.rpartition("/")[2] == "victim"]
    for peer, rule in PEERS.items():
        scores[peer] = score(name, resources, told_by(rule, spans, victims, run.paths), until=run.until)
    return Scored(run, scores)


def line_of(one: Scored) -> str:
    """One run in one line."""
    found = one.product
    told = [_told(outcome) for outcome in found.outcomes]
    if one.run.scenario.is_clean:
        told = [f"{found.wrong_episodes} verdicts" if found.wrong_episodes else "nothing said"]
    elif found.wrong_episodes:
        told.append(f"{found.wrong_episodes} wrong verdicts")
    unproven = "" if one.is_proven else "   UNPROVEN: " + ", ".join(_proofs(one))
    return f"{one.run.scenario.name:<18} {'; '.join(told)}{unproven}"


def _told(outcome: LabelOutcome) -> str:
    if not outcome.detected:
        return f"MISSED {outcome.label.what}"
    blamed = outcome.culprit.rpartition("/")[2] or outcome.culprit or "no culprit"
    right = (
        "" if outcome.culprit_right is not False else f" WRONG CULPRIT, not {outcome.label.culprit.rpartition('/')[2]}"
    )
    return f"{outcome.label.what} by {blamed} after {outcome.seconds_to_detect:.1f} s{right}"


def _proofs(one: Scored) -> list[str]:
    return [f"{each.proof.role} {each.proof.measure} {each.measured:.3f}" for each in one.run.proven if not each.holds]


def divisions(one: Scored) -> list[Division]:
    """Of every shared claim of the run."""
    run = one.run
    found = (division(claim, run.verdicts, run.samples, run.paths) for claim in run.scenario.claims)
    return [each for each in found if each is not None]


def wrong_lines(one: Scored) -> list[str]:
    """Every line of a verdict that answers no claim of its run, as text."""
    found = []
    for episode in episodes(one.run.verdicts, one.run.until):
        alone = score(
            "", one.run.labels, [line for line in one.run.verdicts if line in episode.lines], until=episode.end
        )
        if alone.wrong_episodes:
            found.append(f"{one.run.scenario.name}: {in_words(episode.lines[0])}")
    return found


def delays(found: Score) -> list[float]:
    """Seconds to detect of all detected labels."""
    return [each.seconds_to_detect for each in found.outcomes if each.seconds_to_detect is not None]


def totals(runs: Sequence[Scored]) -> dict[str, Score]:
    """The score over all runs, of product and peers."""
    return {name: total([one.scores[name] for one in runs], name) for name in (PRODUCT, *PEERS)}


def as_report(runs: Sequence[Scored], skipped: Mapping[str, str]) -> str:
    """The whole report as text."""
    whole = totals(runs)
    clean = [one for one in runs if one.run.scenario.is_clean]
    said = sum(one.product.wrong_episodes for one in clean)
    lines = [
        as_text(whole[PRODUCT]),
        "",
        f"  clean runs: {len(clean)}, verdicts in them: {said}",
        f"  unproven runs: {sum(not one.is_proven for one in runs)} of {len(runs)}",
        f"  verdicts about cgroups of others, not scored: {sum(one.run.foreign for one in runs)}",
        f"  CPUs busy with others' work: {_median_and_worst([one.run.others_cpus for one in runs])}",
        f"  of these stolen by a hypervisor: {_median_and_worst([one.run.stolen_cpus for one in runs])}",
        "",
        *_by_scenario(runs),
        "",
        *_side_by_side(whole, clean),
    ]
    wrong = [line for one in runs for line in wrong_lines(one)]
    if wrong:
        lines += ["", "wrong verdicts:", *(f"  {line}" for line in wrong)]
    lines += [
        f"shared blame in {one.run.scenario.name}: {each.told:.0%} told, {each.used:.0%} of the CPU time used"
        for one in runs
        for each in divisions(one)
    ]
    lines += [f"skipped {name}: {why}" for name, why in skipped.items()]
    return "\n".join([*lines, "", *(str(goal) for goal in goals(_counts(runs, whole[PRODUCT])))])


def _counts(runs: Sequence[Scored], whole: Score) -> Counts:
    named = [each.culprit_right for each in whole.outcomes if each.culprit_right is not None]
    clean = [one for one in runs if one.run.scenario.is_clean]
    return Counts(
        runs=len(runs),
        clean_runs=len(clean),
        right=whole.right_episodes,
        told=whole.right_episodes + whole.wrong_episodes,
        found=sum(each.detected for each in whole.outcomes),
        claims=len(whole.outcomes),
        named=sum(named),
        judged=len(named),
        said=sum(one.product.wrong_episodes for one in clean),
        seconds=delays(whole),
    )


def _median_and_worst(used: Sequence[float]) -> str:
    return f"median {np.median(used):.2f}, worst {max(used):.2f}"


def _by_scenario(runs: Sequence[Scored]) -> list[str]:
    lines = [f"{'scenario':<20}{'runs':>5}{'found':>7}{'culprit':>9}{'wrong':>7}{'median s':>10}{'p95 s':>8}"]
    for name in dict.fromkeys(one.run.scenario.name for one in runs):
        found = total([one.product for one in runs if one.run.scenario.name == name])
        count = sum(one.run.scenario.name == name for one in runs)
        right = sum(outcome.culprit_right is True for outcome in found.outcomes)
        seconds = delays(found)
        lines.append(
            f"{name:<20}{count:>5}"
            + (f"{sum(o.detected for o in found.outcomes):>7}{right:>9}" if found.outcomes else f"{'-':>7}{'-':>9}")
            + f"{found.wrong_episodes:>7}"
            + (f"{np.median(seconds):>10.1f}{np.percentile(seconds, 95):>8.1f}" if seconds else f"{'-':>10}{'-':>8}")
        )
    return lines


def _side_by_side(whole: Mapping[str, Score], clean: Sequence[Scored]) -> list[str]:
    lines = [f"{'':<14}{'precision':>10}{'recall':>8}{'top-1':>8}{'median s':>10}{'p95 s':>8}{'in clean':>10}"]
    for name, found in whole.items():
        seconds = delays(found)
        shares = [found.precision, found.recall, found.culprit_top1]
        texts = ["-" if share is None else f"{share:.1%}" for share in shares]
        times = [f"{np.median(seconds):.1f}", f"{np.percentile(seconds, 95):.1f}"] if seconds else ["-", "-"]
        said = sum(one.scores[name].wrong_episodes for one in clean)
        lines.append(f"{name:<14}{texts[0]:>10}{texts[1]:>8}{texts[2]:>8}{times[0]:>10}{times[1]:>8}{said:>10}")
    return lines


def as_values(runs: Sequence[Scored], skipped: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything for programs."""
    return {
        "facts": dict(facts),
        "totals": {
            name: as_json(found)
            | {"p95_seconds_to_detect": float(np.percentile(delays(found), 95)) if delays(found) else None}
            for name, found in totals(runs).items()
        },
        "skipped": dict(skipped),
        "runs": [
            {
                "scenario": one.run.scenario.name,
                "clean": one.run.scenario.is_clean,
                "span": [one.run.samples[0].time if one.run.samples else one.run.until, one.run.until],
                "paths": one.run.paths,
                "foreign_verdicts": one.run.foreign,
                "others_cpus": one.run.others_cpus,
                "stolen_cpus": one.run.stolen_cpus,
                "proofs": [
                    {
                        "role": each.proof.role,
                        "measure": each.proof.measure,
                        "measured": each.measured,
                        "holds": each.holds,
                    }
                    for each in one.run.proven
                ],
                "scores": {name: as_json(found) for name, found in one.scores.items()},
                "divisions": [{"told": each.told, "used": each.used} for each in divisions(one)],
                "wrong": wrong_lines(one),
                "verdicts": [msgspec.to_builtins(verdict) for verdict in one.run.verdicts],
            }
            for one in runs
        ],
    }
