"""Verdicts and actions as Kubernetes Events; a repetition has the same text, so that it continues a series. Pure."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from api.pod_actions import PodAction
from api.verdict_text import in_words
from api.verdicts import Verdict, VerdictState, is_self_inflicted
from cluster.events import Event
from koordlet.identity.pod_lookup import full_name, pod_of, pod_uid, reference
from koordlet.identity.pods import PodFacts, PodTableOf

MAX_RECENT = 1024
REPEAT_SECONDS = 30.0
"""Time in which a repetition makes no Event: each costs the API server a write."""
JUDGED = "JudgeInterference"
LIMITED = "LimitPod"


class VerdictEvents:
    """Events of verdicts and actions that begin or end; none of a mere update, nor of a repetition within seconds."""

    def __init__(self, pods: PodTableOf) -> None:
        self.unknown = 0
        """Verdicts about pods that no source has told of, which have no Event."""
        self.held_back = 0
        """Repetitions that made no Event."""
        self._pods = pods
        self._recent: OrderedDict[tuple[str, ...], tuple[str, float]] = OrderedDict()

    def events(self, verdict: Verdict) -> list[Event]:
        """Return the Events on the victim's pod and, where another pod is named, on the first culprit's."""
        if verdict.state is VerdictState.UPDATE:
            return []
        pods = self._pods()
        pod = pod_of(pods, verdict.victim)
        if pod is None:
            self.unknown += bool(pod_uid(verdict.victim))
            return []
        key = (verdict.state, verdict.victim, verdict.resource, verdict.cause)
        first = tuple(culprit.path for culprit in verdict.culprits[:1])
        words = in_words(verdict, lambda path: full_name(pods, path))
        note = self._note((*key, *first), words, verdict.time)
        if note is None:
            return []
        others = (pod_of(pods, culprit.path) for culprit in verdict.culprits)
        culprit = next((other for other in others if other is not None and other is not pod), None)
        opens = verdict.state is VerdictState.OPEN
        own = is_self_inflicted(verdict)
        reason = "SelfInflictedLoss" if own else "Interference"
        event = Event(
            regarding=reference(pod),
            reason=reason if opens else f"{reason}Ended",
            note=note,
            action=JUDGED,
            type="Warning" if opens else "Normal",
            related=reference(culprit) if culprit else None,
        )
        return [event, *self._on_culprit(event, culprit, reference_of=pod)] if not own else [event]

    @staticmethod
    def _on_culprit(event: Event, culprit: PodFacts | None, *, reference_of: PodFacts) -> Iterator[Event]:
        """Yield the same statement on the culprit's pod, for its owner to find."""
        if culprit is not None:
            reason = event.reason.replace("Interference", "InterferesWithOthers")
            yield replace(event, regarding=reference(culprit), reason=reason, related=reference(reference_of))

    def limits(self, actions: Sequence[PodAction]) -> list[Event]:
        """Return an Event on each pod that an action began or ended to limit."""
        made = []
        pods = self._pods()
        for action in actions:
            pod = pod_of(pods, action.target)
            if pod is None:
                self.unknown += bool(pod_uid(action.target))
                continue
            victim, _, rule = action.verdict.partition("|")
            key = ("ended" if action.ended else "began", action.target, action.what.partition(" ")[0], action.strategy)
            name = full_name(pods, action.target)
            verb = "is no longer limited by" if action.ended else "is limited by"
            why = f", for {full_name(pods, victim)} ({rule})" if victim else ""
            note = self._note(key, f"{name} {verb} {action.what}: {action.reason}{why}", action.time_seconds)
            if note is None:
                continue
            other = pod_of(pods, victim) if victim else None
            made.append(
                Event(
                    regarding=reference(pod),
                    reason="LimitReleased" if action.ended else "Limited",
                    note=note,
                    action=LIMITED,
                    related=reference(other) if other is not None and other is not pod else None,
                )
            )
        return made

    def _note(self, key: tuple[str, ...], words: str, time_seconds: float) -> str | None:
        """Return the note of the first Event with this key: equal Events become one series.

        None for a repetition within REPEAT_SECONDS.
        """
        note, sent_seconds = self._recent.get(key, ("", float("-inf")))
        if time_seconds - sent_seconds < REPEAT_SECONDS:
            self.held_back += 1
            return None
        note = note or words
        self._recent[key] = (note, time_seconds)
        self._recent.move_to_end(key)
        while len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        return note
