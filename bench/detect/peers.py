"""Peers: verdicts of simpler rules on the same runs. Pure: samples in, verdicts out.

They get more than they would have in life: they know which cgroups are the services, they look at the scenario's own
cgroups only, and a verdict on the right resource counts whatever its cause.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from api.verdicts import Culprit, How, Severity, Verdict, VerdictState
from bench.detect.measures import IO_BYTES, MEMORY_BYTES, STALLED_CPU, STALLED_IO, STALLED_MEMORY, USAGE, WAIT, Sample
from detector.cpi2.published import Cpi2Policy, antagonist_scores, antagonists

HOLD, OF = 2, 3
"""Like the product's rules: so many of the last samples, and as many calm ones to close."""
BUSY_CPUS = 0.5
STALLED = 0.1
WAITING = 0.05
LEAST_SAMPLES = 5
KEPT_SAMPLES = 60


@dataclass(frozen=True, slots=True)
class Span:
    """Growth between two samples, by role: counters per second, gauges as in the later one."""

    time: float
    roles: Mapping[str, Mapping[str, float]]

    def of(self, role: str, measure: str) -> float:
        """0 where it was not measured."""
        return self.roles.get(role, {}).get(measure, 0.0)

    def biggest(self, measure: str, but: str) -> str:
        """The role that has most of it; empty if no other role has any."""
        others = [role for role in self.roles if role != but and self.of(role, measure) > 0]
        return max(others, key=lambda role: self.of(role, measure), default="")


Statement = Mapping[str, str]
"""Resource to culprit, of one victim in one sample; a culprit may be empty."""
Rule = Callable[[Sequence[Span], str], Statement]


def by_usage(spans: Sequence[Span], victim: str) -> Statement:
    """The biggest user of CPU harms all others once it uses half a CPU."""
    biggest = spans[-1].biggest(USAGE, victim)
    return {"cpu": biggest} if spans[-1].of(biggest, USAGE) >= BUSY_CPUS else {}


def by_pressure(spans: Sequence[Span], victim: str) -> Statement:
    """A tenth of the time stalled on a resource (PSI) is harm by its biggest user."""
    stalls = {
        "cpu": (STALLED_CPU, USAGE),
        "memory": (STALLED_MEMORY, MEMORY_BYTES),
        "blockio": (STALLED_IO, IO_BYTES),
    }
    last = spans[-1]
    return {
        resource: last.biggest(used, victim)
        for resource, (stalled, used) in stalls.items()
        if last.of(victim, stalled) >= STALLED
    }


def by_correlation(spans: Sequence[Span], victim: str) -> Statement:
    """CPI2's score (`detector/cpi2/published.py`) with the victim's wait for a CPU in the place of its CPI."""
    recent = spans[-KEPT_SAMPLES:]
    suspects = sorted({role for span in recent for role in span.roles} - {victim})
    if len(recent) < LEAST_SAMPLES or recent[-1].of(victim, WAIT) < WAITING or not suspects:
        return {}
    waits = np.array([max(span.of(victim, WAIT), 1e-6) for span in recent])
    usage = np.array([[span.of(role, USAGE) for role in suspects] for span in recent])
    scores = antagonist_scores(waits[:, np.newaxis], np.array([WAITING]), usage)[0]
    found = antagonists(scores, Cpi2Policy())
    return {"cpu": suspects[int(found[0])]} if len(found) else {}


PEERS: Mapping[str, Rule] = {"usage": by_usage, "pressure": by_pressure, "correlation": by_correlation}


def spans_of(samples: Sequence[Sample], gauges: frozenset[str], least_seconds: float = 0.5) -> list[Span]:
    """Samples as spans; a sample that follows another too closely is left out."""
    found: list[Span] = []
    before: Sample | None = None
    for sample in samples:
        if before is None:
            before = sample
        elif (seconds := sample.time - before.time) >= least_seconds:
            roles = {
                role: {
                    name: value
                    if name in gauges
                    else max(value - before.roles.get(role, {}).get(name, 0.0), 0.0) / seconds
                    for name, value in measures.items()
                }
                for role, measures in sample.roles.items()
            }
            found.append(Span(sample.time, roles))
            before = sample
    return found


def told_by(rule: Rule, spans: Sequence[Span], victims: Sequence[str], paths: Mapping[str, str]) -> list[Verdict]:
    """The verdict lines of one rule over a run, by time."""
    lines = [line for victim in victims for line in _told_of(rule, spans, victim, paths)]
    return sorted(lines, key=lambda verdict: verdict.time)


def _told_of(rule: Rule, spans: Sequence[Span], victim: str, paths: Mapping[str, str]) -> Iterator[Verdict]:
    said: list[Statement] = []
    standing: dict[str, str] = {}
    for end, span in enumerate(spans, start=1):
        said = [*said, rule(spans[:end], victim)][-OF:]
        for resource in sorted({resource for statement in said for resource in statement} | set(standing)):
            held = sum(resource in statement for statement in said)
            culprit = said[-1].get(resource, standing.get(resource, ""))
            if resource in standing and not held:
                del standing[resource]
                yield _line(span.time, VerdictState.CLOSE, paths[victim], resource, "")
            elif resource not in standing and held >= HOLD and resource in said[-1]:
                standing[resource] = culprit
                yield _line(span.time, VerdictState.OPEN, paths[victim], resource, paths.get(culprit, ""))
            elif resource in standing and standing[resource] != culprit:
                standing[resource] = culprit
                yield _line(span.time, VerdictState.UPDATE, paths[victim], resource, paths.get(culprit, ""))


def _line(time: float, state: VerdictState, victim: str, resource: str, culprit: str) -> Verdict:
    return Verdict(
        time=time,
        state=state,
        victim=victim,
        resource=resource,
        cause="",
        lost_seconds_per_second=0.0,
        severity=Severity.LOW,
        culprits=(Culprit(culprit, 1.0, How.CORRELATED),) if culprit else (),
        rule=resource,
    )
