"""Claims of a scenario: victim, resource, cause, culprit, and the independent measure that proves them. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detector.evaluation.scoring import Label

if TYPE_CHECKING:
    from bench.detect.stage import Stage


@dataclass(frozen=True, slots=True)
class Claim:
    """One loss that the scenario causes, in the names of its roles."""

    victim: str
    resource: str
    cause: str
    culprit: str = ""
    """A role, a pattern of roles, or a bracketed name."""
    beside: str = ""
    """A second culprit, whose part of the blame is held against its part of the harm."""
    tolerated: bool = False
    """True where the loss is real but beside the point: its verdicts count neither way."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A measure that the product has no part in, as a mean over the harm (a clean scenario: over all of it)."""

    role: str
    measure: str
    at_least: float = 0.0
    at_most: float = float("inf")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that happens on a node, and its truth."""

    name: str
    about: str
    run: "Callable[[Stage], None]"
    claims: tuple[Claim, ...] = ()
    """Empty of claims that are not tolerated: no verdict is right."""
    proofs: tuple[Proof, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True where no verdict is right."""
        return all(claim.tolerated for claim in self.claims)


def mutual(*roles: str) -> tuple[Claim, ...]:
    """Tolerated: a load that competes for a CPU waits for it too, behind the victim and behind its own threads."""
    return tuple(Claim(role, "cpu", cause, tolerated=True) for role in roles for cause in ("contention", "own_threads"))


def labels_of(
    scenario: Scenario, paths: Mapping[str, str], prefix: str, harm: tuple[float, float], whole: tuple[float, float]
) -> list[Label]:
    """The claims as labels: losses that are claimed start with the harm, tolerated ones may be reported at any time."""
    return [
        Label(
            victim=paths.get(claim.victim, f"{prefix}/{claim.victim}"),
            resource=claim.resource,
            cause=claim.cause,
            culprit=_culprit(claim.culprit, paths, prefix),
            start=(whole if claim.tolerated else harm)[0],
            end=(whole if claim.tolerated else harm)[1],
            tolerated=claim.tolerated,
        )
        for claim in scenario.claims
    ]


def _culprit(name: str, paths: Mapping[str, str], prefix: str) -> str:
    if not name or name.startswith("["):
        return name
    return paths.get(name, f"{prefix}/{name}")
