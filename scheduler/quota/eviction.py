"""Choice of victims: preemption inside one quota, and revoking what a quota uses beyond its runtime."""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.quota.tree import DEFAULT, Amounts, added


@dataclass(frozen=True, slots=True)
class QuotaPod:
    """A placed pod with what the choice of victims depends on."""

    key: str
    quota: str
    priority: int
    start_seconds: float
    request: Amounts
    preemptible: bool = True


def may_preempt(preemptor: QuotaPod, victim: QuotaPod, *, spare_default: bool = True) -> bool:
    """True when quota rules let the preemptor push the victim out."""
    return (
        victim.quota == preemptor.quota
        and victim.priority < preemptor.priority
        and victim.preemptible
        and not (spare_default and victim.quota == DEFAULT)
    )


def to_revoke(used: Amounts, runtime: Amounts, pods: Sequence[QuotaPod]) -> list[QuotaPod]:
    """Pods to evict until the quota's usage is within its runtime, least important first.

    When everything that may leave does not suffice, all of it leaves; otherwise pods that still fit stay.
    """
    left, picked = dict(used), []
    for pod in sorted((p for p in pods if p.preemptible), key=_importance, reverse=True):
        if not _over(left, runtime):
            break
        left = _without(left, pod.request)
        picked.append(pod)
    if _over(left, runtime):
        return picked
    leaving = []
    for pod in reversed(picked):
        with_pod = added(left, {key: amount for key, amount in pod.request.items() if key in left})
        if _over(with_pod, runtime):
            leaving.append(pod)
        else:
            left = with_pod
    return leaving[::-1]


@dataclass(slots=True)
class OveruseClock:
    """Delay before a quota over its runtime is revoked; it restarts at each trigger."""

    delay_seconds: float = 120.0
    since_seconds: float | None = None

    def due(self, used: Amounts, runtime: Amounts, now: float) -> bool:
        """True when some resource was over in every observation for longer than the delay."""
        if not _over(used, runtime):
            self.since_seconds = None
            return False
        if self.since_seconds is None:
            self.since_seconds = now
        if now - self.since_seconds <= self.delay_seconds:
            return False
        self.since_seconds = now
        return True


def _importance(pod: QuotaPod) -> tuple[int, float, str]:
    """Sorts the most important first: higher priority, then the longest running."""
    return (-pod.priority, pod.start_seconds, pod.key)


def _over(used: Amounts, limit: Amounts) -> bool:
    return any(amount > limit[key] for key, amount in used.items() if key in limit)


def _without(used: Amounts, request: Amounts) -> dict[str, int]:
    return {key: amount - request.get(key, 0) for key, amount in used.items()}
