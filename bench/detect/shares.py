"""Division of blame between two culprits: reported shares against the CPU time that each used. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from api.verdicts import Verdict, VerdictState
from bench.detect.claims import Claim
from bench.detect.measures import USAGE, Sample


@dataclass(frozen=True, slots=True)
class Division:
    """The first culprit's part of what both are blamed for, and of what both used."""

    told: float
    used: float


def division(
    claim: Claim, verdicts: Sequence[Verdict], samples: Sequence[Sample], paths: dict[str, str]
) -> Division | None:
    """None where the claim is no shared one, or no verdict names either culprit.

    Told is the mean over the verdict lines about the victim; used is what grew from the first sample that has both
    culprits to the last.
    """
    if not claim.beside:
        return None
    one, other = paths[claim.culprit], paths[claim.beside]
    parts = [_part(verdict, one, other) for verdict in verdicts if _speaks_of(verdict, paths[claim.victim], claim)]
    known = [part for part in parts if part is not None]
    both = [sample.roles for sample in samples if {claim.culprit, claim.beside} <= set(sample.roles)]
    if not known or not both:
        return None
    first, second = (both[-1][role][USAGE] - both[0][role][USAGE] for role in (claim.culprit, claim.beside))
    return Division(sum(known) / len(known), first / (first + second) if first + second else float("nan"))


def _speaks_of(verdict: Verdict, victim: str, claim: Claim) -> bool:
    return verdict.state is not VerdictState.CLOSE and (verdict.victim, verdict.resource) == (victim, claim.resource)


def _part(verdict: Verdict, one: str, other: str) -> float | None:
    blamed = {culprit.path: culprit.share for culprit in verdict.culprits}
    both = blamed.get(one, 0.0) + blamed.get(other, 0.0)
    return blamed.get(one, 0.0) / both if both else None
