"""The enforcer's step: intents are checked, planned, ordered, journalled, written and audited."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from api.frame import CgroupInfo
from api.intents import Evict, Intent, Knob, Reclaim, Setting, Strength
from api.qos import QoSClass, QoSSource
from koordlet.config import EnforcerSettings
from koordlet.enforcer.active_state import ActiveState, Births, SettledState
from koordlet.enforcer.apply import Applier
from koordlet.enforcer.audit import AuditFile, Line, Outcome
from koordlet.enforcer.conflicts import Owner, Wanted, resolve_layers
from koordlet.enforcer.decisions import Decisions
from koordlet.enforcer.events import Clocks, EnforcerEvent, EventLog, StepClock, of_intent
from koordlet.enforcer.evictions.by_api import PodEvictions, PodEvictor
from koordlet.enforcer.evictions.by_signal import Evictions
from koordlet.enforcer.evictions.pace import Pace
from koordlet.enforcer.guardian.restoring import damage
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.leases import ChangeOfLeases, Lease, Leases, groups_of
from koordlet.enforcer.limits.blast_radius import BlastRadius
from koordlet.enforcer.limits.nested_quotas import NestedQuotas
from koordlet.enforcer.limits.rights import UNRESTRICTED, Rights, RightsOnFrame
from koordlet.enforcer.oneshot import OneShotActions
from koordlet.enforcer.plan import Planner
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.reclaim import Reclaimer
from koordlet.enforcer.upkeep import Upkeep
from koordlet.enforcer.writer import Writer
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.table import check
from koordlet.identity.kubelet_policy import NO_KUBELET_POLICY, KubeletPolicy
from koordlet.identity.pods import PodTableOf

_UNCLAIMED_SECONDS = 600.0
"""Time for which protocol state of an earlier run stays while its strategy has not asked for anything."""
ADOPTED_SECONDS = 60.0
"""Least time for which adopted actions wait for decisions, which take probes, the NodeSLO and two ticks."""
ANSWER = "response"
"""Strategy whose actions answer verdicts."""
_TOGETHER: Mapping[Knob, tuple[Knob, ...]] = {
    Knob.CPU_IDLE: (Knob.CPU_IDLE, Knob.CPU_WEIGHT),
    Knob.CPU_WEIGHT: (Knob.CPU_IDLE, Knob.CPU_WEIGHT),
    Knob.CPU_BVT: (Knob.CPU_BVT,),
    Knob.CPU_BURST: (Knob.CPU_BURST,),
}
"""Knobs that may be set alone, with those of the same cgroup that they may be in conflict with."""


class Enforcer:
    """Applies the intents that are allowed, and restores every setting that is no longer asked for."""

    def __init__(
        self, settings: EnforcerSettings, knobs: Knobs, journal: Journal | NoJournal, *, writer: Writer, own: str
    ) -> None:
        """`own` is the path of the agent's own cgroup. `open_enforcer` is the usual way in."""
        self._settings = settings
        self._own = own
        self._journal = journal
        self._clock = clock = StepClock()
        self._log = log = EventLog(_audit_file(settings), clock, dry_run=settings.dry_run)
        self._leases = leases = Leases(journal, writer, log, clock, settings.foreign_write_backoff_seconds)
        self._upkeep = Upkeep(leases, log, clock, settings.guardian_seconds)
        self._applier = Applier(knobs, writer, journal, leases, log, clock)
        self._births = Births(knobs, writer)
        self._nested_quotas = NestedQuotas(knobs)
        planner = Planner(knobs, writer, clock)
        self._decisions = Decisions(
            settings, planner, self._applier, leases, self._births, self._nested_quotas, log, clock
        )
        self._pace = Pace(settings.evict_cooldown_seconds, settings.evictions_per_hour)
        evictions = Evictions(
            writer,
            lambda target: knobs.directory("cpu", target),
            self._pace,
            enabled=settings.evict,
        )
        reclaimer = Reclaimer(knobs, writer, journal, leases)
        self._one_shot = OneShotActions(reclaimer, evictions, self._decisions.budgets, log, clock)
        self._radius = BlastRadius(settings.max_limited_ratio, settings.max_frozen)
        self.rights: Rights = UNRESTRICTED
        """What each strategy may act upon; set before the first step."""
        self._protection = ProtectedCgroups(settings.protected, {}, frozenset(), own, settings.only)
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._state = ActiveState()
        self._unpublished = ChangeOfLeases()
        self._settled = SettledState()
        self._spoken: set[str] = set()
        """Strategies that have asked for a setting since the start."""
        self._started = 0.0
        self._is_closed = False
        self._has_new_limits = False
        self._under_way: frozenset[Owner] = frozenset()
        """What is being decided and written."""
        self.handed_over_until: float | None = None
        """Monotonic second until which a successor may take the actions over, once it is closed so."""
        self.adopted_until: float | None = None
        """Monotonic second until which actions of an earlier run wait for decisions; None where it left none."""

    @property
    def counts(self) -> dict[tuple[str, str, str], int]:
        """Number of events by (strategy, knob, outcome); `("", "journal", "failed")` and `("", "audit", "lost")`
        count batches and lines that could not be written."""
        own = {("", "journal", "failed"): self._journal.failures, ("", "audit", "lost"): self._log.lost_lines}
        return {**self._log.counts, **own}

    @property
    def recent(self) -> tuple[Line, ...]:
        """The newest lines of the audit, oldest first."""
        return tuple(self._log.recent)

    def active_settings(self) -> dict[Owner, Setting]:
        """The settings in effect."""
        return {owner: lease.setting for owner, lease in self._leases.active.items()}

    def originals(self) -> dict[Owner, tuple[str, ...]]:
        """The texts that were found where the settings in effect are; none where the value was there already."""
        return {
            owner: tuple(dict.fromkeys(entry.original for entry in lease.entries.values()))
            for owner, lease in self._leases.active.items()
        }

    def follow(self, settings: EnforcerSettings) -> None:
        """Follow other limits, from the next step on: strategies, cgroups that may be changed, budgets."""
        self._settings = msgspec.structs.replace(
            self._settings,
            strategies=settings.strategies if settings.enabled else self._settings.strategies,
            only=settings.only,
            protected=settings.protected,
        )
        self._decisions.follow(settings)
        self._has_new_limits = True

    def look_after_actions(self) -> bool:
        """End actions whose lease is over because no step renewed it, restore what the kernel refused before, and set
        again what systemd set back; return whether nothing is left of a stopped tick.

        For a thread beside the steps, with the lock of the steps.
        """
        if self._is_closed:
            return True
        try:
            return self._upkeep.look_after()
        finally:
            self._publish()

    def evict_pods_by(self, evictor: PodEvictor, pods_of: PodTableOf) -> None:
        """Evict the pods of this table through the API server; without, no pod of the kubelet is evicted."""
        evictions = PodEvictions(
            evictor, self._pace, with_ownerless=self._settings.evict_ownerless, is_dry=self._settings.dry_run
        )
        self._one_shot.evict_pods_by(evictions, pods_of)

    @property
    def is_dry_run(self) -> bool:
        """Whether events tell of what would be done, and nothing is."""
        return self._settings.dry_run

    @property
    def longest_pause_seconds(self) -> float:
        """Time between two ticks that no action outlives."""
        return self._upkeep.longest_seconds

    def held_protocol_state(self) -> dict[Owner, Setting]:
        """Protocol state that is held, in effect or below an action."""
        layers = (one for lease in self._leases.active.values() for one in lease.layers)
        return {(one.target, one.knob): one for one in layers if one.protocol_state}

    def holds(self, setting: Setting) -> bool:
        """Return whether protocol state has its value, in effect or below an action."""
        leases = (self._leases.active.get((setting.target, knob)) for knob in (setting.knob, Knob.CPU_IDLE))
        layers = (one for lease in leases if lease is not None for one in lease.layers)
        return any(one.protocol_state and one.knob == setting.knob and one.value == setting.value for one in layers)

    def active_state(self) -> ActiveState:
        """The settings in effect after the newest step; may be called from any thread."""
        return self._state

    def adopt(self, now: Clocks | None = None) -> list[EnforcerEvent]:
        """Take over what an earlier run left in the journal.

        Protocol state stays in effect until its strategy stops asking for it. Actions are restored, unless the run
        handed them over and its deadline has not passed: then they wait for the new decisions, a minute at least.
        """
        self._clock.start_step(now)
        self._started = self._clock.monotonic_seconds
        deadline = None
        if isinstance(self._journal, Journal):
            if self._journal.damaged_copy is not None:
                self._log.emit(damage(self._journal))
            deadline = self._journal.handover_until
            if deadline is not None and deadline <= self._clock.monotonic_seconds:
                deadline = None
            if deadline is not None:
                deadline = max(deadline, self._clock.monotonic_seconds + ADOPTED_SECONDS)
        self.adopted_until = deadline
        self._leases.adopt(list(self._journal.live.values()), deadline)
        self._publish()
        return self._log.end_step()

    def restore_everything(self, now: Clocks | None = None) -> list[EnforcerEvent]:
        """Restore actions and protocol state."""
        self._clock.start_step(now)
        self._leases.release_all("everything is restored")
        return self._log.end_step()

    def step(
        self,
        intents: Iterable[Intent],
        cgroups: Sequence[CgroupInfo] | None = None,
        now: Clocks | None = None,
        *,
        silent: Collection[str] = (),
        annotated: Collection[str] = (),
        kubelet: KubeletPolicy = NO_KUBELET_POLICY,
        is_tick: bool = True,
        stopped: str = "",
    ) -> list[EnforcerEvent]:
        """Make the node's settings those that `intents` ask for; return the outcome of each.

        `intents` are complete: a setting that is not among them is restored at once, unless its strategy is one of
        `silent` (it could not decide), in which case it stays in effect until its lease ends; protocol state has no
        such end. `cgroups` are the present ones, with their classes; None if they are as before. `annotated` are paths
        that are protected by annotation. A step between two ticks (`is_tick` False) does not count as a sign of life.
        With a reason to be `stopped`, or while the file `[enforcer] stop_file` is there, every action ends, none begins
        and protocol state stays as it is. Does nothing once closed.
        """
        if self._is_closed:
            return []
        self._clock.start_step(now)
        pause_seconds, longest_seconds = self._upkeep.pause_seconds, self._upkeep.longest_seconds
        is_late = pause_seconds > longest_seconds
        until_seconds = time.monotonic() + longest_seconds - (0.0 if is_late else pause_seconds)
        self._applier.until_seconds = self._leases.until_seconds = until_seconds
        if is_tick:
            self._upkeep.note_tick()
        if is_late:
            self._leases.end_all_actions(f"no step for {pause_seconds:.0f} s")
        self._update_protection(cgroups, annotated, kubelet)
        requested = list(intents)
        stopped = stopped or self._stop_file_reason()
        if stopped:
            return self._stop(requested, stopped)
        settings = [intent for intent in requested if isinstance(intent, Setting)]
        self._spoken |= {one.strategy for one in settings} - set(silent)
        self._leases.verify()
        settings += self._nested_quotas.settings(
            settings, self._cgroups, self._leases.active, self._leases.backoff_reason
        )
        born = self._births.settings(settings, self._leases.active)
        settled = self._settled.owners(self._leases.active, [*settings, *born], self._protection, silent)
        loose = {owner: lease for owner, lease in self._leases.active.items() if owner not in settled}
        carried = self._carried(settings, silent, loose)
        winners = self._resolve([*settings, *born], carried)
        self._leases.retry()
        self._release(winners, silent, settled)
        self._carry_out(winners, carried)
        self._act([intent for intent in requested if isinstance(intent, Reclaim | Evict)])
        self._publish()
        return self._log.end_step()

    def call_between(self, between: Callable[[], None]) -> None:
        """Call this between two plans and between two writes of a step: it may `apply_now` what is urgent."""
        self._decisions.between = between

    def apply_now(
        self,
        new: Sequence[Setting],
        wanted: Iterable[Setting],
        now: Clocks | None = None,
        *,
        silent: Collection[str] = (),
    ) -> list[EnforcerEvent] | None:
        """Apply these settings and look at nothing else: all other settings stay as they are; return their outcomes.

        None, and nothing done, where it takes a whole step. It does not for weights, `cpu.idle` and bursts of cgroups
        for which nothing of the kind is under way. `wanted` is all that is asked for, the new ones included; rules of
        protection are those of the newest step.
        """
        owners = {(one.target, knob) for one in new for knob in _TOGETHER.get(one.knob, ())}
        if not self._under_way:
            self._clock.start_step(now)
        if self._is_closed or not self._may_be_alone(new, owners):
            return None
        began = self._log.pending
        if not self._under_way:
            left_seconds = self._upkeep.longest_seconds - self._upkeep.pause_seconds
            self._applier.until_seconds = time.monotonic() + left_seconds
        settings = [one for one in wanted if (one.target, one.knob) in owners]
        for owner in owners & self._leases.active.keys():
            self._leases.verify_one(owner)
        leases = {owner: self._leases.active[owner] for owner in owners & self._leases.active.keys()}
        carried = self._carried(settings, silent, leases)
        self._carry_out(self._resolve(settings, carried), carried)
        self._publish()
        return self._log.take_since(began)

    def _may_be_alone(self, new: Sequence[Setting], owners: Collection[Owner]) -> bool:
        if not all(one.knob in _TOGETHER and one.strength is Strength.INVISIBLE for one in new):
            return False
        if self._has_new_limits or self._stop_file_reason() or not self._under_way.isdisjoint(owners):
            return False
        has_ticked = self._upkeep.last_tick_seconds is not None
        is_late = self._upkeep.pause_seconds > self._upkeep.longest_seconds
        if not self._under_way and (not has_ticked or is_late):
            return False
        asked = {(one.target, one.knob) for one in new}
        others = (self._leases.active.get(owner) for owner in owners if owner not in asked)
        return all(lease is None or lease.setting.protocol_state for lease in others)

    def _stop_file_reason(self) -> str:
        """A file that cannot be looked at is one that is not there."""
        path = self._settings.stop_file
        return f"{path} is there" if path and os.path.lexists(path) else ""

    def _stop(self, requested: Iterable[Intent], reason: str) -> list[EnforcerEvent]:
        self._leases.verify()
        self._leases.retry()
        self._leases.end_all_actions(reason)
        for intent in requested:
            if not (isinstance(intent, Setting) and intent.protocol_state):
                self._log.emit(of_intent(intent, Outcome.REFUSED, reason))
        self._publish()
        return self._log.end_step()

    def _carried(
        self, requested: Iterable[Setting], silent: Collection[str], leases: Mapping[Owner, Lease]
    ) -> list[Setting]:
        """Settings of these leases that are not requested and stay: of silent strategies, and left by an earlier
        run."""
        asked = {(one.target, one.knob, one.protocol_state) for one in requested}
        return [
            one
            for lease in leases.values()
            for one in lease.layers
            if (one.target, one.knob, one.protocol_state) not in asked and self._stays(one, lease, silent)
        ]

    def _stays(self, setting: Setting, lease: Lease, silent: Collection[str]) -> bool:
        now = self._clock.monotonic_seconds
        is_silent = setting.strategy in silent
        if not setting.protocol_state:
            return (is_silent or lease.is_inherited) and lease.end_seconds > now
        is_unclaimed = lease.is_inherited and setting.strategy not in self._spoken
        return is_silent or (is_unclaimed and now - self._started < _UNCLAIMED_SECONDS)

    def _publish(self) -> None:
        if not self._unpublished.since_last(self._leases.active):
            return
        self._state = self._state.next(self._leases.active)

    def _act(self, intents: list[Reclaim | Evict]) -> None:
        allowed = [intent for intent in intents if self._is_allowed(intent)]
        self._one_shot.start_step()
        for intent in allowed:
            if isinstance(intent, Reclaim):
                self._one_shot.reclaim(intent, self._protection)
        self._one_shot.evict([intent for intent in allowed if isinstance(intent, Evict)], self._protection)

    def _update_protection(
        self, cgroups: Sequence[CgroupInfo] | None, annotated: Collection[str], kubelet: KubeletPolicy
    ) -> None:
        present = self._cgroups if cgroups is None else tuple(cgroups)
        marked, known = frozenset(annotated), self._protection
        if (
            present == self._cgroups
            and marked == known.annotated
            and kubelet == known.kubelet
            and not self._has_new_limits
        ):
            return
        self._has_new_limits = False
        if present != self._cgroups:
            self._births.see((info.path for info in present), self._clock.monotonic_seconds)
        self._cgroups = present
        rights = RightsOnFrame.of(self.rights, present)
        self._log.tree = rights.classes
        classes = {info.path: QoSClass(info.qos) for info in present}
        kinds = {info.path: info.kind for info in present}
        self._decisions.budgets.kinds = self._decisions.state_budgets.kinds = kinds
        self._protection = ProtectedCgroups(
            self._settings.protected,
            classes,
            marked,
            self._own,
            self._settings.only,
            kinds,
            {info.path: info.pod_uid for info in present if info.pod_uid},
            kubelet,
            rights,
            frozenset(info.path for info in present if info.qos_source is QoSSource.NODE_SLO and not info.pod_uid),
        )

    def may_act(self, strategy: str) -> bool:
        """Return whether `[enforcer] strategies` names it; any thread may call."""
        return any(fnmatchcase(strategy, pattern) for pattern in self._settings.strategies)

    def _is_allowed(self, intent: Intent) -> bool:
        if self.may_act(intent.strategy):
            return True
        self._log.emit(of_intent(intent, Outcome.REFUSED, f"[enforcer] strategies does not name {intent.strategy}"))
        return False

    def _resolve(self, settings: list[Setting], carried: list[Setting]) -> dict[Owner, Wanted]:
        """The valid settings that won their conflicts."""
        valid = list(carried)
        for setting in settings:
            if not self._is_allowed(setting):
                continue
            try:
                if setting is not self._in_effect_at(setting):
                    check(setting)
                if setting.knob == Knob.FREEZE and self._one_shot.is_evicting(setting.target):
                    reason = "a frozen process cannot end, and the cgroup is being evicted"
                    self._log.emit(of_intent(setting, Outcome.CONFLICT, reason))
                else:
                    valid.append(setting)
            except ValueError as error:
                self._log.emit(of_intent(setting, Outcome.REFUSED, str(error)))
        winners, losses, overlaid = resolve_layers(valid, self._protection.class_of)
        for found, outcome in ((losses, Outcome.CONFLICT), (overlaid, Outcome.OVERLAID)):
            for override in found:
                other = override.winner
                reason = f"{other.strategy} wants {other.knob} {other.value}: {other.reason}"
                self._log.emit(of_intent(override.loser, outcome, reason))
        return self._within_radius(dict(winners))

    def _within_radius(self, winners: dict[Owner, Wanted]) -> dict[Owner, Wanted]:
        """Leave out what would limit too many cgroups at once in answer to verdicts; protocol state below it stays."""
        settings = (one.setting for one in winners.values())
        answers = [one for one in settings if one.strategy == ANSWER and one.strength > Strength.INVISIBLE]
        if not answers:
            return winners
        rights = self._protection.rights
        for setting, reason in self._radius.exceeding(
            answers, self._leases.active.keys(), rights.classes.best_effort_pods(), self._protection.kinds
        ):
            self._log.emit(of_intent(setting, Outcome.OVER_BUDGET, reason))
            wanted = winners.pop((setting.target, setting.knob))
            winners |= {(base.target, base.knob): Wanted(base) for base in wanted.bases}
        return winners

    def _in_effect_at(self, setting: Setting) -> Setting | None:
        """The setting of the same knob in effect: where it is the same object its value was checked before."""
        lease = self._leases.active.get((setting.target, setting.knob))
        return lease.setting if lease is not None else None

    def _release(self, winners: Mapping[Owner, Wanted], silent: Collection[str], settled: Collection[Owner]) -> None:
        active = self._leases.active
        if len(settled) == len(active) and not self._leases.groups:
            return
        over = [
            owner
            for owner, lease in active.items()
            if lease.bases and (owner not in winners or winners[owner].setting.protocol_state)
        ]
        beneath = {(base.target, base.knob) for wanted in winners.values() for base in wanted.bases}
        if any(knob == Knob.CPU_MAX for _, knob in over):
            # At once, so that a quota above is gone before a larger one below it is put back.
            over += [
                owner
                for owner, lease in active.items()
                if owner[1] == Knob.CPU_MAX
                and not (lease.bases or lease.setting.protocol_state or lease.is_inherited)
                and not (owner in winners or owner in settled or owner in beneath or lease.setting.strategy in silent)
            ]
        self._leases.end_actions(over, "the action ended")
        dropped: list[Owner] = []
        ended: list[Owner] = []
        for owner, lease in active.items():
            if owner in winners or owner in settled or owner in beneath:
                continue
            is_carried = lease.setting.strategy in silent or lease.is_inherited
            (ended if is_carried else dropped).append(owner)
        self._leases.release(dropped, "no longer wanted")
        self._leases.release(ended, "the lease ended")
        if self._leases.groups:
            kept = [one for lease in active.values() for one in lease.layers]
            asked = [one for wanted in winners.values() for one in (wanted.setting, *wanted.bases)]
            self._leases.release_groups({name for one in (*kept, *asked) for name in groups_of(one)})

    def _carry_out(self, winners: Mapping[Owner, Wanted], carried: Iterable[Setting]) -> None:
        before = self._under_way
        self._under_way = before | winners.keys()
        try:
            self._decisions.carry_out(winners, {id(one) for one in carried}, self._protection)
        finally:
            self._under_way = before

    def close(self, now: Clocks | None = None, *, handover_seconds: float = 0.0) -> list[EnforcerEvent]:
        """Restore actions, leave protocol state, and let the journal go; idempotent.

        With `handover_seconds` actions stay in effect as well, for so long: the next run may take them over, and what
        it does not is restored at that moment, by it or by the guardian.
        """
        if self._is_closed:
            return []
        self._is_closed = True
        self._one_shot.close()
        self._clock.start_step(now)
        deadline = self._clock.monotonic_seconds + handover_seconds
        if handover_seconds > 0 and self._journal.hand_over(deadline):
            self.handed_over_until = deadline
        else:
            self._leases.end_all_actions("the agent stops")
        events = self._log.end_step()
        self._journal.close()
        self._log.close()
        return events


def _audit_file(settings: EnforcerSettings) -> AuditFile | None:
    if not settings.audit_file:
        return None
    return AuditFile(Path(settings.audit_file), settings.audit_bytes, settings.audit_files)
