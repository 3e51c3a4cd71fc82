"""Verdicts as Kubernetes Events, with the same text for a repetition, so that it continues a series. Pure."""

from collections import OrderedDict

from api.verdict_text import in_words
from api.verdicts import Verdict, VerdictState, is_self_inflicted
from cluster.events import Event
from koordlet.kube.pods import PodIndex, pod_uid

MAX_RECENT = 1024
REPEAT_SECONDS = 30.0
"""Time in which a repetition makes no Event: each costs the API server a write."""
ACTION = "JudgeInterference"


class VerdictEvents:
    """Events of verdicts that open or close; none of a mere update, nor of a repetition within seconds."""

    def __init__(self, pods: PodIndex) -> None:
        self.unknown = 0
        """Verdicts about pods that the API server has not reported, which have no Event."""
        self.held_back = 0
        """Repetitions that made no Event."""
        self._pods = pods
        self._recent: OrderedDict[tuple[str, ...], tuple[str, float]] = OrderedDict()

    def event(self, verdict: Verdict) -> Event | None:
        """Return the Event on the victim's pod; None where the victim is no known pod."""
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
        reason = "SelfInflictedLoss" if is_self_inflicted(verdict) else "Interference"
        return Event(
            regarding=pod.reference,
            reason=reason if opens else f"{reason}Ended",
            note=note,
            action=ACTION,
            type="Warning" if opens else "Normal",
            related=culprit.reference if culprit else None,
        )

    def _note(self, verdict: Verdict) -> str | None:
        """Return the note of the first Event for the same victim, cause and first culprit: equal Events become one
        series.

        None for a repetition within REPEAT_SECONDS.
        """
        who = (verdict.state, verdict.victim, verdict.resource, verdict.cause)
        key = (*who, *(culprit.path for culprit in verdict.culprits[:1]))
        note, sent_seconds = self._recent.get(key, ("", float("-inf")))
        if verdict.time - sent_seconds < REPEAT_SECONDS:
            return None
        note = note or in_words(verdict, self._pods.name_of)
        self._recent[key] = (note, verdict.time)
        self._recent.move_to_end(key)
        while len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        return note
