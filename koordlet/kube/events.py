"""Verdicts as Kubernetes Events, worded so that what happens again continues a series. Pure."""

from collections import OrderedDict

from api.verdicts import Verdict, VerdictState, in_words
from cluster.events import Event
from koordlet.kube.annotation import OWN_DOING
from koordlet.kube.pods import PodBook, pod_uid

REMEMBERED = 1024
QUIET_SECONDS = 30.0
"""The same again within so long is not told: each time costs the API server a write."""
ACTION = "JudgeInterference"


class EventWords:
    """Makes an Event of a verdict that opens or closes; none of one that merely changes, or was told just now."""

    def __init__(self, pods: PodBook) -> None:
        self.unknown = 0
        """Verdicts about pods that the API server has not told of, which have no Event."""
        self.held_back = 0
        """Events that were told just before."""
        self._pods = pods
        self._told: OrderedDict[tuple[str, ...], tuple[str, float]] = OrderedDict()

    def event(self, verdict: Verdict) -> Event | None:
        """The Event on the victim's pod; None where the victim is no pod that is known."""
        if verdict.state is VerdictState.UPDATE:
            return None
        pod = self._pods.of_path(verdict.victim)
        if pod is None:
            self.unknown += bool(pod_uid(verdict.victim))
            return None
        note = self._note(verdict)
        if note is None:
            self.held_back += 1
            return None
        others = (self._pods.of_path(culprit.path) for culprit in verdict.culprits)
        culprit = next((other for other in others if other is not None and other != pod), None)
        opens = verdict.state is VerdictState.OPEN
        reason = "SelfInflictedLoss" if verdict.cause in OWN_DOING else "Interference"
        return Event(
            regarding=pod.reference,
            reason=reason if opens else f"{reason}Ended",
            note=note,
            action=ACTION,
            type="Warning" if opens else "Normal",
            related=culprit.reference if culprit else None,
        )

    def _note(self, verdict: Verdict) -> str | None:
        """The words of the first time for the same victim, cause and first culprit: equal Events become one series.

        None when they were told just now.
        """
        who = (verdict.state, verdict.victim, verdict.resource, verdict.cause)
        key = (*who, *(culprit.path for culprit in verdict.culprits[:1]))
        note, told_seconds = self._told.get(key, ("", float("-inf")))
        if verdict.time - told_seconds < QUIET_SECONDS:
            return None
        note = note or in_words(verdict, self._pods.name_of)
        self._told[key] = (note, verdict.time)
        self._told.move_to_end(key)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return note
