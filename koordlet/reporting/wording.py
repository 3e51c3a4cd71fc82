"""Verdicts as Kubernetes Events, worded so that what happens again continues a series. Pure."""

from collections import OrderedDict

from api.verdicts import State, Verdict, in_words
from cluster.events import Event
from koordlet.reporting.annotation import OWN_DOING
from koordlet.reporting.pods import PodBook, pod_uid

REMEMBERED = 1024
ACTION = "JudgeInterference"


class EventWords:
    """Makes an Event of a verdict that opens or closes; nothing of one that merely changes."""

    def __init__(self, pods: PodBook) -> None:
        self.unknown = 0
        """Verdicts about pods that the API server has not told of, which have no Event."""
        self._pods = pods
        self._notes: OrderedDict[tuple[str, ...], str] = OrderedDict()

    def event(self, verdict: Verdict) -> Event | None:
        """The Event on the victim's pod; None where the victim is no pod that is known."""
        if verdict.state is State.UPDATE:
            return None
        pod = self._pods.of_path(verdict.victim)
        if pod is None:
            self.unknown += bool(pod_uid(verdict.victim))
            return None
        others = (self._pods.of_path(culprit.path) for culprit in verdict.culprits)
        culprit = next((other for other in others if other is not None and other != pod), None)
        opens = verdict.state is State.OPEN
        reason = "SelfInflictedLoss" if verdict.cause in OWN_DOING else "Interference"
        return Event(
            regarding=pod.reference,
            reason=reason if opens else f"{reason}Ended",
            note=self._note(verdict),
            action=ACTION,
            type="Warning" if opens else "Normal",
            related=culprit.reference if culprit else None,
        )

    def _note(self, verdict: Verdict) -> str:
        """The words of the first time for the same victim, cause and culprits: equal Events become one series."""
        who = (verdict.state, verdict.victim, verdict.resource, verdict.cause)
        key = (*who, *(culprit.path for culprit in verdict.culprits))
        note = self._notes.setdefault(key, in_words(verdict, self._pods.name_of))
        self._notes.move_to_end(key)
        while len(self._notes) > REMEMBERED:
            self._notes.popitem(last=False)
        return note
