"""Evictions of pods by the API server. A thread asks, so that no tick waits for an answer."""

import logging
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Protocol

from api.intents import Evict
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, of_intent
from koordlet.enforcer.evictions.pace import Pace
from koordlet.enforcer.evictions.pod_rules import Answer, EvictionAnswer, backoff_seconds, refusal
from koordlet.identity.pods import PodFacts

_log = logging.getLogger(__name__)

ENDING_SECONDS = 600.0
"""Time for which a pod whose eviction was accepted is not asked for again."""
_END_SECONDS = 2.0

_OUTCOMES = {
    Answer.ACCEPTED: Outcome.EVICTED,
    Answer.GONE: Outcome.GONE,
    Answer.BUDGET: Outcome.DISRUPTION_BUDGET,
    Answer.FORBIDDEN: Outcome.REFUSED,
    Answer.FAILED: Outcome.FAILED,
}


class PodEvictor(Protocol):
    """The door to the API server."""

    def evict(self, pod: PodFacts, reason: str) -> EvictionAnswer:
        """Ask for the eviction of the pod of this uid, within its disruption budgets and its own grace period.

        May take long, and may raise anything.
        """


@dataclass(frozen=True, slots=True)
class _Request:
    intent: Evict
    pod: PodFacts


@dataclass(frozen=True, slots=True)
class _Backoff:
    until_seconds: float
    refusals: int
    reason: str


class PodEvictions:
    """One request at a time; its answer is an event of a later step. Times are monotonic seconds."""

    def __init__(
        self, evictor: PodEvictor, pace: Pace, *, with_ownerless: bool, is_dry: bool, random: Random | None = None
    ) -> None:
        self._evictor = evictor
        self._pace = pace
        self._with_ownerless = with_ownerless
        self._is_dry = is_dry
        self._random = random or Random()
        self._requests: queue.Queue[_Request | None] = queue.Queue(1)
        self._answers: queue.SimpleQueue[tuple[_Request, EvictionAnswer]] = queue.SimpleQueue()
        self._asked: _Request | None = None
        self._ending: dict[str, tuple[str, float]] = {}
        """Uid of each pod that was evicted, to the target and the time."""
        self._backoffs: dict[str, _Backoff] = {}
        self._thread: threading.Thread | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """Cgroups whose eviction is asked for or accepted."""
        asked = (self._asked.intent.target,) if self._asked else ()
        return (*asked, *(target for target, _ in self._ending.values()))

    def begin(self, intent: Evict, pod: PodFacts, now_seconds: float) -> EnforcerEvent | None:
        """Ask for one and return its event; None if it is under way."""
        reason = refusal(pod, with_ownerless=self._with_ownerless)
        if reason:
            return of_intent(intent, Outcome.REFUSED, f"{pod.name}: {reason}")
        if pod.uid in self._ending or (self._asked and self._asked.pod.uid == pod.uid) or not pod.active:
            return None
        backoff = self._backoffs.get(pod.uid)
        if backoff is not None and backoff.until_seconds > now_seconds:
            return of_intent(intent, Outcome.BACKING_OFF, f"{pod.name}: {backoff.reason}")
        wait = "another eviction is being asked for" if self._asked else self._pace.reason(now_seconds)
        if wait:
            return of_intent(intent, Outcome.COOLDOWN, f"{intent.reason}; {wait}")
        if self._is_dry:
            self._accept(_Request(intent, pod), now_seconds)
            return of_intent(intent, Outcome.EVICTED, f"{pod.name}: {intent.reason}")
        self._asked = _Request(intent, pod)
        self._start()
        self._requests.put_nowait(self._asked)
        return of_intent(intent, Outcome.EVICTING, f"{pod.name}: {intent.reason}")

    def advance(self, now_seconds: float) -> Iterator[EnforcerEvent]:
        """Events of the answers that came."""
        self._ending = {
            uid: (target, at) for uid, (target, at) in self._ending.items() if now_seconds - at < ENDING_SECONDS
        }
        while not self._answers.empty():
            request, answer = self._answers.get_nowait()
            self._asked = None
            pod = request.pod
            if answer.answer in (Answer.ACCEPTED, Answer.GONE):
                self._backoffs.pop(pod.uid, None)
                if answer.answer is Answer.ACCEPTED:
                    self._accept(request, now_seconds)
            else:
                self._back_off(pod, answer, now_seconds)
            said = f"; {answer.message}" if answer.message else ""
            yield of_intent(request.intent, _OUTCOMES[answer.answer], f"{pod.name}: {request.intent.reason}{said}")

    def _accept(self, request: _Request, now_seconds: float) -> None:
        self._ending[request.pod.uid] = (request.intent.target, now_seconds)
        self._pace.note(now_seconds)

    def _back_off(self, pod: PodFacts, answer: EvictionAnswer, now_seconds: float) -> None:
        self._backoffs = {uid: one for uid, one in self._backoffs.items() if now_seconds - one.until_seconds < 3600}
        before = self._backoffs.get(pod.uid)
        refusals = before.refusals + 1 if before else 1
        seconds = backoff_seconds(answer, refusals, self._random.random())
        reason = f"its eviction was refused: {answer.message or answer.answer.value}"
        self._backoffs[pod.uid] = _Backoff(now_seconds + seconds, refusals, reason)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="evictions", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                answer = self._evictor.evict(request.pod, request.intent.reason)
            except Exception as error:  # noqa: BLE001 - whatever the client raises, the pod was not evicted for sure
                _log.warning("the eviction of %s could not be asked for: %s", request.pod.name, error)
                answer = EvictionAnswer(Answer.FAILED, str(error))
            self._answers.put((request, answer))

    def close(self) -> None:
        """Stop the thread; a request under way may still be answered by the server. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._requests.put(None, timeout=_END_SECONDS)
        except queue.Full:
            return
        thread.join(_END_SECONDS)
