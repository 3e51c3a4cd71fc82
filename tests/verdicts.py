"""Verdicts made in a test."""

from api.verdicts import Culprit, How, Severity, Verdict, VerdictState


def make_verdict(
    victim: str = "/web",
    *,
    resource: str = "cpu",
    state: VerdictState = VerdictState.OPEN,
    culprits: tuple[Culprit, ...] = (Culprit("/batch", 0.75, How.DIRECT),),
    lost: float = 0.4,
    rule: str = "cpu-contention",
    time: float = 1000.0,
    since: float = 1000.0,
) -> Verdict:
    """A verdict of which only the given is of interest."""
    return Verdict(
        time=time,
        state=state,
        victim=victim,
        resource=resource,
        cause="neighbour",
        lost_seconds_per_second=lost,
        severity=Severity.MEDIUM,
        culprits=culprits,
        confidence=0.7,
        evidence={"cpu_contention.lost": lost},
        rule=rule,
        since=since,
    )
