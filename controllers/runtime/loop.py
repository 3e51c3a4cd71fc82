"""The main loop: informers feed a copy of the cluster, controllers plan on it, a writer carries the writes out.

One thread runs `run` and alone touches the copy and the plans. Informers and writers put messages into one inbox. A
process that does not lead keeps its copy up to date and plans nothing.
"""

import gc
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias, TypeVar

from api.kube.meta import ObjectReference
from cluster import Backoff, Client, DeltaType, Informer, NotFound, Query, Resource, StoreDelta
from cluster.events import EventRecorder
from cluster.resources import CONFIG_MAPS, EVERYTHING, Key
from controllers.runtime.controller import AnyController
from controllers.runtime.health import fault_of
from controllers.runtime.holds import Holds
from controllers.runtime.metrics import Metrics
from controllers.runtime.outages import Outages
from controllers.runtime.settings import LoopSettings
from controllers.runtime.view import NEVER, AnyProjection, ClusterCopy, Projection, View
from controllers.runtime.writer import Answer, Asking, Result, Writer
from controllers.runtime.writes import Target, Write, Writes, kind_name, metadata_of

log = logging.getLogger(__name__)

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Look:
    """A question of another thread for all objects."""

    reply: "queue.SimpleQueue[Mapping[str, Mapping[Key, Any]]]"


Message: TypeAlias = tuple[Resource[Any], Sequence[StoreDelta[Any]]] | Answer | Look | None

SYNC_SECONDS = 120.0
"""Longest wait for the first lists."""
REMEMBERED_WARNINGS = 10_000
HELD = "held"
"""Result of a write that was not handed to the writer."""
STATE_SECONDS = 5.0
"""Interval of the gauges."""


class SyncTimeoutError(Exception):
    """The first list of a kind did not come in; the message names the kind."""


HINTS: Sequence[tuple[type[Exception], str]] = (
    (SyncTimeoutError, "check that the API server answers and that the account may list these kinds"),
)
"""Remedies of what `Loop.run` raises."""


class Loop:
    """Controllers against one API server. `leading` returns whether this process may write."""

    def __init__(
        self,
        reader: Client,
        writer: Client,
        controllers: Mapping[str, AnyController],
        settings: LoopSettings | None = None,
        *,
        recorder: EventRecorder | None = None,
        metrics: Metrics | None = None,
        leading: Callable[[], bool] | None = None,
        ask: Asking | None = None,
        shown: Sequence[Resource[Any]] = (),
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
        tables: Sequence[type[AnyProjection]] = (),
    ) -> None:
        """`writer` must not try a request twice: what is repeated later is planned anew. `ask` asks the scheduler.

        Kinds of `shown` are watched for `look`, whether a controller watches them or not. So are `tables`, which are
        kept up to date in a process that does not lead too.
        """
        self.settings = settings or LoopSettings()
        self.metrics = metrics or Metrics()
        self.ready = threading.Event()
        """Set once the first lists are in."""
        self._reader = reader
        self._controllers = dict(controllers)
        self._recorder = recorder
        self._leading = leading or (lambda: True)
        self._clock = clock
        self._random = random or Random()
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._copy = copy_for(controllers, shown, tables)
        self._holds = Holds(Backoff(self.settings.retry_seconds, self.settings.retry_limit_seconds), self._random)
        self._writer = Writer(writer, self.settings.workers, self._inbox.put, self._leading, ask)
        self._informers: dict[str, Informer[Any]] = {}
        self._was_leading = False
        self._next_full: dict[str, float] = {}
        """Monotonic time of the next full plan, by controller; absent is at once."""
        self._budget = float(self.settings.burst)
        self._budget_seconds = time.monotonic()
        self._warned: OrderedDict[tuple[str, ObjectReference, str], str] = OrderedDict()
        self._outages = Outages(self.settings.outage_seconds)
        self._next_state = 0.0
        self._beat_seconds = time.monotonic()
        """When the loop's thread last showed life."""

    def run(self) -> None:
        """Sync, then plan and write until `stop`. Raises SyncTimeoutError."""
        try:
            self._sync()
            self._outages.begin(self._clock())
            self.ready.set()
            log.info("synced: %s", ", ".join(f"{len(each.versions())} {name}" for name, each in self._kinds()))
            while not self._stopping.is_set():
                started = time.monotonic()
                self._round()
                self._drain(until_seconds=started + self.settings.round_seconds)
        finally:
            for informer in self._informers.values():
                informer.stop()
            self._writer.stop()

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._stopping.set()
        self._inbox.put(None)

    def table(self, kind: type[Projection[V]]) -> V:
        """Return the value of one of `tables`, before `run`: one that goes on to change with the cluster."""
        value: V = self._copy.projections[kind].value()
        return value

    def fault(self) -> str:
        """Return why the process had better be started anew; empty while it is sound. Safe from any thread.

        An API server that is away is none: it is the same to every process.
        """
        return fault_of(
            time.monotonic() - self._beat_seconds,
            {name: each.silent_seconds() for name, each in list(self._informers.items()) if each.served},
            synced=self.ready.is_set(),
        )

    def look(self, timeout_seconds: float) -> Mapping[str, Mapping[Key, Any]] | None:
        """Return all objects by kind and key, as they are known now; None before the first lists and when none are
        given in time, as a round may take long. Safe from any thread."""
        if not self.ready.is_set():
            return None
        reply: queue.SimpleQueue[Mapping[str, Mapping[Key, Any]]] = queue.SimpleQueue()
        self._inbox.put(Look(reply))
        try:
            return reply.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    # Internals

    def _kinds(self) -> list[tuple[str, Informer[Any]]]:
        return sorted(self._informers.items())

    def _sync(self) -> None:
        config_maps = {each.config_map for each in self._controllers.values()}
        for name, resource in self._copy.resources.items():
            informer = Informer(self._reader, resource, query_of(resource, config_maps))
            informer.subscribe(lambda deltas, resource=resource: self._inbox.put((resource, deltas)))  # type: ignore[misc]
            self._informers[name] = informer
            informer.start()
        deadline = time.monotonic() + SYNC_SECONDS
        for name, informer in self._informers.items():
            while not informer.wait_synced(0.2):
                self._beat_seconds = time.monotonic()
                if self._stopping.is_set():
                    return
                if time.monotonic() > deadline:
                    raise SyncTimeoutError(f"no first list of {name} within {SYNC_SECONDS:.0f} s")
        self._drain(until_seconds=0.0)

    def _drain(self, until_seconds: float) -> None:
        """Take in messages until a monotonic time, and all that wait then."""
        while not self._stopping.is_set():
            wait = until_seconds - time.monotonic()
            try:
                message = self._inbox.get(timeout=wait) if wait > 0 else self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(message, Answer):
                self._answered(message)
            elif isinstance(message, Look):
                message.reply.put(self._copy.objects())
            elif message is not None:
                self._copy.apply(*message, self._clock())

    def _round(self) -> None:
        now = self._beat_seconds = time.monotonic()
        self._watch_silence(now)
        leads = self._leading()
        if leads and not self._was_leading:
            log.info("leading")
            # What the one before us did is in the copy or makes our first writes conflict; both are planned anew.
            self._next_full.clear()
            self._holds.clear()
        elif self._was_leading and not leads:
            log.warning("not leading any more")
        self._was_leading = leads
        if not leads:
            # With the lead comes a full plan; until then changes would only pile up.
            self._copy.forget_changes()
            return
        if self._outages.away:
            return
        self._budget = min(
            float(self.settings.burst),
            self._budget + (now - self._budget_seconds) * self.settings.requests_per_second,
        )
        self._budget_seconds = now
        # Changes first: a full plan of one controller must not delay what just happened to another.
        full = {name for name in self._controllers if now >= self._next_full.get(name, NEVER)}
        for name in sorted(self._controllers, key=lambda each: (each in full, each)):
            if name in full or self._copy.pending(name, kinds_of(self._controllers[name])):
                self._plan(name, now, full=name in full)

    def _plan(self, name: str, now: float, *, full: bool) -> None:
        controller = self._controllers[name]
        if full:
            spread = 1.0 + self.settings.resync_jitter * (2.0 * self._random.random() - 1.0)
            self._next_full[name] = now + controller.period_seconds * spread
        view = self._copy.view(name, full=full, heard_since_seconds=self._outages.heard_since_seconds)
        started = time.perf_counter()
        try:
            writes = controller.plan(view, self._clock())
        except Exception:
            # One controller's fault must not stop the others; what it did not plan comes with its next full plan.
            log.exception("plan of %s", name)
            self.metrics.plan_failed(name)
            self._next_full[name] = now + min(controller.period_seconds, self.settings.retry_limit_seconds)
            return
        finally:
            self.metrics.planned(name, time.perf_counter() - started)
        self._warn(name, writes)
        self._dispatch(name, writes.writes, now)

    def _dispatch(self, name: str, writes: Sequence[Write], now: float) -> None:
        by_target: dict[Target, list[Write]] = {}
        for write in writes:
            by_target.setdefault(write.target, []).append(write)
        held = 0
        for target, together in by_target.items():
            if self._budget < len(together) or self._holds.held(target, self._version, now):
                self._copy.mark(name, target, HELD)
                held += 1
                continue
            self._budget -= len(together)
            self._holds.begin(target)
            self._writer.submit(name, together)
        self.metrics.held_back(name, held)

    def _version(self, target: Target) -> str:
        seen = self._copy.get(target)
        return "" if seen is None else metadata_of(seen).resource_version

    def _answered(self, answer: Answer) -> None:
        now = time.monotonic()
        self.metrics.answered(answer)
        for write in answer.writes[: answer.done]:
            # A large cluster has hundreds of small changes a minute; those with an Event are for people.
            level = logging.INFO if write.event is not None else logging.DEBUG
            log.log(level, "%s: %s %s: %s", answer.controller, write.verb.value, answer.target, write.reason)
            if write.event is not None and self._recorder is not None:
                self._recorder.record(write.event)
        if answer.done:
            self._copy.wrote(answer.controller, answer.writes[answer.done - 1], self._clock())
        if answer.result is Result.DONE:
            self._holds.done(answer.target, answer.version, now)
            return
        self._copy.mark(answer.controller, answer.target, answer.result)
        if answer.result is Result.DROPPED:
            self._holds.dropped(answer.target)
            return
        delay = self._holds.failed(answer.target, now)
        level = logging.WARNING if answer.result is Result.FAILED else logging.INFO
        log.log(level, "%s: %s: %s, again in %.1f s", answer.controller, answer.target, answer.error, delay)

    def _warn(self, name: str, writes: Writes) -> None:
        for event in writes.warnings:
            key = (name, event.regarding, event.reason)
            if self._warned.get(key) == event.note:
                continue
            self._warned[key] = event.note
            self._warned.move_to_end(key)
            while len(self._warned) > REMEMBERED_WARNINGS:
                self._warned.popitem(last=False)
            log.warning("%s: %s %s: %s", name, event.regarding.kind, event.regarding.name, event.note)
            self.metrics.warned(name, event.reason)
            if self._recorder is not None:
                self._recorder.record(event)

    def _watch_silence(self, now: float) -> None:
        """Note when the API server was away: what nodes could not report meanwhile is no fault of theirs."""
        served = [each for each in self._informers.values() if each.served]
        silent = min((each.silent_seconds() for each in served), default=0.0)
        if self._outages.observe(silent, self._clock()):
            # What is planned on a copy that is no longer kept current would be refused or wrong.
            log.warning(
                "the API server is away: nothing is planned" if self._outages.away else "the API server is back"
            )
            self._next_full.clear()
        if now >= self._next_state:
            self._next_state = now + STATE_SECONDS
            sizes = {name: len(each.versions()) for name, each in self._informers.items()}
            self.metrics.state(sizes, leading=self._was_leading, silent_seconds=silent)


def kinds_of(controller: AnyController) -> list[Resource[Any]]:
    """Return every kind whose change leads to a plan of a controller."""
    return [*controller.watches, *(each for table in controller.projections for each in table.watches)]


def copy_for(
    controllers: Mapping[str, AnyController],
    shown: Sequence[Resource[Any]] = (),
    tables: Sequence[type[AnyProjection]] = (),
) -> ClusterCopy:
    """Return an empty copy with all that these controllers watch, and further kinds and tables."""
    projections = dict.fromkeys(tables) | {table: None for each in controllers.values() for table in each.projections}
    kinds = [
        *(kind for each in controllers.values() for kind in kinds_of(each)),
        *(k for t in tables for k in t.watches),
    ]
    # A kind that a controller watches is read as it asks, with more fields than are shown.
    copy = ClusterCopy([*kinds, *shown], projections)
    for name in controllers:
        copy.register(name)
    return copy


def query_of(resource: Resource[Any], config_maps: set[Key]) -> Query:
    """Return what to watch of a kind: of the ConfigMaps only those in the manager's namespace."""
    if kind_name(resource) != kind_name(CONFIG_MAPS) or len({key.namespace for key in config_maps}) != 1:
        return EVERYTHING
    return Query(namespace=next(iter(config_maps)).namespace)


def view_once(client: Client, controllers: Mapping[str, AnyController]) -> dict[str, View]:
    """Return a view for a full plan of each controller, from one list of every kind. Raises ClusterError."""
    copy = copy_for(controllers)
    config_maps = {each.config_map for each in controllers.values()}
    for resource in copy.resources.values():
        try:
            listing = client.list(resource, query_of(resource, config_maps))
        except NotFound:
            continue
        deltas = [
            StoreDelta(DeltaType.ADDED, item.identity.key, None, item.value)
            for item in listing.items
            if item.value is not None
        ]
        copy.apply(resource, deltas)
    return {name: copy.view(name, full=True) for name in controllers}


def look_for_cycles_less() -> None:
    """Have Python look for cycles after 50,000 new objects in place of 700.

    A report brings hundreds of objects and hardly a cycle: a fifth of the time for the reports of 10,000 nodes went
    into the search.
    """
    gc.set_threshold(50_000, 20, 100)
