"""Verdicts made in a test."""

from collections.abc import Mapping

from api.verdicts import Culprit, How, Severity, Verdict, VerdictState


def make_verdict(
    victim: str = "/web",
    *,
    resource: str = "cpu",
    cause: str = "contention",
    state: VerdictState = VerdictState.OPEN,
    culprits: tuple[Culprit, ...] = (Culprit("/batch", 0.75, How.DIRECT),),
    lost: float = 0.4,
    severity: Severity = Severity.MEDIUM,
    confidence: float = 0.7,
    evidence: Mapping[str, float] | None = None,
    rule: str = "cpu-contention",
    time: float = 1000.0,
    since: float | None = None,
) -> Verdict:
    """Return a verdict with what matters to the test; open since `time` unless said otherwise."""
    return Verdict(
        time=time,
        state=state,
        victim=victim,
        resource=resource,
        cause=cause,
        lost_seconds_per_second=lost,
        severity=severity,
        culprits=culprits,
        confidence=confidence,
        evidence={"cpu_contention.lost": lost} if evidence is None else dict(evidence),
        rule=rule,
        since=time if since is None else since,
    )
