"""Writes to the API server: bindings over connections that wait for no answer, everything else in a pool of threads.

A binding that is not answered with success goes to the pool too, where it is asked again and its outcome found out.
Writes about one pod are made one after the other: a late "unschedulable" never follows the binding. A binding is
never left in doubt: while it is unknown whether it took effect, the pod keeps its share and the binding is asked
again, until the pod itself answers.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from cluster import (
    AlreadyExists,
    Backoff,
    BindOutcome,
    Client,
    ClusterError,
    Conflict,
    DeleteOptions,
    Invalid,
    NotFound,
    Patch,
    Unavailable,
    Withheld,
    bind,
    evict,
)
from cluster.pods import Binding as PodBinding
from cluster.pods import binding_request, bound_where
from cluster.sending.quick_writes import QuickWrites
from cluster.transport import Request
from scheduler.framework import Verb, Write, WriteChain
from scheduler.outcome import BindingPlan

log = logging.getLogger(__name__)

QUICK_CONNECTIONS_PER_WORKER = 2
"""Connections for bindings beside each thread for other writes."""
DRAIN_STEP_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class BindAnswer:
    """Result of a binding: `error` is empty when the pod is bound where asked."""

    binding: BindingPlan
    error: str = ""


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A write that failed. `repeat`: it may succeed later. `uid` is the pod of its chain, if it ended one."""

    write: Write
    error: str
    repeat: bool
    uid: str = ""


class Writer:
    """Writer of bindings and patches; `report` is called with each binding's answer and with failures, from any thread.

    One thread calls `bind` and `collect`. Nothing is written while `allowed` says no.
    """

    def __init__(
        self,
        client: Client,
        workers: int,
        report: Callable[[BindAnswer | WriteFailure], None],
        *,
        allowed: Callable[[], bool] = lambda: True,
        seed: int | None = None,
    ) -> None:
        self._client = client
        self._report = report
        self._allowed = allowed
        self._random = Random(seed)
        self._backoff = Backoff(initial_seconds=0.1, maximum_seconds=5.0)
        self._stopping = threading.Event()
        self._drop_after = float("inf")
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="write")
        self._quick: QuickWrites[Request, BindingPlan] = client.quick_writes(QUICK_CONNECTIONS_PER_WORKER * workers)
        self._unsent: deque[BindingPlan] = deque()
        """Bindings that wait for a free connection."""
        self._lanes: dict[str, deque[Callable[[], None]]] = {}
        """Jobs that wait for the one under way about the same pod."""
        self._lock = threading.Lock()

    def bind(self, binding: BindingPlan) -> None:
        """Bind in the background; the answer comes through `report`, of some bindings when `collect` is called."""
        job = partial(self._bind, binding)
        alone = len(binding.writes) == 1 and binding.writes[0].verb is Verb.BIND
        if not alone or not (self._quick.has_room() or self._quick.connections):
            self._submit(_lane(binding), job)
        elif self._enter(_lane(binding), job):
            self._unsent.append(binding)
            self._send_waiting()

    @property
    def uncollected(self) -> bool:
        """Whether bindings wait for `collect`."""
        return bool(self._quick.in_flight or self._unsent)

    def wake(self) -> None:
        """End the wait of `collect`, from any thread."""
        self._quick.wake()

    def collect(self, wait_seconds: float = 0.0) -> None:
        """Take in answers to bindings, and send those that waited. Waits for an answer, or for `wake`."""
        for binding, success in self._quick.collect(wait_seconds):
            if success:
                self._report(BindAnswer(binding))
                self._leave(_lane(binding))
            else:
                self._start(_lane(binding), partial(self._bind, binding, doubtful=True))
        if self._unsent:
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._unsent and (self._quick.has_room() or not self._quick.connections):
            binding = self._unsent.popleft()
            body = binding.writes[0].body
            assert isinstance(body, PodBinding)
            try:
                sent = self._allowed() and self._quick.send(binding, binding_request(body))
            except (OSError, ValueError) as error:  # no credentials, or a name that makes no path
                log.debug("binding %s: %s", body.pod, error)
                sent = False
            if not sent:
                self._start(_lane(binding), partial(self._bind, binding))

    def write(self, writes: Sequence[Write]) -> None:
        """Make other writes, in order, in the background; failures are reported."""
        self._submit(str(writes[0].key), partial(self._write_all, tuple(writes)))

    def chain(self, chain: WriteChain) -> None:
        """Make writes in order as long as each succeeds; the first failure is reported."""
        self._submit(str(chain.writes[0].key), partial(self._write_chain, chain))

    def stop(self, drain_seconds: float = 5.0) -> None:
        """Carry out what waits for up to `drain_seconds`, then drop the rest. A dropped binding was never sent."""
        self._drop_after = time.monotonic() + drain_seconds
        while self.uncollected and time.monotonic() < self._drop_after:
            self.collect(DRAIN_STEP_SECONDS)
        self._stopping.set()
        self._pool.shutdown(wait=True)
        self._quick.close()

    def _submit(self, lane: str, job: Callable[[], None]) -> None:
        if self._enter(lane, job):
            self._start(lane, job)

    def _start(self, lane: str, job: Callable[[], None]) -> None:
        self._pool.submit(self._run_lane, lane, job)

    def _enter(self, lane: str, job: Callable[[], None]) -> bool:
        """Return whether the lane was free; else the job waits in it."""
        with self._lock:
            waiting = self._lanes.get(lane)
            if waiting is None:
                self._lanes[lane] = deque()
                return True
            waiting.append(job)
            return False

    def _next(self, lane: str) -> Callable[[], None] | None:
        """The job that waits in a lane whose job has ended; None where the lane is free now."""
        with self._lock:
            waiting = self._lanes[lane]
            if waiting:
                return waiting.popleft()
            del self._lanes[lane]
            return None

    def _leave(self, lane: str) -> None:
        job = self._next(lane)
        if job is not None:
            self._start(lane, job)

    def _run_lane(self, lane: str, first: Callable[[], None]) -> None:
        job: Callable[[], None] | None = first
        while job is not None:
            job()
            job = self._next(lane)

    def _bind(self, binding: BindingPlan, *, doubtful: bool = False) -> None:
        """Bind and report; a doubtful binding was sent before and may have taken effect."""
        try:
            error = self._carry_out(binding, doubtful)
        except ClusterError as failure:
            error = str(failure)
        except Exception as failure:
            # A fault here would otherwise leave the pod's share held for ever, without a word.
            log.exception("binding %s failed", binding.placed.info.key)
            error = f"{type(failure).__name__}: {failure}"
        if error is not None:
            self._report(BindAnswer(binding, error))

    def _carry_out(self, binding: BindingPlan, doubtful: bool) -> str | None:
        """Empty when bound, the reason when not, None when we stop without knowing."""
        if time.monotonic() > self._drop_after:
            return None
        if not doubtful and not self._allowed():
            return "another process leads"
        stored: Any = None
        for write in binding.writes:
            if write.verb is Verb.BIND:
                outcome = self._bind_until_known(write)
                if outcome is None:
                    return None if self._stopping.is_set() else "another process leads"
                if outcome is not BindOutcome.BOUND:
                    return f"the pod is {outcome.value}"
            else:
                stored = self._apply(_continued(write, stored) if write.continues else write)
        return ""

    def _bind_until_known(self, write: Write) -> BindOutcome | None:
        """The outcome; None when we stop without knowing, or lead no more and the pod reads as free."""
        assert isinstance(write.body, PodBinding)
        attempt = 0
        while True:
            try:
                # Where another leads, the binding is not asked for again, but an earlier try may have taken effect.
                if not self._allowed():
                    return bound_where(self._client, write.body)
                try:
                    return bind(self._client, write.body)
                except Withheld:
                    return bound_where(self._client, write.body)
            except Unavailable as error:
                log.warning("binding %s is in doubt, asking again: %s", write.key, error)
                if self._stopping.wait(self._backoff.delay_seconds(attempt, self._random)):
                    return None
                attempt += 1

    def _write_all(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self._write(write)

    def _write_chain(self, chain: WriteChain) -> None:
        for index, write in enumerate(chain.writes):
            if not self._write(write, chain.uid, must_exist=index == 0):
                return

    def _write(self, write: Write, uid: str = "", *, must_exist: bool = False) -> bool:
        """Return whether the write was made, or had nothing left to change."""
        if not self._allowed():
            self._report(WriteFailure(write, "another process leads", repeat=False, uid=uid))
            return False
        try:
            self._apply(write)
        except NotFound as error:
            if must_exist or write.verb is Verb.CREATE:
                self._report(WriteFailure(write, str(error), repeat=write.verb is Verb.CREATE, uid=uid))
                return False
            # The object is gone, and with it what was to change.
            return True
        except AlreadyExists:
            return True
        except ClusterError as error:
            if isinstance(error, Conflict) and write.verb is Verb.DELETE:
                # Another object has taken the name.
                return True
            log.warning("%s of %s %s: %s", write.verb, write.resource.kind, write.key, error)
            self._report(WriteFailure(write, str(error), repeat=_may_succeed(error), uid=uid))
            return False
        except Exception as error:
            log.exception("%s of %s %s", write.verb, write.resource.kind, write.key)
            self._report(WriteFailure(write, str(error), repeat=False, uid=uid))
            return False
        return True

    def _apply(self, write: Write) -> Any:
        """Make the write; return the object as it is stored, None where nothing is answered."""
        resource, key, body = write.resource, write.key, write.body
        if write.verb is Verb.CREATE:
            return self._client.create(resource, body, namespace=key.namespace)
        if write.verb in (Verb.PATCH, Verb.PATCH_STATUS):
            assert isinstance(body, Patch)
            part = "status" if write.verb is Verb.PATCH_STATUS else ""
            return self._client.patch(resource, key, body, subresource=part)
        if write.verb is Verb.DELETE:
            self._client.delete(resource, key, _options(body))
        elif write.verb is Verb.EVICT:
            evict(self._client, key, _options(body))
        return None


def _lane(binding: BindingPlan) -> str:
    return str(binding.placed.info.key)


def _continued(write: Write, stored: Any) -> Write:
    """Return the write for the object as it is stored now."""
    assert isinstance(write.body, Patch)
    assert isinstance(write.body.body, Mapping)
    metadata = {**write.body.body.get("metadata", {}), "resourceVersion": stored.metadata.resource_version}
    return replace(write, body=replace(write.body, body={**write.body.body, "metadata": metadata}))


def _may_succeed(error: ClusterError) -> bool:
    """Return whether the same write may be taken later."""
    return not isinstance(error, Conflict | Invalid | Withheld)


def _options(body: Any) -> DeleteOptions:
    return DeleteOptions(uid=body) if isinstance(body, str) else DeleteOptions()
