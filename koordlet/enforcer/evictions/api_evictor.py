"""The API server as `PodEvictor`, with an Event on each pod that it evicts. Imported in a cluster only."""

from collections.abc import Callable

from cluster import ApiError, Client, DeleteOptions, EvictionOutcome, EvictionResult, Forbidden, Invalid, Key, evict
from cluster.events import Event
from koordlet.enforcer.evictions.pod_rules import Answer, EvictionAnswer
from koordlet.identity.pod_lookup import reference
from koordlet.identity.pods import PodFacts

REASON = "EvictedForInterference"
ACTION = "Evict"
_ANSWERS = {
    EvictionOutcome.EVICTED: Answer.ACCEPTED,
    EvictionOutcome.GONE: Answer.GONE,
    EvictionOutcome.BUDGET: Answer.BUDGET,
    EvictionOutcome.AMBIGUOUS_BUDGETS: Answer.FORBIDDEN,
}


class ApiPodEvictor:
    """Asks the API server; the pod's uid is a precondition, so that a successor of its name is never met."""

    def __init__(self, client: Client, record: Callable[[Event], object] | None = None) -> None:
        """`record` takes the Events, as `EventRecorder.record` does."""
        self._client = client
        self._record = record

    def evict(self, pod: PodFacts, reason: str) -> EvictionAnswer:
        """As `PodEvictor.evict`."""
        namespace, _, name = pod.name.partition("/")
        try:
            result: EvictionResult = evict(self._client, Key(namespace, name), DeleteOptions(uid=pod.uid))
        except (Forbidden, Invalid) as error:
            return EvictionAnswer(Answer.FORBIDDEN, str(error))
        except ApiError as error:
            return EvictionAnswer(Answer.FAILED, str(error), error.retry_after_seconds)
        if result.outcome is EvictionOutcome.EVICTED and self._record is not None:
            self._record(Event(reference(pod), REASON, reason, ACTION, "Warning"))
        return EvictionAnswer(_ANSWERS[result.outcome], result.message, result.retry_after_seconds)
