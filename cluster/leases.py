"""Leader election on a `Lease`: at most one holder at a time, with slack for a slow API server.

The decision is pure and trusts no foreign clock: a lease counts as abandoned when *this* process has seen
it unchanged for its whole duration on its own monotonic clock. A holder stops counting itself as leader at
`renew_deadline_seconds` after the *start* of its last successful renewal, whether or not its thread runs,
so the gap up to `duration_seconds` is the slack in which no candidate leads.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import msgspec

from api.kube.meta import ObjectMeta, Wire
from cluster import errors
from cluster.client import Client
from cluster.resources import LEASES, Key

log = logging.getLogger(__name__)

EARLY = 0.8
"""Part of the time between two renewals after which a candidate waits for the next one."""
LOOKS_PER_RENEWAL = 10
"""Looks of a candidate in the time between two renewals, while it waits for one."""
LATE_RENEWALS = 2.0
"""Times between two renewals after which one that has not come is not waited for so closely any more."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Candidate, lease and timing of an election. Defaults are those of the stock scheduler."""

    lease: Key
    identity: str
    duration_seconds: float = 15.0
    """Others may take over when the lease is unchanged for this time."""
    renew_deadline_seconds: float = 10.0
    """The holder gives up leading when it could not renew for this time; must be less than the duration."""
    retry_seconds: float = 2.0
    """Time between tries."""

    @property
    def slack_seconds(self) -> float:
        """Time between the end of a holder's lead and the earliest moment at which another leads."""
        return self.duration_seconds - self.renew_deadline_seconds

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_deadline_seconds < self.duration_seconds:
            raise ValueError("lease settings need 0 < retry_seconds < renew_deadline_seconds < duration_seconds")


class LeaseSpec(Wire, frozen=True):
    """Spec of coordination.k8s.io/v1 Lease; times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True):
    """The object that candidates compete for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A lease as seen, and since when (monotonic seconds) it has looked like that."""

    lease: Lease
    since_seconds: float


def observe(previous: ObservedLease | None, lease: Lease, now_seconds: float) -> ObservedLease:
    """The observation after reading `lease`; its age goes on while nothing changes."""
    if previous is not None and previous.lease == lease:
        return previous
    return ObservedLease(lease, now_seconds)


def may_take(observation: ObservedLease, settings: LeaseSettings, now_seconds: float) -> bool:
    """Return whether a candidate may write itself into the lease: free, its own, or abandoned."""
    spec = observation.lease.spec
    if not spec.holder_identity or spec.holder_identity == settings.identity:
        return True
    # The holder's own duration counts, not ours: it may run with other settings.
    duration = spec.lease_duration_seconds or settings.duration_seconds
    return now_seconds - observation.since_seconds > duration


def next_look_seconds(
    observation: ObservedLease | None, settings: LeaseSettings, now_seconds: float, random: Random
) -> float:
    """The wait of a candidate until it reads the lease again.

    A candidate counts the duration from when it saw the last renewal, so it looks soon after each: a little before the
    next one is due, and then often until it has come. It looks again as soon as the lease may be taken.
    """
    usual = settings.retry_seconds * (1.0 + 0.2 * random.random())
    if observation is None or not observation.lease.spec.holder_identity:
        return usual
    age = now_seconds - observation.since_seconds
    left = (observation.lease.spec.lease_duration_seconds or settings.duration_seconds) - age
    look = usual
    if age < LATE_RENEWALS * settings.retry_seconds:
        look = max(EARLY * settings.retry_seconds - age, settings.retry_seconds / LOOKS_PER_RENEWAL)
    if left > 0:
        # Candidates that see the lease run out at the same moment need not all write.
        look = min(look, left + settings.retry_seconds / LOOKS_PER_RENEWAL * random.random())
    return look


def claimed(lease: Lease, settings: LeaseSettings, wall: datetime) -> Lease:
    """The lease with this candidate as holder, renewed at `wall`."""
    spec = lease.spec
    stamp = wall.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    same = spec.holder_identity == settings.identity
    transitions = spec.lease_transitions or 0
    return msgspec.structs.replace(
        lease,
        spec=LeaseSpec(
            holder_identity=settings.identity,
            # Whole seconds on the wire; less than the own time would let another lead while this one may still write.
            lease_duration_seconds=math.ceil(settings.duration_seconds),
            acquire_time=spec.acquire_time if same else stamp,
            renew_time=stamp,
            lease_transitions=transitions if same else transitions + 1,
        ),
    )


_STRUCTS = LEASES.of(Lease, complete=True)


class Elector:
    """Competes for a lease in its own thread.

    Give it a client of its own whose timeout is below the renew deadline: renewals must not queue behind
    other requests, and a hanging one must leave time for the next.

    `leading` is safe to ask from any thread and turns False by itself when renewals stop succeeding.
    `on_change` is called in the elector's thread with True on winning and False on losing.
    """

    def __init__(
        self,
        client: Client,
        settings: LeaseSettings,
        on_change: Callable[[bool], None] = lambda _: None,
        *,
        random: Random | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_change = on_change
        self._random = random or Random()
        self._observation: ObservedLease | None = None
        self._lead_until_seconds = float("-inf")
        self._told = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elector", daemon=True)

    @property
    def leading(self) -> bool:
        """True while this process holds the lease."""
        return time.monotonic() < self._lead_until_seconds

    @property
    def slack_seconds(self) -> float:
        """Time in which a write that was begun while leading must be over, lest it meets another leader."""
        return self._settings.slack_seconds

    def start(self) -> None:
        """Begin to compete."""
        self._thread.start()

    def stop(self) -> None:
        """Stop leading, then give the lease up, so that the next holder need not wait it out."""
        was_leading = self.leading
        self._lead_until_seconds = float("-inf")
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._settings.renew_deadline_seconds)
        self._notify()
        if was_leading:
            self._release()

    def try_once(self) -> bool:
        """One attempt to acquire or renew; returns whether this process leads afterwards."""
        started = time.monotonic()
        try:
            if self._attempt() and not self._stopping.is_set():
                self._lead_until_seconds = started + self._settings.renew_deadline_seconds
        except errors.Conflict as error:
            log.debug("lease %s changed under us: %s", self._settings.lease, error)
        except errors.ClusterError as error:
            log.warning("lease %s: %s", self._settings.lease, error)
        return self.leading

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.try_once()
                self._notify()
            except Exception:
                # Whatever a callback does, the lead must be renewed or lost knowingly.
                log.exception("lease %s", self._settings.lease)
            self._stopping.wait(self._pause_seconds())

    def _pause_seconds(self) -> float:
        # Jitter keeps candidates that started together from writing together for ever.
        observed = None if self.leading else self._observation
        return next_look_seconds(observed, self._settings, time.monotonic(), self._random)

    def _notify(self) -> None:
        if self.leading != self._told:
            self._told = not self._told
            self._on_change(self._told)

    def _attempt(self) -> bool:
        if self.leading and self._observation is not None:
            # A holder knows the version it wrote: one request instead of two on a slow server.
            self._write(self._observation.lease)
            return True
        lease = self._client.find(_STRUCTS, self._settings.lease)
        if lease is None:
            namespace, name = self._settings.lease
            lease = Lease(metadata=ObjectMeta(namespace=namespace, name=name))
            self._seen(self._client.create(_STRUCTS, claimed(lease, self._settings, datetime.now(UTC))))
            return True
        # The holder may have renewed while the answer was on its way: counted from when it came, not when it was asked.
        seen_seconds = time.monotonic()
        self._observation = observe(self._observation, lease, seen_seconds)
        if not may_take(self._observation, self._settings, seen_seconds):
            return False
        self._write(lease)
        return True

    def _write(self, lease: Lease) -> None:
        try:
            self._seen(self._client.update(_STRUCTS, claimed(lease, self._settings, datetime.now(UTC))))
        except errors.ClusterError:
            # Whether it was written is unknown, or another candidate wrote: read before the next write.
            self._observation = None
            raise

    def _seen(self, lease: Lease) -> None:
        self._observation = ObservedLease(lease, time.monotonic())

    def _release(self) -> None:
        try:
            lease = self._client.get(_STRUCTS, self._settings.lease)
            if lease.spec.holder_identity == self._settings.identity:
                free = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
                self._client.update(_STRUCTS, msgspec.structs.replace(lease, spec=free))
        except errors.ClusterError as error:
            log.info("lease %s is left to expire: %s", self._settings.lease, error)
