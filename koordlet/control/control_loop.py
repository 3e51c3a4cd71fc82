"""Protection inside the agent: verdicts become intents, intents become settings; and the fast path beside the tick.

The fast path is a thread that sleeps on the kernel's tripwire. A trip pulls the first rung at once, decided beforehand;
the tick confirms it or takes it back. Both go through one lock, because the enforcer is the only writer.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from api.frame import CgroupInfo
from api.intents import Intent, Setting
from api.qos import QoSClass
from api.verdicts import Verdict
from api.window import Window
from detector.judging.signals import Turnarounds
from koordlet.config import AgentSettings
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.harm import HarmMeter, tick_of
from koordlet.control.node_view import NodeViewBuilder
from koordlet.control.slowdown import SlowdownMeter
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.lifecycle import Enforcer, open_enforcer, open_knobs, own_cgroup
from koordlet.enforcer.outcomes import IntentResult, intent_results
from koordlet.host.files import HostTree
from koordlet.identity.pods import FactsOf, annotated, no_pod_facts
from koordlet.response.episode import ResponseStep
from koordlet.response.ladders import cgroup_reads
from koordlet.response.observation import SENSITIVE_RANK, Observation, observe
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from probes.tripwire import Trip, Tripwire

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2


class ControlLoop:
    """Told after each tick; `close` puts everything back."""

    def __init__(
        self,
        response: ResponsePolicy,
        enforcer: Enforcer,
        reaching: CapabilityReader,
        *,
        strategizing: StrategyRunner | None = None,
        viewing: NodeViewBuilder | None = None,
        facts_of: FactsOf = no_pod_facts,
    ) -> None:
        """Strategies need a viewing; without both only verdicts are answered."""
        self.strategizing = strategizing
        self.response = response
        self.enforcer = enforcer
        self.harm = HarmMeter()
        self.slowdown = SlowdownMeter()
        self.wishes: Mapping[tuple[str, IntentResult], int] = {}
        """By strategy, what became of the wishes of the newest step."""
        self.steps: Counter[tuple[str, str, str]] = Counter()
        """Rungs by resource, rung and what happened to them."""
        self.trips: Counter[str] = Counter()
        """Trips by what came of them: acted, ignored."""
        self.fast: FastPath | None = None
        self._reaching = reaching
        self._viewing = viewing
        self._facts_of = facts_of
        self._lock = threading.Lock()
        self._sight: Observation | None = None
        self._wanted: list[Intent] = []

    def tick(self, window: Window, verdicts: tuple[Verdict, ...], turnarounds: Turnarounds | None = None) -> None:
        """Look, decide, act; `verdicts` are those that stand, `turnarounds` what the judge saw of requests."""
        delta = window.delta()
        host = self._reaching.host(window.cgroups)
        seen = observe(window, delta, verdicts, host)
        reads = cgroup_reads(seen, self.response.settings)
        seen = replace(seen, reach=self._reaching.with_cgroups(host, reads))
        if self.fast is not None:
            self.fast.watch(seen)
        measured = tick_of(delta)
        if measured is not None:
            self.harm.add(window.last.cgroup.ids, *measured, window.seconds)
        if turnarounds is not None:
            self.slowdown.add(turnarounds, window.seconds)
        by_strategies: list[Intent] = []
        if self.strategizing is not None and self._viewing is not None:
            asks_for_memory = self.strategizing.asks_for_memory
            view = self._viewing.view(window, self.strategizing.evictions, with_memory=asks_for_memory)
            by_strategies = self.strategizing.decide(view, seen.now_seconds)
        with self._lock:
            self._sight = seen
            self._wanted = [*self.response.step(seen), *by_strategies]
            self._tell(self.response.steps)
            self._enforce(self._wanted, seen)

    def trip(self, trip: Trip) -> None:
        """Word from the kernel that a watched cgroup loses too much."""
        with self._lock:
            outcome = self._answer(trip)
        self.trips[outcome] += 1
        _log.debug(
            "trip: cgroup %d lost %.1f ms of %.1f ms to cgroup %d; %s, %.1f ms after the kernel saw it",
            trip.victim,
            trip.lost_ns / 1e6,
            trip.span_ns / 1e6,
            trip.culprit,
            outcome,
            (time.monotonic_ns() - trip.at_ns) / 1e6,
        )

    def _answer(self, trip: Trip) -> str:
        """Pull the first rung where it may be pulled; what came of it."""
        seen = self._sight
        paths = {info.id: info.path for info in seen.cgroups} if seen is not None else {}
        if seen is None or trip.victim not in paths or trip.culprit not in paths:
            return "ignored"
        culprit, victim = paths[trip.culprit], paths[trip.victim]
        wanted = self.response.trip(seen, culprit, victim, resource="cpu", lost=trip.lost_seconds_per_second)
        if not wanted:
            return "ignored"
        self._tell(self.response.steps)
        standing = [intent for intent in self._wanted if isinstance(intent, Setting)]
        self._wanted = [*standing, *wanted]  # what is done once was done in the tick
        self._enforce(self._wanted, seen)
        return "acted"

    def close(self) -> None:
        """Put back all that stands; idempotent."""
        if self.fast is not None:
            self.fast.close()
        with self._lock:
            self.enforcer.close()

    def _enforce(self, wanted: list[Intent], seen: Observation) -> None:
        silent = self.strategizing.silent if self.strategizing is not None else frozenset()
        marked = annotated(seen.cgroups, self._facts_of)
        events = self.enforcer.step(wanted, seen.cgroups, silent=silent, annotated=marked)
        self.wishes = intent_results(wanted, events)
        if self.strategizing is None:
            return
        for event in events:
            if event.outcome is Outcome.TERMINATED:
                self.strategizing.note_eviction(event.target, seen.now_seconds)

    def _tell(self, steps: Sequence[ResponseStep]) -> None:
        for step in steps:
            self.steps[step.resource, step.rung, step.kind] += 1
            _log.info(
                "%s %s on %s for %s (%s): lost %.2f s/s before, %.2f now",
                step.rung,
                step.kind.value.replace("_", " "),
                step.culprit,
                step.victim,
                step.reason,
                step.before,
                step.after,
            )


def with_enforcement(settings: AgentSettings, *, enforce: bool) -> AgentSettings:
    """The settings with what acting needs: with `enforce` it is turned on, and whoever acts lays the tripwire."""
    enforcing = settings.enforcer
    if enforce:
        enforcing = msgspec.structs.replace(enforcing, enabled=True, strategies=enforcing.strategies or ("response",))
    probes = settings.probes
    if enforcing.enabled and settings.response.fast_path:
        cpu = {"tripwire": True} | probes.options.get("cpu", {})
        probes = msgspec.structs.replace(probes, options=probes.options | {"cpu": cpu})
    return msgspec.structs.replace(settings, enforcer=enforcing, probes=probes)


def open_control_loop(
    settings: AgentSettings,
    tree: HostTree,
    wire: Tripwire | None = None,
    strategizing: StrategyRunner | None = None,
    facts_of: FactsOf = no_pod_facts,
) -> ControlLoop:
    """Ready for the first tick; without `[enforcer] enabled` it only says what it would do.

    `wire` is the tripwire in the kernel, if one was laid; `facts_of` tells of pods.

    Raises JournalError where the state directory cannot be used, Unsupported without a cpu hierarchy.
    """
    enforcing = settings.enforcer
    if not enforcing.enabled:
        enforcing = msgspec.structs.replace(enforcing, dry_run=True, strategies=("*",))
    enforcer = open_enforcer(enforcing, tree)
    knobs = open_knobs(enforcing, tree)
    protection = ControlLoop(
        ResponsePolicy(settings.response),
        enforcer,
        CapabilityReader(tree, knobs, own_cgroup(tree)),
        strategizing=strategizing,
        viewing=NodeViewBuilder(
            tree,
            knobs,
            facts_of,
            settings=settings.strategies,
            network_bits_per_second=enforcing.network_bits_per_second,
        )
        if strategizing is not None
        else None,
        facts_of=facts_of,
    )
    if wire is not None:
        protection.fast = FastPath(wire, protection.trip, settings.response)
    return protection


class FastPath:
    """Watches the latency-sensitive cgroups in the kernel and passes their trips on."""

    def __init__(self, wire: Tripwire, on_trip: Callable[[Trip], None], settings: ResponseSettings) -> None:
        self._wire = wire
        self._on_trip = on_trip
        window_ns = int(settings.fast_path_window_seconds * 1e9)
        self._limits = (int(window_ns * settings.fast_path_budget_ratio), window_ns)
        self._watched: tuple[CgroupInfo, ...] = ()
        self._stop = threading.Event()
        self.failures = 0
        self._thread = threading.Thread(target=self._listen, name="fast-path", daemon=True)
        self._thread.start()

    def watch(self, observe: Observation) -> None:
        """Latency-sensitive cgroups, for what they lose to those that may be acted upon for them."""
        if observe.cgroups == self._watched:
            return
        victims = {info.id: self._limits for info in observe.cgroups if QoSClass(info.qos).latency_sensitive}
        culprits = {
            info.id for info in observe.cgroups if info.path != "/" and observe.highest_rank(info.path) < SENSITIVE_RANK
        }
        self._wire.watch(victims, culprits)
        self._watched = observe.cgroups

    def close(self) -> None:
        """Stop listening; the wire is the probe's to close. Idempotent."""
        self._stop.set()
        self._thread.join()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                for trip in self._wire.wait(_POLL_SECONDS):
                    self._on_trip(trip)
            except Exception:  # noqa: BLE001 - the slow path goes on without the fast one; counted, logged once
                self.failures += 1
                if self.failures == 1:
                    _log.exception("the fast path failed; trying again")
                time.sleep(_POLL_SECONDS)
