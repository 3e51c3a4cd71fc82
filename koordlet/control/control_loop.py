"""The control loop: verdicts and node state become intents, which the enforcer applies; trips act between ticks.

A trip of the kernel's tripwire applies the first rung at once; the next ticks keep it or revert it. Ticks and trips
take one lock, because the enforcer is the only writer.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec
import numpy as np

from api.frame import CGROUP, Reading, Table
from api.intents import Intent, Setting
from api.verdicts import Verdict
from detector.breaks import Between, no_breaks
from koordlet.config import AgentSettings, EnforcerSettings
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.fast_path import FastPath
from koordlet.control.harm import HarmMeter, tick_of
from koordlet.control.lease_thread import LeaseThread
from koordlet.control.node_view import NodeConfiguration, NodeViewBuilder
from koordlet.control.pod_requests import PodRequests
from koordlet.control.refusals import refusals
from koordlet.control.reports import ControlReports
from koordlet.control.rights import rights_of
from koordlet.control.slowdown import SlowdownMeter, tick_slowdown
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.control.trip_answers import TripAnswers
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EVICT, EnforcerEvent
from koordlet.enforcer.evictions.counts import BEGUN, EvictionCounts
from koordlet.enforcer.guardian.guardian import Guardian
from koordlet.enforcer.lifecycle import Enforcer, open_enforcer, open_knobs, own_cgroup
from koordlet.enforcer.outcomes import IntentResult, intent_results
from koordlet.host.files import HostTree
from koordlet.host.traffic.ingress import LEASE
from koordlet.identity.kubelet_policy import KubeletPolicyOf, no_kubelet_policy
from koordlet.identity.pods import FactsOf, annotated, no_pod_facts
from koordlet.response.ladders import cgroup_reads
from koordlet.response.observation import Observation, observe
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.response.steps import ResponseStep
from koordlet.tick import Tick
from probes.tripwire import Trip, Tripwire

_log = logging.getLogger(__name__)

_RECENT_STEPS = 100

_BY_DEFAULT = ("response", "runtime_hooks")
"""Strategies that are applied where enforcement is asked for without naming any."""


class IntentSource(Protocol):
    """What asks for settings in each tick besides response and strategies, such as a reconciler of protocol state."""

    @property
    def silent(self) -> Collection[str]:
        """Names of its strategies that cannot decide at present: their settings stay in effect."""

    def intents(self, tick: Tick) -> Sequence[Intent]:
        """All that it asks for; the enforcer compares with what is in effect."""


@dataclass(frozen=True, slots=True)
class HookFigures:
    """Counters of the runtime hooks by mode: `nri`, `runtime_proxy`."""

    calls: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Calls of the runtime by mode and method."""
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Calls that were answered with nothing because of an error."""
    slowest_seconds: Mapping[str, float] = field(default_factory=dict)
    connected: Mapping[str, bool] = field(default_factory=dict)
    """Whether a runtime asks at present, where that is known."""
    problems: int = 0
    """Rules that could not be followed for a pod or container."""


class _Everything(Collection[str]):
    """The collection that has every name."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


_EVERY_STRATEGY = _Everything()
"""No strategy is asked: what an earlier agent left stays until its lease ends."""


class ControlLoop:
    """Response, strategies and enforcer of one node. Call `step` once a tick; `close` restores every action."""

    def __init__(
        self,
        response: ResponsePolicy,
        enforcer: Enforcer,
        capabilities: CapabilityReader,
        *,
        strategies: StrategyRunner | None = None,
        node_view: NodeViewBuilder | None = None,
        facts_of: FactsOf = no_pod_facts,
    ) -> None:
        """Strategies run only with both `strategies` and `node_view`; `facts_of` gives facts of pods by uid."""
        self.strategies = strategies
        self.response = response
        self.enforcer = enforcer
        self.harm = HarmMeter()
        self.slowdown = SlowdownMeter()
        self.intent_counts: Mapping[tuple[str, IntentResult], int] = {}
        """Intents of the newest step by strategy and result."""
        self.steps: Counter[tuple[str, str, str]] = Counter()
        """Steps of the response by resource, rung and kind."""
        self.evictions = EvictionCounts()
        self.between: Between = no_breaks
        self.recent_steps: deque[tuple[float, ResponseStep]] = deque(maxlen=_RECENT_STEPS)
        """The newest steps with their wall-clock seconds, oldest first."""
        self.fast_path: FastPath | None = None
        self._capabilities = capabilities
        self._node_view = node_view
        self._facts_of = facts_of
        self._requests = PodRequests(facts_of)
        self._lock = threading.Lock()
        self._trip_answers = TripAnswers(self._lock, self._respond)
        enforcer.call_between(self._trip_answers.serve)
        self._is_enforcing = False
        self._has_postponed = False
        """Whether the answer to a trip needs a step of its own, after the present one."""
        self._observation: Observation | None = None
        self._intents: list[Intent] = []
        self._silent: frozenset[str] = frozenset()
        self._is_watch_failing = False
        self.reports: ControlReports | None = None
        """Taints and actions for the cluster; None where nothing is reported, or nothing is done."""
        self.sources: list[IntentSource] = []
        """Further sources of intents, asked in each tick."""
        self.hook_figures: Callable[[], HookFigures] = HookFigures
        """Counters of the runtime hooks, where there are any."""
        self.kubelet_policy_of: KubeletPolicyOf = no_kubelet_policy
        """The kubelet's own managers, whose files are left to it."""
        self.pods_known: Callable[[], bool] = lambda: True
        """Whether a source has told of the node's pods: until then nothing is begun, since any pod may be critical."""
        self.stop_reason_of: Callable[[], str] = str
        """Why nothing may be done at present, such as an annotation of the node; empty otherwise. Never waits."""
        self.guardian: Guardian | None = None
        """The process that restores actions when this one does not."""
        self.lease_thread: LeaseThread | None = None
        """Ends leases that no tick renews."""
        self._last_tick_seconds = time.monotonic()
        self._decided_seconds = self._last_tick_seconds
        """Time of the response's last step: a trip amid a tick is judged by this one, not by the end of the last."""
        self._has_begun = False
        self._is_eased = False
        """Whether actions ended because ticks stopped, and none was completed since."""
        self.name_of: Callable[[str], str] = str
        """Names of cgroups in the log, by path."""
        self._asked_by: dict[int, set[str]] = {}
        """Strategies that each source has asked for."""
        self._failing_sources: set[int] = set()

    def step(self, tick: Tick) -> None:
        """Observe, decide, enforce. Strategies decide without open verdicts too; settings that are due are released."""
        observation = self._observe(tick)
        self._watch(observation)
        self._measure(tick)
        self.between()
        if self.pods_known():
            by_strategies = [*self._ask_strategies(tick, observation.now_seconds), *self._ask_sources(tick)]
            self.between()
            with self._lock:
                self._wake_guardian()
                self._observation = observation
                self._silent = self._silent_strategies()
                self._intents = [*self.response.step(observation), *by_strategies]
                self._decided_seconds = time.monotonic()
                self._record(self.response.steps)
                self._enforce(self._intents, observation)
        else:
            with self._lock:
                self._wake_guardian()
                self.enforcer.step([], observation.cgroups, silent=_EVERY_STRATEGY, stopped=self.stop_reason_of())
        self._last_tick_seconds = time.monotonic()
        if self.guardian is not None:
            self.guardian.beat()

    def entitled_part(self, verdict: Verdict) -> float | None:
        """Return the part of a loss that lies below its victim's own share, as of the newest tick; None where no share
        is known."""
        observation = self._observation
        return None if observation is None else observation.entitled_part(verdict)

    def reading(self) -> Reading:
        """Weights and requests of the newest tick's cgroups, for the next frame: what a share goes by."""
        seen = self._observation
        if seen is None:
            return Reading({})
        columns = {"cpu.weight": seen.weights, "cpu.request_cores": seen.request_cores}
        ids = np.array([info.id for info in seen.cgroups], dtype=np.uint64)
        known = {name: column for name, column in columns.items() if column is not None}
        return Reading({CGROUP: Table({"cgroup": ids}, known)} if known else {})

    def _wake_guardian(self) -> None:
        """Have it watch before the first action is set, and again after a pause in which actions were restored; with
        the lock."""
        if not self._has_begun or self._is_paused():
            self._has_begun, self._is_eased = True, False
            if self.guardian is not None:
                self.guardian.beat()

    def _is_paused(self) -> bool:
        """Return whether ticks have stopped, so that actions were restored and none may begin before the next."""
        return self._is_eased or self._pause_seconds() > self.enforcer.longest_pause_seconds

    def _pause_seconds(self) -> float:
        """Time since a tick was completed."""
        return time.monotonic() - self._last_tick_seconds

    def _watch(self, observation: Observation) -> None:
        """Let the fast path watch the present cgroups; the slow path goes on where that fails."""
        if self.fast_path is None:
            return
        try:
            self.fast_path.watch(observation)
        except Exception:  # noqa: BLE001 - a full map or a lost tripwire must not keep settings from being released
            self.fast_path.failures += 1
            if not self._is_watch_failing:
                _log.exception("the fast path cannot watch all cgroups; the others are protected from tick to tick")
            self._is_watch_failing = True
        else:
            self._is_watch_failing = False

    def _observe(self, tick: Tick) -> Observation:
        host = self._capabilities.host(tick.window.cgroups)
        slowdown = None
        if tick.turnarounds is not None:
            slowdown = tick_slowdown(tick.turnarounds, tick.window.last.cgroup.ids)
        observation = observe(
            tick.window,
            tick.delta,
            tick.open_verdicts,
            host,
            slowdown,
            earlier=self._observation,
            believes_kubernetes=self.enforcer.rights.believes_kubernetes,
        )
        reads = cgroup_reads(observation, self.response.settings)
        requests = self._requests.columns(observation.cgroups)
        return observation.with_amounts(
            self._capabilities.with_cgroups(host, reads),
            weights=self._capabilities.weights(observation.cgroups, self.response.held_weights),
            request_cores=None if requests is None else requests[0],
            request_bytes=None if requests is None else requests[1],
        )

    def _measure(self, tick: Tick) -> None:
        lost_and_progress = tick_of(tick.delta)
        if lost_and_progress is not None:
            self.harm.add(tick.window.last.cgroup.ids, *lost_and_progress, tick.window.seconds)
        if tick.turnarounds is not None:
            self.slowdown.add(tick.turnarounds, tick.window.seconds)

    def _ask_strategies(self, tick: Tick, now_seconds: float) -> list[Intent]:
        if self.strategies is None or self._node_view is None or not self.strategies.is_asked:
            return []
        runner = self.strategies
        view = self._node_view.view(tick, runner.evictions, with_memory=runner.needs_memory_domains)
        if not view.node.network_bits_per_second and runner.network_bits_per_second:
            view = replace(view, node=replace(view.node, network_bits_per_second=runner.network_bits_per_second))
        view = replace(view, evictions_asked=runner.asked, evictions_refused=runner.refused(now_seconds))
        return self.strategies.decide(view, now_seconds)

    def _ask_sources(self, tick: Tick) -> list[Intent]:
        """A source that fails is silent: its actions stay until their lease ends; logged once in a row."""
        asked: list[Intent] = []
        for number, source in enumerate(self.sources):
            try:
                intents = source.intents(tick)
            except Exception:  # noqa: BLE001 - no source ends the tick, which has settings to release
                if number not in self._failing_sources:
                    _log.exception("%s failed; what it asked for stays until its lease ends", type(source).__name__)
                self._failing_sources.add(number)
                continue
            self._failing_sources.discard(number)
            self._asked_by.setdefault(number, set()).update(intent.strategy for intent in intents)
            asked += intents
        return asked

    @property
    def trips(self) -> Counter[str]:
        """Trips by outcome: acted, ignored; late, if they saw what was before a rung was lifted."""
        return self._trip_answers.counts

    def trip(self, trip: Trip) -> None:
        """Respond to the kernel's notice that a watched cgroup lost more than its budget."""
        outcome = self._trip_answers.take(trip)
        _log.debug(
            "trip: cgroup %d lost %.1f ms of %.1f ms to cgroup %d; %s, %.1f ms after the kernel saw it",
            trip.victim,
            trip.lost_ns / 1e6,
            trip.span_ns / 1e6,
            trip.culprit,
            outcome,
            (time.monotonic_ns() - trip.at_ns) / 1e6,
        )

    def _respond(self, trip: Trip) -> str:
        """Apply the first rung where that is allowed; returns the outcome."""
        observation = self._observation
        is_old = self._pause_seconds() > self.response.settings.lease_seconds
        if observation is None or is_old or self._is_paused():
            return "ignored"
        paths = {info.id: info.path for info in observation.cgroups}
        culprit, victim = paths.get(trip.culprit), paths.get(trip.victim)
        if culprit is None or victim is None:
            return "ignored"
        changed_seconds = max(self._last_tick_seconds, self._decided_seconds)
        if trip.at_ns - trip.span_ns < changed_seconds * 1e9 and self.response.is_lifted(culprit):
            return "late"
        lost = trip.lost_seconds_per_second
        intents = self.response.trip(observation, culprit, victim, resource="cpu", lost=lost)
        if not intents:
            return "ignored"
        steps = self.response.steps
        settings = [intent for intent in self._intents if isinstance(intent, Setting)]
        self._intents = [*settings, *intents]  # one-shot actions were done in the tick
        self._enforce_alone(intents, observation)
        self._record(steps)  # the log can wait
        return "acted"

    def _enforce_alone(self, intents: Sequence[Intent], observation: Observation) -> None:
        """Carry out the answer to a trip and leave all else as it is; a whole step where it is not independent."""
        events = None
        new = [intent for intent in intents if isinstance(intent, Setting)]
        if len(new) == len(intents) and not self.stop_reason_of():
            wanted = [intent for intent in self._intents if isinstance(intent, Setting)]
            events = self.enforcer.apply_now(new, wanted, silent=self._silent)
        if events is not None:
            self.response.note_refusals(refusals(events), observation.now_seconds)
            if self.reports is not None:
                self.reports.note(events, new, time.time())
        elif self._is_enforcing:
            self._has_postponed = True
        else:
            self._enforce(self._intents, observation, is_tick=False)

    def close(self, *, handover_seconds: float = 0.0) -> None:
        """Restore every action, or leave them for so long to the agent that follows; idempotent."""
        if self.fast_path is not None:
            self.fast_path.close()
        if self.lease_thread is not None:
            self.lease_thread.close()
        with self._lock:
            self.enforcer.close(handover_seconds=handover_seconds)
            until = self.enforcer.handed_over_until
        guardian, self.guardian = self.guardian, None
        if guardian is None:
            return
        if until is None:
            guardian.close()
        else:
            guardian.hand_over(until)

    def _enforce(self, intents: list[Intent], observation: Observation, *, is_tick: bool = True) -> None:
        self._is_enforcing = True
        try:
            self._enforce_once(intents, observation, is_tick=is_tick)
        finally:
            self._is_enforcing = False
        if self._has_postponed:
            self._has_postponed = False
            self._enforce(self._intents, observation, is_tick=False)

    def _enforce_once(self, intents: list[Intent], observation: Observation, *, is_tick: bool) -> None:
        silent = self._silent
        marked = annotated(observation.cgroups, self._facts_of)
        wall_seconds = time.time()
        travelling: list[EnforcerEvent] = []
        requested = intents
        if self.reports is not None:
            intents, travelling = self.reports.take_taints(intents, silent, observation.now_seconds, wall_seconds)
        events = self.enforcer.step(
            intents,
            observation.cgroups,
            silent=silent,
            annotated=marked,
            kubelet=self.kubelet_policy_of(),
            is_tick=is_tick,
            stopped=self.stop_reason_of(),
        )
        self.intent_counts = intent_results(requested, [*events, *travelling])
        if not self.enforcer.is_dry_run:
            self.evictions.note(events, observation.cgroups)
        self.response.note_refusals(refusals(events), observation.now_seconds)
        if self.reports is not None:
            self.reports.note(events, requested, wall_seconds)
        if self.strategies is None:
            return
        for event in events:
            if event.knob == EVICT:
                self._tell_of_eviction(self.strategies, event, observation.now_seconds)

    @staticmethod
    def _tell_of_eviction(strategies: StrategyRunner, event: EnforcerEvent, now_seconds: float) -> None:
        """Only evictions that began count; pods whose eviction was refused give way to others."""
        if event.outcome in BEGUN:
            strategies.note_eviction(event.target, now_seconds)
        elif event.outcome is Outcome.EVICTING:
            strategies.note_request(event.target)
        elif event.outcome not in (Outcome.COOLDOWN, Outcome.KILLED):
            strategies.note_refusal(event.target, now_seconds)

    def in_effect(self) -> list[tuple[Setting, tuple[str, ...]]]:
        """The settings in effect with the texts that were there before; any thread may call."""
        with self._lock:
            originals = self.enforcer.originals()
            return [(setting, originals.get(owner, ())) for owner, setting in self.enforcer.active_settings().items()]

    def follow(self, enforcer: EnforcerSettings, response: ResponseSettings) -> None:
        """Follow other settings from the next step on; episodes of the response that have begun go on as they began,
        but for what the classes that may be limited no longer allow."""
        with self._lock:
            self.enforcer.follow(enforcer)
            self.response.settings = response
        if self.fast_path is not None:
            self.fast_path.follow(response)

    def watch_leases(self) -> None:
        """End leases beside the tick, too, from now on."""

        def ease() -> None:
            self._is_eased = True
            if self.guardian is not None:
                self.guardian.ease()

        pause_seconds = self.enforcer.longest_pause_seconds
        self.lease_thread = LeaseThread(self._lock, self.enforcer.look_after_actions, pause_seconds, ease)

    def take_breaks(self, between: Between) -> None:
        """Call this between the parts of a step that hold no lock, so that a tick may be spread."""
        self.between = between
        if self._node_view is not None:
            self._node_view.between = between

    def follow_node(self, configuration_of: Callable[[], NodeConfiguration]) -> None:
        """Have strategies see the node as its object and its kubelet describe it."""
        if self._node_view is not None:
            self._node_view.configuration_of = configuration_of

    def _silent_strategies(self) -> frozenset[str]:
        """Return who could not decide in this tick. Kept with its intents: a trip may come while the next are made."""
        silent = set(self.strategies.silent if self.strategies is not None else ())
        for source in self.sources:
            silent |= set(source.silent)
        for number in self._failing_sources:
            silent |= self._asked_by.get(number, set())
        return frozenset(silent)

    def ask_now(self, settings: Sequence[Setting]) -> None:
        """Apply settings of cgroups that were just made, beside those of the newest tick; any thread may call.

        A caller has to ask for them in the next tick, too. Nothing before the first tick; where ticks have stopped no
        action of the newest one.
        """
        with self._lock:
            if self._observation is None:
                return
            if self._is_paused():
                self._intents = [one for one in self._intents if isinstance(one, Setting) and one.protocol_state]
            self._intents = [*(one for one in self._intents if isinstance(one, Setting)), *settings]
            self._enforce(self._intents, self._observation, is_tick=False)

    def _record(self, steps: Sequence[ResponseStep]) -> None:
        now = time.time()
        for step in steps:
            self.recent_steps.append((now, step))
            self.steps[step.resource, step.rung, step.kind] += 1
            _log.info(
                "%s %s on %s for %s (%s): lost %s before, %.2f s/s now",
                step.rung,
                step.kind.value.replace("_", " "),
                self.name_of(step.culprit),
                self.name_of(step.victim),
                step.reason,
                f"{step.before:.2f} s/s" if step.before == step.before else "what is not known",
                step.after,
            )


def with_enforcement(settings: AgentSettings, *, enforce: bool) -> AgentSettings:
    """The settings that acting needs: `enforce` turns enforcement on, and the response's fast path needs a tripwire."""
    enforcer = settings.enforcer
    if enforce:
        enforcer = msgspec.structs.replace(enforcer, enabled=True, strategies=enforcer.strategies or _BY_DEFAULT)
    probes = settings.probes
    if enforcer.enabled and settings.response.fast_path and settings.detection.enabled:
        cpu = {"tripwire": True} | probes.options.get("cpu", {})
        probes = msgspec.structs.replace(probes, options=probes.options | {"cpu": cpu})
    return msgspec.structs.replace(settings, enforcer=enforcer, probes=probes)


def open_control_loop(
    settings: AgentSettings,
    tree: HostTree,
    tripwire: Tripwire | None = None,
    strategies: StrategyRunner | None = None,
    facts_of: FactsOf = no_pod_facts,
) -> ControlLoop:
    """A control loop ready for its first tick; without `[enforcer] enabled` it only audits what it would do.

    `tripwire` is that of the cpu probe, if it is attached; `facts_of` gives facts of pods by uid.

    Raises JournalError where the state directory cannot be used, Unsupported without a cpu hierarchy.
    """
    enforcer_settings = settings.enforcer
    if not enforcer_settings.enabled:
        enforcer_settings = msgspec.structs.replace(enforcer_settings, dry_run=True, strategies=("*",))
    LEASE.follow(settings.interval_seconds)
    enforcer = open_enforcer(enforcer_settings, tree)
    knobs = open_knobs(enforcer_settings, tree)
    node_view = None
    if strategies is not None:
        node_view = NodeViewBuilder(
            tree,
            knobs,
            facts_of,
            settings=settings.strategies,
            network_bits_per_second=enforcer_settings.network_bits_per_second,
            may_evict=enforcer_settings.evict,
        )
    response = ResponsePolicy(settings.response, is_dry_run=enforcer_settings.dry_run)
    enforcer.rights = rights_of(
        lambda: response.settings.limited_classes, strategies, believes_kubernetes=facts_of is not no_pod_facts
    )
    control = ControlLoop(
        response,
        enforcer,
        CapabilityReader(tree, knobs, own_cgroup(tree)),
        strategies=strategies,
        node_view=node_view,
        facts_of=facts_of,
    )
    if enforcer_settings.guardian and not enforcer_settings.dry_run:
        control.guardian = Guardian(enforcer_settings, tree, adopted_until=enforcer.adopted_until)
    if not enforcer_settings.dry_run:
        control.watch_leases()
    if tripwire is not None:
        control.fast_path = FastPath(tripwire, control.trip, settings.response)
    return control
