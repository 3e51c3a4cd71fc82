"""The main loop: watches feed the engine, one thread drives it, a pool of threads carries out its writes.

One thread runs `run` and alone touches the engine. Everything else (watch threads, bind workers, HTTP
requests) puts messages into one inbox. After a restart the first lists rebuild the engine from what the API
server says before anything is placed; a bound pod carries its share in its annotations, so nothing is lost.
"""

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from api.kube.meta import ObjectReference
from api.kube.objects import Pod
from api.kube.resources import QuantityError
from cluster import Client, ClusterError, DeltaType, Forbidden, Informer, Key, Resource, StoreDelta
from cluster.events import Event, EventRecorder
from cluster.store import newer_version
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.engine import NODE, Engine
from scheduler.explain.diagnosis import chosen_elsewhere, last_resort
from scheduler.explain.monitor import AttemptMonitor
from scheduler.extender import BindingArgs, start_binding
from scheduler.framework import Action, ObjectEvent, Reason, Verb, Write
from scheduler.inbox import Inbox
from scheduler.lifecycle.conditions import POD
from scheduler.matching.nodematch import names_its_node
from scheduler.metrics import Metrics
from scheduler.outcome import AttemptOutcome, Result
from scheduler.turns import Turns
from scheduler.unmade_writes import UnmadeWrites
from scheduler.watched_objects import kind_name
from scheduler.writer import BindAnswer, WriteFailure, Writer

log = logging.getLogger(__name__)

T = TypeVar("T")

Deltas: TypeAlias = tuple[Resource[Any], Sequence[StoreDelta[Any]]]
Message: TypeAlias = Deltas | BindAnswer | WriteFailure | Callable[[], None]

ACTIONS = {
    DeltaType.ADDED: Action.ADD,
    DeltaType.UPDATED: Action.UPDATE,
    DeltaType.DELETED: Action.DELETE,
}
TICK_SECONDS = 1.0
REPORT_SECONDS = 30.0
"""Interval of the log's lines about kinds whose first list is not in."""
RETRY_ROUND_SECONDS = 0.5
"""Wait after a round that failed by an error of this program."""
RETRY_LEAD_SECONDS = 1.0
"""Wait after a failed look at what the previous leader bound."""


class ForbiddenKindError(Exception):
    """Nodes or pods may not be listed; the message names the permission."""


class Loop:
    """One engine against one API server. `leading` returns whether this process may place pods; `writes` is the
    client to write with, by default the one that reads.
    """

    def __init__(
        self,
        client: Client,
        engine: Engine,
        *,
        writes: Client | None = None,
        metrics: Metrics | None = None,
        recorder: EventRecorder | None = None,
        leading: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine = engine
        self.metrics = metrics or Metrics(engine.settings.scheduler_name)
        self.ready = threading.Event()
        """Set once the first lists are in."""
        self._client = client
        self._recorder = recorder
        self._leading = leading or (lambda: True)
        self._was_leading = leading is None
        """Leadership at the last check."""
        self._clock = clock
        self._inbox: Inbox[Message] = Inbox()
        self._turns = Turns(self._inbox, self._taken, self._next_message)
        self._stopping = threading.Event()
        self._writer = Writer(writes or client, engine.settings.bind_workers, self._inbox.put, allowed=self._leading)
        self._informers: dict[str, Informer[Any]] = {}
        self._unmade = UnmadeWrites()
        self._monitor = AttemptMonitor(
            engine.queue.in_flight,
            timeout_seconds=lambda: engine.flags.scheduling_timeout_seconds,
            count=self.metrics.slow,
        )
        self._next_tick = 0.0
        self._next_lead = 0.0
        self._beat = time.monotonic()
        """When the scheduling thread last ended a round without a fault, or waited for the first lists."""
        self._extender_binds: dict[str, Future[AttemptOutcome]] = {}
        """Extender requests that wait for a pod's end, by UID."""
        self._read: dict[tuple[str, Key], str] = {}
        """Versions of what was read on taking the lead, by kind and key, until the watch has come so far."""
        self._statuses: dict[Key, Write] = {}
        """Status patches held back to the next tick: only a pod's last word is sent."""

    def run(self) -> None:
        """Sync, then place pods until `stop`, whatever the API server does. Raises ForbiddenKindError."""
        # Nothing of a first list is garbage: walking it over and over doubles the time to take it in.
        gc.disable()
        try:
            self._sync()
            if self._was_leading:
                self.engine.leads()
            settle_collector()
            self.ready.set()
            self._beat = time.monotonic()
            self._monitor.start(self._stopping, self._clock)
            while not self._stopping.is_set():
                try:
                    self._round()
                    self._beat = time.monotonic()
                except Exception:
                    # Other pods wait. A fault that lasts is told by /healthz, and another replica may do without it.
                    log.exception("round failed")
                    self.metrics.faulted("round")
                    self._stopping.wait(RETRY_ROUND_SECONDS)
        finally:
            gc.enable()
            for informer in self._informers.values():
                informer.stop()
            self._writer.stop()

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._stopping.set()
        self._inbox.put(lambda: None)

    def call(self, question: Callable[[], T], timeout_seconds: float = 10.0) -> T:
        """Call `question` in the engine's thread; raises TimeoutError or what `question` raises."""
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except Exception as error:  # noqa: BLE001 (handed to the asker)
                answer.set_exception(error)

        self._inbox.put(ask)
        return answer.result(timeout_seconds)

    def stuck_seconds(self) -> float:
        """Seconds since the scheduling thread last ended a round without a fault; one takes a second or two."""
        return time.monotonic() - self._beat

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def bind_for_extender(self, request: BindingArgs, timeout_seconds: float) -> AttemptOutcome:
        """Bind a pod where the stock scheduler chose, and wait for the end; TimeoutError when that takes longer.

        Raises LookupError when the pod or node is not known, or the pod is another one by that name.
        """
        answer: Future[AttemptOutcome] = Future()

        def place() -> None:
            try:
                pod = self._informers["pods"].get(Key(request.namespace, request.name))
                if pod is None:
                    raise LookupError(f"no pod {request.namespace}/{request.name}")
                before = self._extender_binds.get(request.uid)
                self._extender_binds[request.uid] = answer
                if before is not None:
                    before.set_exception(TimeoutError())
                outcome = start_binding(self.engine, request, pod, self._clock())
                if outcome.result is not Result.WAITING:
                    del self._extender_binds[request.uid]
                    answer.set_result(outcome)
            except Exception as error:  # noqa: BLE001 (handed to the asker)
                self._extender_binds.pop(request.uid, None)
                answer.set_exception(error)

        def give_up() -> None:
            if self._extender_binds.get(request.uid) is answer:
                del self._extender_binds[request.uid]
                self.engine.reject(request.uid, Reason("no request waits for the extender's bind any more"))

        self._inbox.put(place)
        try:
            return answer.result(timeout_seconds)
        except TimeoutError:
            self._inbox.put(give_up)
            raise

    # Internals

    def _sync(self) -> None:
        # Custom kinds first: the quota or group of a pod is known before the pod.
        for name, kind in self.engine.watched_kinds().items():
            self._watch(name, kind)
        self._watch("nodes", NODE)
        self._watch("pods", POD)
        report_at = time.monotonic() + REPORT_SECONDS
        while waiting := [name for name, informer in self._informers.items() if not self._listed(name, informer)]:
            self._beat = time.monotonic()
            if self._stopping.wait(0.02):
                return
            if self._beat >= report_at:
                report_at += REPORT_SECONDS
                log.warning("waiting for the first lists of %s", ", ".join(waiting))
        self._first_lists()

    def _watch(self, name: str, kind: Resource[Any]) -> None:
        informer = Informer(self._client, kind)
        informer.subscribe(lambda deltas: self._inbox.put((kind, deltas)))
        self._informers[name] = informer
        informer.start()

    def _listed(self, name: str, informer: Informer[Any]) -> bool:
        """Return whether the first list is in, or is none to wait for. Raises ForbiddenKindError."""
        if informer.wait_synced(0.0):
            return True
        problem = informer.problem
        if not isinstance(problem, Forbidden):
            return False
        kind = informer.resource
        missing = f"the account may not list and watch {kind.plural} of {kind.group or 'the core group'}: {problem}"
        if name in ("nodes", "pods"):
            raise ForbiddenKindError(missing)
        log.warning("%s; going on without", missing)
        return True

    def _first_lists(self) -> None:
        """Take in the first lists kind by kind, custom kinds and nodes before the pods that depend on them."""
        order = {id(kind): index for index, kind in enumerate([*self.engine.watched_kinds().values(), NODE, POD])}
        waiting: list[Message] = []
        while (message := self._inbox.take()) is not None:
            waiting.append(message)
        lists = [message for message in waiting if isinstance(message, tuple)]
        others = [message for message in waiting if not isinstance(message, tuple)]
        for message in (*sorted(lists, key=lambda deltas: order.get(id(deltas[0]), 0)), *others):
            self._receive(message)

    def _round(self) -> None:
        now = self._clock()
        if now >= self._next_tick:
            self._next_tick = now + TICK_SECONDS
            self._tick(now)
        busy = self._may_place() and self._turns.attempts(self._attempt, self._send_bindings)
        self._dispatch()
        self._turns.messages(0.0 if busy else self._idle_seconds())

    def _may_place(self) -> bool:
        """Return whether to place pods; on becoming the leader, first see what the one before us bound last."""
        leads = self._leading()
        if leads and not self._was_leading:
            if self._clock() < self._next_lead:
                return False
            try:
                self._read_given()
            except ClusterError as error:
                log.warning("not placing yet, what was given could not be read: %s", error)
                self._next_lead = self._clock() + RETRY_LEAD_SECONDS
                return False
            for informer in self._informers.values():
                # After an outage watches wait for half a minute; until then no new pod is known, nor that one ended.
                informer.hurry()
            self.engine.leads()
            log.info("leading")
        elif self._was_leading and not leads:
            self.engine.follows()
        self._was_leading = leads
        return leads

    def _read_given(self) -> None:
        """Take in what the leader before bound and gave, without waiting for the watches."""
        for name, kind in self.engine.shared_kinds().items():
            informer = self._informers[name]
            if not informer.served or isinstance(informer.problem, Forbidden):
                continue
            for value in self._client.list(kind).values:
                key = Key(value.metadata.namespace, value.metadata.name)
                known = self.engine.objects(kind).get(key)
                if known is None or known.metadata.resource_version != value.metadata.resource_version:
                    self._read[name, key] = value.metadata.resource_version
                    change = DeltaType.ADDED if known is None else DeltaType.UPDATED
                    self._apply(kind, StoreDelta(change, key, known, value))
        for pod in self._client.list(POD).values:
            if pod.spec.node_name:
                self._apply(POD, StoreDelta(DeltaType.UPDATED, _key(pod), pod, pod))

    def _is_outdated(self, kind: Resource[Any], delta: StoreDelta[Any]) -> bool:
        """Return whether a watch shows an object as it was before it was read on taking the lead."""
        if not self._read or kind is POD or kind is NODE:
            return False
        place = (kind_name(kind), delta.key)
        if delta.new is not None and newer_version(self._read.get(place, ""), delta.new.metadata.resource_version):
            return True
        self._read.pop(place, None)
        return False

    def _attempt(self) -> bool:
        started = time.perf_counter()
        try:
            outcome = self.engine.schedule_one(self._clock())
        except Exception:
            # One pod's fault must not stop the others.
            log.exception("attempt failed")
            self.metrics.faulted("attempt")
            self.engine.abandon(self._clock())
            return True
        if outcome is None:
            return False
        self.metrics.attempted(outcome, time.perf_counter() - started)
        return True

    def _send_bindings(self) -> None:
        while self.engine.bindings:
            self._writer.bind(self.engine.bindings.popleft())
        self._writer.collect()

    def _dispatch(self) -> None:
        self._send_bindings()
        if not self._was_leading:
            # What another process leads, it writes; on leading, everything is stated anew.
            self.engine.writes.clear()
            self.engine.chains.clear()
            self._statuses.clear()
            self._unmade.clear()
        while self.engine.chains:
            self._writer.chain(self.engine.chains.popleft())
        together: list[Write] = []
        while self.engine.writes:
            write = self.engine.writes.popleft()
            self._unmade.replaced(write)
            if write.verb is Verb.PATCH_STATUS and write.resource is POD:
                self._statuses[write.key] = write
                continue
            if together and together[-1].key != write.key:
                self._writer.write(together)
                together = []
            together.append(write)
        if together:
            self._writer.write(together)
        while self.engine.outcomes:
            self._record(self.engine.outcomes.popleft())

    def _tick(self, now: float) -> None:
        try:
            self.engine.tick(now)
        except Exception:
            log.exception("tick failed")
            self.metrics.faulted("tick")
        if self._was_leading:
            for write in self._unmade.due(now):
                if write.resource is POD and write.verb is Verb.PATCH_STATUS:
                    self._statuses.setdefault(write.key, write)
                else:
                    self._writer.write([write])
            for key, write in self._statuses.items():
                if self._still_pending(key):
                    self._writer.write([write])
        self._statuses.clear()
        self.metrics.counted(self.engine)

    def _still_pending(self, key: Key) -> bool:
        """A bound pod's condition is the API server's; a late "unschedulable" would overwrite it."""
        informer = self._informers["pods"]
        pod = informer.get(key)
        return pod is not None and not pod.spec.node_name and pod.metadata.uid not in self.engine.snapshot.pods

    def _idle_seconds(self) -> float:
        now = self._clock()
        wake = self.engine.queue.next_wake()
        until = self._next_tick if wake is None else min(self._next_tick, wake)
        return max(0.001, min(until - now, TICK_SECONDS))

    def _next_message(self, block_seconds: float) -> Message | None:
        if block_seconds and self._writer.uncollected:
            # Answers to bindings do not come through the inbox.
            self._inbox.wait_elsewhere(lambda: self._writer.collect(block_seconds), self._writer.wake)
            return self._inbox.take()
        return self._inbox.take(block_seconds)

    def _receive(self, message: Message) -> None:
        for _ in self._taken(message):
            pass

    def _taken(self, message: Message) -> Iterator[None]:
        """Take a message in, change by change."""
        try:
            if isinstance(message, tuple):
                kind, deltas = message
                for delta in deltas:
                    if not self._is_outdated(kind, delta):
                        self._apply(kind, delta)
                    yield
            elif isinstance(message, BindAnswer):
                self._answered(message)
            elif isinstance(message, WriteFailure):
                self._failed(message)
            else:
                message()
        except Exception:
            # One message's fault must not end the others.
            log.exception("message could not be taken in")
            self.metrics.faulted("message")
        yield

    def _answered(self, answer: BindAnswer) -> None:
        now = self._clock()
        if answer.error:
            log.warning("%s was not bound: %s", answer.binding.placed.info.key, answer.error)
            self.engine.bind_failed(answer.binding, answer.error, now)
        else:
            self.engine.bound(answer.binding, now)

    def _failed(self, failure: WriteFailure) -> None:
        """A write was not made: make it again later, and tell the engine of the end of a chain."""
        self.metrics.unwritten(failure.write.verb.value)
        if failure.uid:
            self.engine.chain_failed(failure.uid, failure.error)
        elif failure.repeat and failure.write.repeat and failure.write.verb is not Verb.EVICT:
            self._unmade.failed(failure.write, self._clock())
        self.engine.write_failed(failure.write, failure.error)

    def _apply(self, kind: Resource[Any], delta: StoreDelta[Any]) -> None:
        now, action = self._clock(), ACTIONS[delta.type]
        value: Any = delta.old if delta.new is None else delta.new
        try:
            if kind is POD:
                self.engine.on_pod(action, value, now)
            elif kind is NODE:
                self.engine.on_node(action, value, now)
            else:
                self.engine.on_object(ObjectEvent(kind, action, delta.key, delta.old, delta.new), now)
        except QuantityError as error:
            log.warning("%s %s is passed over: %s", kind.kind, delta.key, error)
            self._faulted(kind, value, str(error))
        except Exception as error:
            log.exception("%s %s could not be taken in", kind.kind, delta.key)
            self._faulted(kind, value, f"internal error: {error!r}")
        while self.engine.snapshot.faults:
            fault = self.engine.snapshot.faults.popleft()
            log.error("%s could not take in %s", fault.observer, fault.subject, exc_info=fault.error)
            self.metrics.faulted(fault.observer)

    def _faulted(self, kind: Resource[Any], value: Any, problem: str) -> None:
        """Count an object that could not be taken in; a pending pod is told."""
        self.metrics.faulted(kind.plural)
        if kind is POD:
            self.engine.pod_unreadable(value, problem)

    def _record(self, outcome: AttemptOutcome) -> None:
        self._monitor.ended(outcome.info, self.metrics.ended(outcome, self._clock()))
        waiting = None if outcome.result is Result.WAITING else self._extender_binds.pop(outcome.info.uid, None)
        if waiting is not None:
            waiting.set_result(outcome)
        if self._recorder is None or self.engine.is_stand_in(outcome.info.uid):
            return
        info = outcome.info
        for victim in outcome.victims:
            if not victim.pod.spec.node_name:
                continue  # held or being bound: there is no node that it leaves
            note = f"Preempted by pod {info.uid} on node {victim.pod.spec.node_name}"
            self._recorder.record(Event(_reference(victim), "Preempted", note, "Preempting", related=_reference(info)))
        if outcome.result is Result.SCHEDULED:
            note = f"Successfully assigned {info.key} to {outcome.node}"
            self._recorder.record(Event(_reference(info), "Scheduled", note, "Binding"))
            if outcome.despite and info.outside:
                note = chosen_elsewhere(outcome.node, outcome.despite)
                self._recorder.record(Event(_reference(info), "AvoidedNode", note, "Binding", "Warning"))
            elif outcome.despite and not names_its_node(info.pod):
                note = last_resort(outcome.node, outcome.despite)
                self._recorder.record(Event(_reference(info), "LastResort", note, "Binding", "Warning"))
        elif outcome.result in (Result.UNSCHEDULABLE, Result.ERROR):
            self._recorder.record(Event(_reference(info), "FailedScheduling", outcome.message, "Scheduling", "Warning"))


def settle_collector() -> None:
    """Keep Python's cycle collector from walking a whole cluster's objects during attempts.

    What requests and events leave in cycles, some 40 objects a pod, waits for the first threshold.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 1000)


def _key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)


def _reference(info: PodInfo) -> ObjectReference:
    meta = info.pod.metadata
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )
