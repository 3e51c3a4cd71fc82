"""Writes to the API server, bindings included, in a pool of threads.

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
from cluster.pods import bound_where
from scheduler.framework import Verb, Write, WriteChain
from scheduler.outcome import BindingPlan

log = logging.getLogger(__name__)


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
    """Writer of bindings and patches; `report` is called with each binding's answer and with failures, in a worker's
    thread.

    Nothing is written while `allowed` says no.
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
        self._lanes: dict[str, deque[Callable[[], None]]] = {}
        """Jobs that wait for the one under way about the same pod."""
        self._lock = threading.Lock()

    def bind(self, binding: BindingPlan) -> None:
        """Bind in the background; the answer comes through `report`."""
        self._submit(str(binding.placed.info.key), partial(self._bind, binding))

    def write(self, writes: Sequence[Write]) -> None:
        """Make other writes, in order, in the background; failures are reported."""
        self._submit(str(writes[0].key), partial(self._write_all, tuple(writes)))

    def chain(self, chain: WriteChain) -> None:
        """Make writes in order as long as each succeeds; the first failure is reported."""
        self._submit(str(chain.writes[0].key), partial(self._write_chain, chain))

    def stop(self, drain_seconds: float = 5.0) -> None:
        """Carry out what waits for up to `drain_seconds`, then drop the rest. A dropped binding was never sent."""
        self._drop_after = time.monotonic() + drain_seconds
        self._stopping.set()
        self._pool.shutdown(wait=True)

    def _submit(self, lane: str, job: Callable[[], None]) -> None:
        with self._lock:
            waiting = self._lanes.get(lane)
            if waiting is not None:
                waiting.append(job)
                return
            self._lanes[lane] = deque()
        self._pool.submit(self._run_lane, lane, job)

    def _run_lane(self, lane: str, job: Callable[[], None]) -> None:
        while True:
            job()
            with self._lock:
                waiting = self._lanes[lane]
                if not waiting:
                    del self._lanes[lane]
                    return
                job = waiting.popleft()

    def _bind(self, binding: BindingPlan) -> None:
        try:
            error = self._carry_out(binding)
        except ClusterError as failure:
            error = str(failure)
        except Exception as failure:
            # A fault here would otherwise leave the pod's share held for ever, without a word.
            log.exception("binding %s failed", binding.placed.info.key)
            error = f"{type(failure).__name__}: {failure}"
        if error is not None:
            self._report(BindAnswer(binding, error))

    def _carry_out(self, binding: BindingPlan) -> str | None:
        """Empty when bound, the reason when not, None when we stop without knowing."""
        if time.monotonic() > self._drop_after:
            return None
        if not self._allowed():
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
                try:
                    return bind(self._client, write.body)
                except Withheld:
                    # Another leads: the binding is not asked for again, but an earlier try may have taken effect.
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
