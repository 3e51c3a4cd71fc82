"""The enforcer's step: intents are checked, planned, ordered, journalled, written and audited."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from api.frame import CgroupInfo
from api.intents import Evict, Intent, Knob, Reclaim, Setting
from api.qos import QoSClass
from koordlet.config import EnforcerSettings
from koordlet.enforcer.apply import Applier
from koordlet.enforcer.audit import AuditFile, Outcome
from koordlet.enforcer.budgets import Budgets
from koordlet.enforcer.conflicts import Owner, resolve
from koordlet.enforcer.events import Clocks, EnforcerEvent, EventLog, StepClock, of_intent
from koordlet.enforcer.evictions import Evictions
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.leases import Lease, Leases, groups_of
from koordlet.enforcer.oneshot import OneShotActions
from koordlet.enforcer.plan import Declined, Planner, WritePlan
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.reclaim import Reclaimer
from koordlet.enforcer.writer import Writer
from koordlet.host.knobs.direction import Direction
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.table import check


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
        self._planner = Planner(knobs, writer, clock)
        self._applier = Applier(knobs, writer, journal, leases, log, clock)
        self._budgets = Budgets(settings.changes_per_minute, settings.pod_changes_per_minute)
        evictions = Evictions(
            writer,
            lambda target: knobs.directory("cpu", target),
            settings.evict_cooldown_seconds,
            enabled=settings.evict,
        )
        reclaimer = Reclaimer(knobs, writer, journal, leases)
        self._one_shot = OneShotActions(reclaimer, evictions, self._budgets, log, clock)
        self._protection = ProtectedCgroups(settings.protected, {}, frozenset(), own, settings.only)
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._claims: dict[str, Owner | None] = {}
        self._is_closed = False

    @property
    def counts(self) -> dict[tuple[str, str, str], int]:
        """Number of events by (strategy, knob, outcome); `("", "journal", "failed")` and `("", "audit", "lost")`
        count batches and lines that could not be written."""
        own = {("", "journal", "failed"): self._journal.failures, ("", "audit", "lost"): self._log.lost_lines}
        return {**self._log.counts, **own}

    def active_settings(self) -> dict[Owner, Setting]:
        """The settings in effect."""
        return {owner: lease.setting for owner, lease in self._leases.active.items()}

    def adopt(self, now: Clocks | None = None) -> list[EnforcerEvent]:
        """Restore what an earlier run left in the journal."""
        self._clock.start_step(now)
        if isinstance(self._journal, Journal) and self._journal.damaged_copy is not None:
            self._log.emit(_damage(self._journal))
        self._leases.adopt(list(self._journal.live.values()))
        return self._log.end_step()

    def step(
        self,
        intents: Iterable[Intent],
        cgroups: Sequence[CgroupInfo] | None = None,
        now: Clocks | None = None,
        *,
        silent: Collection[str] = (),
        annotated: Collection[str] = (),
    ) -> list[EnforcerEvent]:
        """Make the node's settings those that `intents` ask for; return the outcome of each.

        `intents` are complete: a setting that is not among them is restored at once, unless its strategy is one of
        `silent` (it could not decide), in which case it stays in effect until its lease ends. `cgroups` are the
        present ones, with their classes; None if they are as before. `annotated` are paths that are protected by
        annotation. Does nothing once closed.
        """
        if self._is_closed:
            return []
        self._clock.start_step(now)
        self._update_protection(cgroups, annotated)
        requested = list(intents)
        winners = self._resolve([intent for intent in requested if isinstance(intent, Setting)])
        self._leases.verify()
        self._leases.retry()
        self._release(winners, silent)
        self._apply(winners)
        self._act([intent for intent in requested if isinstance(intent, Reclaim | Evict)])
        return self._log.end_step()

    def _act(self, intents: list[Reclaim | Evict]) -> None:
        allowed = [intent for intent in intents if self._is_allowed(intent)]
        for intent in allowed:
            if isinstance(intent, Reclaim):
                self._one_shot.reclaim(intent, self._protection)
        self._one_shot.evict([intent for intent in allowed if isinstance(intent, Evict)], self._protection)

    def _update_protection(self, cgroups: Sequence[CgroupInfo] | None, annotated: Collection[str]) -> None:
        present = self._cgroups if cgroups is None else tuple(cgroups)
        marked = frozenset(annotated)
        if present != self._cgroups or marked != self._protection.annotated:
            self._cgroups = present
            classes = {info.path: QoSClass(info.qos) for info in present}
            self._budgets.kinds = kinds = {info.path: info.kind for info in present}
            self._protection = ProtectedCgroups(
                self._settings.protected, classes, marked, self._own, self._settings.only, kinds
            )

    def _is_allowed(self, intent: Intent) -> bool:
        if any(fnmatchcase(intent.strategy, pattern) for pattern in self._settings.strategies):
            return True
        self._log.emit(of_intent(intent, Outcome.REFUSED, f"[enforcer] strategies does not name {intent.strategy}"))
        return False

    def _resolve(self, settings: list[Setting]) -> dict[Owner, Setting]:
        """The valid settings that won their conflicts."""
        valid = []
        for setting in settings:
            if not self._is_allowed(setting):
                continue
            try:
                check(setting)
                if setting.knob == Knob.FREEZE and self._one_shot.is_evicting(setting.target):
                    reason = "a frozen process cannot end, and the cgroup is being evicted"
                    self._log.emit(of_intent(setting, Outcome.CONFLICT, reason))
                else:
                    valid.append(setting)
            except ValueError as error:
                self._log.emit(of_intent(setting, Outcome.REFUSED, str(error)))
        winners, losses = resolve(valid, self._protection.class_of)
        for loss in losses:
            other = loss.winner
            reason = f"{other.strategy} wants {other.knob} {other.value}: {other.reason}"
            self._log.emit(of_intent(loss.loser, Outcome.CONFLICT, reason))
        return dict(winners)

    def _release(self, winners: Mapping[Owner, Setting], silent: Collection[str]) -> None:
        dropped, ended = [], []
        for owner, lease in self._leases.active.items():
            if owner in winners:
                continue
            if lease.setting.strategy not in silent:
                dropped.append(owner)
            elif lease.end_seconds <= self._clock.monotonic_seconds:
                ended.append(owner)
        self._leases.release(dropped, "no longer wanted")
        self._leases.release(ended, "the lease ended")
        if self._leases.groups:
            active = [lease.setting for lease in self._leases.active.values()]
            used = {name for setting in (*active, *winners.values()) for name in groups_of(setting)}
            self._leases.release_groups(used)

    def _apply(self, winners: Mapping[Owner, Setting]) -> None:
        plans, declined, restored = [], [], []
        by_strength = sorted(winners.items(), key=lambda item: (item[1].strength, item[0]))
        self._claims = self._leases.claims()
        schemata = {owner[0]: setting for owner, setting in by_strength if owner[1] == Knob.RESCTRL_SCHEMATA}
        for owner, setting in by_strength:
            lease = self._leases.active.get(owner)
            if (
                lease is not None
                and lease.setting.value == setting.value
                and not self._protection.reason(setting.target)
            ):
                self._renew(lease, setting)
                continue
            if lease is not None:
                self._leases.verify_one(owner)
                lease = self._leases.active.get(owner)
            try:
                plan = self._plan(owner, setting, lease, schemata)
            except Declined as why:
                self._log.emit(of_intent(setting, why.outcome, why.reason, file=why.file))
                if lease is not None and why.outcome in (Outcome.OVER_BUDGET, Outcome.BACKING_OFF):
                    lease.end_seconds = self._clock.monotonic_seconds + setting.lease_seconds
                elif lease is not None:
                    declined.append(owner)
                continue
            if lease is not None and plan.restores_originals:
                restored.append(owner)
            elif plan.change.assignments:
                plans.append(plan)
            elif lease is not None:
                self._renew(lease, setting)
            else:
                self._log.emit(of_intent(setting, Outcome.UNCHANGED, setting.reason))
        self._leases.release(declined, "it may no longer be")
        self._leases.release(restored, "the original is wanted")
        self._applier.apply(plans)

    def _renew(self, lease: Lease, setting: Setting) -> None:
        lease.setting = setting
        lease.end_seconds = self._clock.monotonic_seconds + setting.lease_seconds
        self._log.emit(of_intent(setting, Outcome.UNCHANGED, setting.reason))

    def _plan(self, owner: Owner, setting: Setting, lease: Lease | None, schemata: Mapping[str, Setting]) -> WritePlan:
        backoff_reason = self._leases.backoff_reason(owner)
        if backoff_reason:
            raise Declined(Outcome.BACKING_OFF, backoff_reason)
        if setting.knob == Knob.RESCTRL_GROUP:
            forbidden = self._protection.forbids(setting.knob, setting.target, Direction.ASIDE)
            if forbidden:
                raise Declined(Outcome.PROTECTED, forbidden)
        aliases = self._applier.make_groups(setting, schemata)
        plan = self._planner.plan(setting, lease, self._protection, aliases)
        if plan.change.assignments:
            self._check_claims(owner, plan)
            spent = self._budgets.spend(setting.target, self._clock.monotonic_seconds)
            if spent:
                raise Declined(Outcome.OVER_BUDGET, spent)
        return plan

    def _check_claims(self, owner: Owner, plan: WritePlan) -> None:
        for entry in plan.entries:
            other = self._claims.get(entry.attribute.key, owner)
            if other != owner:
                reason = f"it is set by {other[1]} of {other[0]}" if other else "an earlier change is not back yet"
                raise Declined(Outcome.CONFLICT, reason, entry.attribute.key)

    def close(self, now: Clocks | None = None) -> list[EnforcerEvent]:
        """Restore everything and let the journal go; idempotent."""
        if self._is_closed:
            return []
        self._is_closed = True
        self._clock.start_step(now)
        self._leases.release_all()
        events = self._log.end_step()
        self._journal.close()
        self._log.close()
        return events


def _audit_file(settings: EnforcerSettings) -> AuditFile | None:
    if not settings.audit_file:
        return None
    return AuditFile(Path(settings.audit_file), settings.audit_bytes, settings.audit_files)


def _damage(journal: Journal) -> EnforcerEvent:
    found = journal.found
    reason = (
        f"the journal is damaged ({found.damage}): the {len(found.live)} attributes before it are restored, "
        f"{found.lost_bytes} bytes after it are lost; it is kept as {journal.damaged_copy}"
    )
    return EnforcerEvent(
        strategy="", target="", knob="journal", file=str(journal.path), reason=reason, outcome=Outcome.FAILED
    )
