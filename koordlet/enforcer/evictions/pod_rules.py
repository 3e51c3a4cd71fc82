"""Which pods may be evicted, and what came of a request. Pure."""

from dataclasses import dataclass
from enum import Enum

from api.qos import SYSTEM_CRITICAL_PRIORITY, QoSClass
from koordlet.identity.pods import PodFacts


class Answer(Enum):
    """Answer to a request for a pod's eviction."""

    ACCEPTED = "accepted"
    """The pod ends within its own grace period."""
    GONE = "gone"
    """The pod, or the pod of that uid, is not there any more."""
    BUDGET = "budget"
    """A disruption budget forbids it at this moment."""
    FORBIDDEN = "forbidden"
    """The agent may not ask, or the API server refuses for good."""
    FAILED = "failed"
    """No answer."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """Answer with the server's message; `retry_after_seconds` only where the server gave it."""

    answer: Answer
    message: str = ""
    retry_after_seconds: float | None = None


def refusal(pod: PodFacts, *, with_ownerless: bool) -> str:
    """Reason why a pod is never evicted; empty if it may be."""
    if pod.static:
        return "it is a static pod, which the kubelet starts again"
    if (pod.priority or 0) >= SYSTEM_CRITICAL_PRIORITY:
        return f"its priority {pod.priority} is critical to the node or the cluster"
    if pod.qos is QoSClass.SYSTEM:
        return "it is of class SYSTEM"
    if not pod.uid:
        return "its uid at the API server is not known yet"
    kind, _, owner = pod.workload.partition("/")
    if kind == "DaemonSet" and "/" in owner:
        return "it belongs to a DaemonSet, which starts it here again"
    if "/" not in owner and not with_ownerless:
        return "it has no owner that would start it elsewhere; set [enforcer] evict_ownerless to allow it"
    return ""


BACKOFF_SECONDS = {Answer.BUDGET: 10.0, Answer.FAILED: 5.0, Answer.FORBIDDEN: 300.0}
"""Time until a pod is asked for again, after the first refusal; doubled with each further one."""
MAX_BACKOFF_SECONDS = 300.0


def backoff_seconds(answer: EvictionAnswer, refusals: int, jitter: float) -> float:
    """Time until the next request for the pod; `refusals` in a row, this one included, `jitter` from 0 to 1."""
    first = BACKOFF_SECONDS.get(answer.answer, 0.0)
    grown: float = min(first * 2 ** min(refusals - 1, 10), MAX_BACKOFF_SECONDS)
    return max(grown, answer.retry_after_seconds or 0.0) * (1 + jitter / 4)
