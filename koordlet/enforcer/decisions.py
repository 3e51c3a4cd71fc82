"""Decisions of a step: which of the winning settings stay as they are, which are planned, and which are declined.

What is in effect is renewed. The rest is planned within protection, back-off and budgets; a quota that cgroup v1 needs
another one for is granted with it or not at all. Then all plans are applied together, in the order of writes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from api.intents import Knob, Setting, Strength
from koordlet.config import EnforcerSettings
from koordlet.enforcer.active_state import Births
from koordlet.enforcer.apply import Applier
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import Owner, Wanted
from koordlet.enforcer.events import EnforcerEvent, EventLog, StepClock, of_intent
from koordlet.enforcer.kubelet_files import NOT_KNOWN
from koordlet.enforcer.leases import Lease, Leases
from koordlet.enforcer.limits.budgets import Budgets
from koordlet.enforcer.limits.lacks import Lacks
from koordlet.enforcer.limits.nested_quotas import NestedQuotas
from koordlet.enforcer.plan import Declined, Planner, WritePlan
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.host.knobs.direction import Direction

_STATE_CHANGES_PER_MINUTE = 1_000_000
"""Protocol state is as much as there are pods; it takes nothing from the node's budget of actions."""
_IMPOSSIBLE_BACKOFF_SECONDS = 10.0
"""Time for which a quota is left alone that cannot be had for a cgroup below."""


@dataclass(slots=True)
class _Round:
    """One round of decisions."""

    protection: ProtectedCgroups
    carried: Collection[int]
    """Identities of the settings that are not asked for and stay."""
    spent: set[tuple[Owner, bool]] = field(default_factory=set)
    """Owners that a budget was spent for, with whether it is that of protocol state."""
    claims: dict[str, Owner | None] | None = None
    """Once something is to be written."""


@dataclass(slots=True)
class _Decided:
    """What the settings come to; nothing of it is written or told yet."""

    plans: list[WritePlan] = field(default_factory=list)
    declined: list[Owner] = field(default_factory=list)
    """Settings in effect that may be no longer."""
    restored: list[Owner] = field(default_factory=list)
    """Settings in effect whose original is wanted."""
    not_granted: set[str] = field(default_factory=set)
    """Targets of quotas that are declined."""
    events: list[EnforcerEvent] = field(default_factory=list)


class Decisions:
    """Decides on the winners of a step and carries that out; one may be made while another is carried out."""

    def __init__(
        self,
        settings: EnforcerSettings,
        planner: Planner,
        applier: Applier,
        leases: Leases,
        births: Births,
        nested_quotas: NestedQuotas,
        log: EventLog,
        clock: StepClock,
    ) -> None:
        self.settings = settings
        self.budgets = Budgets(settings.changes_per_minute, settings.pod_changes_per_minute)
        self.state_budgets = Budgets(_STATE_CHANGES_PER_MINUTE, settings.pod_changes_per_minute)
        self.between: Callable[[], None] = _nothing
        """Called between two plans, and between two writes: what is urgent need not wait for all of them."""
        self._planner = planner
        self._applier = applier
        self._leases = leases
        self._births = births
        self._nested_quotas = nested_quotas
        self._log = log
        self._clock = clock
        self._lacks = Lacks()

    def follow(self, settings: EnforcerSettings) -> None:
        """Follow other budgets; what was granted counts on."""
        self.settings = settings
        self.budgets.limit(settings.changes_per_minute, settings.pod_changes_per_minute)
        self.state_budgets.limit(_STATE_CHANGES_PER_MINUTE, settings.pod_changes_per_minute)

    def carry_out(
        self, winners: Mapping[Owner, Wanted], carried: Collection[int], protection: ProtectedCgroups
    ) -> None:
        """Renew, write or decline each of the winners."""
        made = _Round(protection, carried)
        self._lacks.keep(protection.classes)
        decided = self._decide(winners, made)
        granted = {target for target, knob in winners if knob is Knob.CPU_MAX} - decided.not_granted
        lacking, dependent = self._nested_quotas.not_together(granted)
        refused = lacking | dependent
        if refused:
            decided = self._decide(self._without(winners, refused), made)
            # Not before: a quota that was over budget must not be granted without those that depend on it.
            for target in refused:
                self._take_back(winners[target, Knob.CPU_MAX].setting, made)
            for target, reason in lacking.items():
                self._leases.back_off((target, Knob.CPU_MAX), reason, _IMPOSSIBLE_BACKOFF_SECONDS)
        for event in decided.events:
            self._log.emit(event)
        self._leases.release(decided.declined, "it may no longer be")
        self._leases.release(decided.restored, "the original is wanted")
        self._applier.apply(decided.plans, self.between)

    def _decide(self, winners: Mapping[Owner, Wanted], made: _Round) -> _Decided:
        found = _Decided()
        queue = sorted(winners.values(), key=lambda one: (one.setting.strength, one.setting.target, one.setting.knob))
        layers = [one for wanted in queue for one in (*wanted.bases, wanted.setting)]
        schemata = {one.target: one for one in layers if one.knob == Knob.RESCTRL_SCHEMATA}
        for wanted in queue:
            setting = wanted.setting
            owner = (setting.target, setting.knob)
            lease = self._leases.active.get(owner)
            if lease is not None and _is_in_effect(lease, wanted, made.protection):
                found.events.append(self._renew(lease, wanted, made))
                continue
            self.between()
            if lease is not None:
                self._leases.verify_one(owner)
                lease = self._leases.active.get(owner)
            try:
                plan = self._plan(owner, wanted, schemata, made)
            except Declined as why:
                if why.outcome is Outcome.UNSUPPORTED and lease is None:
                    self._lacks.note(setting, why.reason, self._clock.monotonic_seconds)
                found.events.append(of_intent(setting, why.outcome, why.reason, file=why.file))
                may_stay = why.outcome in (Outcome.OVER_BUDGET, Outcome.BACKING_OFF) or why.reason.endswith(NOT_KNOWN)
                if lease is not None and may_stay and lease.setting.protocol_state == setting.protocol_state:
                    lease.end_seconds = self._clock.monotonic_seconds + setting.lease_seconds
                    continue
                if setting.knob is Knob.CPU_MAX and why.outcome is not Outcome.GONE:
                    found.not_granted.add(setting.target)
                if wanted.bases:
                    # The action is declined; the protocol state below it is not.
                    if lease is not None and lease.bases:
                        self._leases.end_actions([owner], "it may no longer be")
                    queue += map(Wanted, wanted.bases)
                elif lease is not None:
                    found.declined.append(owner)
                continue
            if lease is not None and plan.restores_originals:
                found.restored.append(owner)
            elif plan.change.assignments or plan.records or plan.stale:
                found.plans.append(plan)
            elif lease is not None:
                found.events.append(self._renew(lease, wanted, made))
            else:
                found.events.append(of_intent(setting, Outcome.UNCHANGED, setting.reason))
                if setting.protocol_state and plan.found:
                    self._leases.take_found(setting, plan.found)
        return found

    def _without(self, winners: Mapping[Owner, Wanted], refused: Mapping[str, str]) -> dict[Owner, Wanted]:
        """Leave out quotas that are refused at these targets; protocol state below them stays."""
        left = dict(winners)
        for target, reason in refused.items():
            owner = (target, Knob.CPU_MAX)
            wanted, lease = left.pop(owner), self._leases.active.get(owner)
            self._log.emit(of_intent(wanted.setting, Outcome.REFUSED, reason))
            if lease is not None and not lease.setting.protocol_state:
                self._leases.end_actions([owner], "it may no longer be")
            left |= {(base.target, base.knob): Wanted(base) for base in wanted.bases}
        return left

    def _renew(self, lease: Lease, wanted: Wanted, made: _Round) -> EnforcerEvent:
        setting = wanted.setting
        lease.granted_by = made.protection
        if id(setting) not in made.carried:
            lease.setting, lease.bases, lease.is_inherited = setting, wanted.bases, False
            lease.end_seconds = self._clock.monotonic_seconds + setting.lease_seconds
        return of_intent(setting, Outcome.UNCHANGED, setting.reason)

    def _plan(self, owner: Owner, wanted: Wanted, schemata: Mapping[str, Setting], made: _Round) -> WritePlan:
        setting = wanted.setting
        backoff_reason = self._leases.backoff_reason(owner)
        if backoff_reason:
            raise Declined(Outcome.BACKING_OFF, backoff_reason)
        lack = self._lacks.reason(setting, self._clock.monotonic_seconds)
        if lack and owner not in self._leases.active:
            raise Declined(Outcome.UNSUPPORTED, lack)
        if setting.knob == Knob.RESCTRL_GROUP:
            forbidden = made.protection.forbids(
                setting.knob,
                setting.target,
                Direction.ASIDE,
                strategy=setting.strategy,
                protocol_state=setting.protocol_state,
            )
            if forbidden:
                raise Declined(Outcome.PROTECTED, forbidden)
        aliases = self._applier.make_groups(wanted, schemata)
        if self.settings.only and setting.knob == Knob.RESCTRL_SCHEMATA:
            self._check_group(setting.target, aliases)
        owners = [*((base.target, base.knob) for base in wanted.bases), owner]
        known = self._leases.entries_of(owners)
        original_of = self._births.original_of(owner, self._leases.active)
        plan = self._planner.plan(wanted, known, made.protection, aliases, original_of)
        if plan.change.assignments:
            self._check_claims(owners, plan, made)
            self._spend(owner, setting, made)
        return plan

    def _spend(self, owner: Owner, setting: Setting, made: _Round) -> None:
        """Once in a round, however often it is decided."""
        if (owner, setting.protocol_state) in made.spent:
            return
        is_invisible = setting.strength is Strength.INVISIBLE
        used_up = self._budgets_of(setting).spend(
            setting.target, self._clock.monotonic_seconds, is_invisible=is_invisible
        )
        if used_up:
            raise Declined(Outcome.OVER_BUDGET, used_up)
        made.spent.add((owner, setting.protocol_state))

    def _take_back(self, setting: Setting, made: _Round) -> None:
        """Nothing is written for it: it costs nothing."""
        if ((setting.target, setting.knob), setting.protocol_state) in made.spent:
            self._budgets_of(setting).take_back(setting.target)

    def _budgets_of(self, setting: Setting) -> Budgets:
        return self.state_budgets if setting.protocol_state else self.budgets

    def _check_group(self, name: str, aliases: Mapping[str, str]) -> None:
        """Where `[enforcer] only` names cgroups, groups of other programs, and the root's, are left as they are."""
        if name not in self._leases.groups and name not in aliases:
            reason = (
                f"the agent did not make the resource group {name or 'of the root'}, and [enforcer] only names cgroups"
            )
            raise Declined(Outcome.PROTECTED, reason)

    def _check_claims(self, owners: Sequence[Owner], plan: WritePlan, made: _Round) -> None:
        if made.claims is None:
            made.claims = self._leases.claims()
        for entry in plan.entries:
            other = made.claims.get(entry.attribute.key, owners[0])
            if other not in owners:
                reason = f"it is set by {other[1]} of {other[0]}" if other else "an earlier change is not back yet"
                raise Declined(Outcome.CONFLICT, reason, entry.attribute.key)


def _is_in_effect(lease: Lease, wanted: Wanted, protection: ProtectedCgroups) -> bool:
    setting = wanted.setting
    if lease.is_inherited:
        return False  # the earlier run may have ended halfway
    if lease.setting.value != setting.value or lease.setting.protocol_state != setting.protocol_state:
        return False
    if [_content(base) for base in lease.bases] != [_content(base) for base in wanted.bases]:
        return False
    return lease.granted_by is protection or not protection.refusal(setting.strategy, setting.target)


def _content(setting: Setting) -> tuple[Knob, str, str]:
    return setting.knob, setting.target, setting.value


def _nothing() -> None:
    pass
