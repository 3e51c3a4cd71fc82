"""One step of the enforcer: what may be done is planned, ordered, journalled, written and told."""

import time
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from api.frame import CgroupInfo
from api.intents import Evict, Intent, Knob, Reclaim, Setting
from api.qos import QoSClass
from koordlet.config import EnforcerSettings
from koordlet.enforcer.apply import Applier
from koordlet.enforcer.audit import AuditFile, Outcome
from koordlet.enforcer.budgets import Budgets
from koordlet.enforcer.conflicts import Owner, settle
from koordlet.enforcer.events import Clocks, EnforcerEvent, EventLog, of_intent
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.leases import Lease, Leases, groups_of
from koordlet.enforcer.oneshot import OneShotActions
from koordlet.enforcer.plan import Declined, Planner, WritePlan
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.reclaim import Reclaimer
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.knobs.direction import Direction
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.table import check


def read_clocks() -> Clocks:
    """Both clocks as they stand."""
    return Clocks(time.monotonic(), time.time())


class Enforcer:
    """Carries out what may be carried out; everything it changes goes back when it is no longer wanted."""

    def __init__(
        self, settings: EnforcerSettings, knobs: Knobs, journal: Journal | NoJournal, *, hands: KernelWriter, own: str
    ) -> None:
        """`own` is the path of the agent's own cgroup. `open_enforcer` is the usual way in."""
        self._settings = settings
        self._own = own
        self._journal = journal
        audit = (
            AuditFile(Path(settings.audit_file), settings.audit_bytes, settings.audit_files)
            if settings.audit_file
            else None
        )
        self._teller = EventLog(audit, dry_run=settings.dry_run)
        self._holdings = Leases(journal, hands, settings.foreign_write_backoff_seconds)
        self._planner = Planner(knobs, hands)
        self._applier = Applier(knobs, hands, journal, self._holdings)
        self._budgets = Budgets(settings.changes_per_minute, settings.pod_changes_per_minute)
        taking = Reclaimer(knobs, hands, journal, self._holdings)
        self._deeds = OneShotActions(settings, knobs, hands, self._budgets, taking)
        self._protection = ProtectedCgroups(settings.protected, {}, frozenset(), own, settings.only)
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._now = Clocks(0.0, 0.0)
        self._claims: dict[str, Owner | None] = {}
        self._is_closed = False

    @property
    def counts(self) -> dict[tuple[str, str, str], int]:
        """(strategy, knob, outcome) to how often it happened; `("", "journal", "failed")` and
        `("", "audit", "lost")` count batches and lines that could not be written."""
        own = {("", "journal", "failed"): self._journal.failures, ("", "audit", "lost"): self._teller.lost_lines}
        return {**self._teller.counts, **own}

    def held(self) -> dict[Owner, Setting]:
        """What stands at present."""
        return {owner: held.setting for owner, held in self._holdings.held.items()}

    def adopt(self, now: Clocks | None = None) -> list[EnforcerEvent]:
        """Put back what an earlier run left in the journal."""
        self._now = now or read_clocks()
        if isinstance(self._journal, Journal) and self._journal.set_aside is not None:
            self._tell(_damage(self._journal))
        self._holdings.adopt(list(self._journal.live.values()), self._tell)
        return self._teller.finish()

    def step(
        self,
        intents: Iterable[Intent],
        cgroups: Sequence[CgroupInfo] | None = None,
        now: Clocks | None = None,
        *,
        silent: Collection[str] = (),
        annotated: Collection[str] = (),
    ) -> list[EnforcerEvent]:
        """Make the node as it is wanted, and say what became of each wish.

        `intents` is everything wanted at this moment: a setting that is not among them goes back at once, unless its
        strategy is one of `silent` (it could not decide), in which case it stands until its lease ends. `cgroups` are
        those there are, with their classes; None if they are as before. `annotated` are paths that are protected by
        annotation. Does nothing once closed.
        """
        if self._is_closed:
            return []
        self._now = now or read_clocks()
        self._see(cgroups, annotated)
        wishes = list(intents)
        winners = self._settle([wish for wish in wishes if isinstance(wish, Setting)])
        self._holdings.verify(self._now, self._tell)
        self._holdings.retry(self._now, self._tell)
        self._release(winners, silent)
        self._apply(winners)
        self._do([wish for wish in wishes if isinstance(wish, Reclaim | Evict)])
        return self._teller.finish()

    def _do(self, wishes: list[Reclaim | Evict]) -> None:
        now, allowed = self._now.monotonic_seconds, [wish for wish in wishes if self._is_allowed(wish)]
        for wish in allowed:
            if isinstance(wish, Reclaim):
                self._deeds.reclaim(wish, self._protection, now, self._tell)
        evictions = [wish for wish in allowed if isinstance(wish, Evict)]
        self._deeds.evict(evictions, self._protection, now, self._tell)

    def _see(self, cgroups: Sequence[CgroupInfo] | None, annotated: Collection[str]) -> None:
        seen = self._cgroups if cgroups is None else tuple(cgroups)
        marked = frozenset(annotated)
        if seen != self._cgroups or marked != self._protection.annotated:
            self._cgroups = seen
            classes = {info.path: QoSClass(info.qos) for info in seen}
            self._protection = ProtectedCgroups(
                self._settings.protected, classes, marked, self._own, self._settings.only
            )

    def _tell(self, event: EnforcerEvent) -> None:
        self._teller.tell(event, self._now)

    def _is_allowed(self, wish: Intent) -> bool:
        if any(fnmatchcase(wish.strategy, pattern) for pattern in self._settings.strategies):
            return True
        self._tell(of_intent(wish, Outcome.REFUSED, f"[enforcer] strategies does not name {wish.strategy}"))
        return False

    def _settle(self, settings: list[Setting]) -> dict[Owner, Setting]:
        sound = []
        for setting in settings:
            if not self._is_allowed(setting):
                continue
            try:
                check(setting)
                if setting.knob == Knob.FREEZE and self._deeds.is_ending(setting.target):
                    self._tell(of_intent(setting, Outcome.CONFLICT, "what is frozen cannot end, and it is to end"))
                else:
                    sound.append(setting)
            except ValueError as error:
                self._tell(of_intent(setting, Outcome.REFUSED, str(error)))
        winners, losses = settle(sound, self._protection.class_of)
        for loss in losses:
            other = loss.winner
            reason = f"{other.strategy} wants {other.knob} {other.value}: {other.reason}"
            self._tell(of_intent(loss.loser, Outcome.CONFLICT, reason))
        return dict(winners)

    def _release(self, winners: dict[Owner, Setting], silent: Collection[str]) -> None:
        now = self._now.monotonic_seconds
        unwanted, ended = [], []
        for owner, held in self._holdings.held.items():
            if owner in winners:
                continue
            if held.setting.strategy not in silent:
                unwanted.append(owner)
            elif held.lease_end <= now:
                ended.append(owner)
        self._holdings.release(unwanted, "no longer wanted", self._now, self._tell)
        self._holdings.release(ended, "the lease ended", self._now, self._tell)
        self._release_groups(winners.values())

    def _release_groups(self, wanted: Iterable[Setting]) -> None:
        if self._holdings.groups:
            standing = [held.setting for held in self._holdings.held.values()]
            used = {name for setting in (*standing, *wanted) for name in groups_of(setting)}
            self._holdings.release_groups(used, self._tell)

    def _apply(self, winners: dict[Owner, Setting]) -> None:
        plans, declined, back = [], [], []
        wanted = sorted(winners.items(), key=lambda item: (item[1].strength, item[0]))
        self._claims = self._holdings.claims()
        schemata = {owner[0]: setting for owner, setting in wanted if owner[1] == Knob.RESCTRL_SCHEMATA}
        for owner, setting in wanted:
            held = self._holdings.held.get(owner)
            if held is not None and held.setting.value == setting.value and not self._protection.why(setting.target):
                self._renew(held, setting)
                continue
            if held is not None:
                self._holdings.verify_one(owner, self._now, self._tell)
                held = self._holdings.held.get(owner)
            try:
                plan = self._plan(owner, setting, held, schemata)
            except Declined as why:
                self._tell(of_intent(setting, why.outcome, why.reason, file=why.file))
                if held is not None and why.outcome in (Outcome.OVER_BUDGET, Outcome.BACKING_OFF):
                    held.lease_end = self._now.monotonic_seconds + setting.lease_seconds
                elif held is not None:
                    declined.append(owner)
                continue
            if held is not None and plan.wants_originals:
                back.append(owner)
            elif plan.change.parts:
                plans.append(plan)
            elif held is not None:
                self._renew(held, setting)
            else:
                self._tell(of_intent(setting, Outcome.UNCHANGED, setting.reason))
        self._holdings.release(declined, "it may no longer be", self._now, self._tell)
        self._holdings.release(back, "what it was before is wanted", self._now, self._tell)
        self._applier.apply(plans, self._now, self._tell)

    def _renew(self, held: Lease, setting: Setting) -> None:
        held.setting = setting
        held.lease_end = self._now.monotonic_seconds + setting.lease_seconds
        self._tell(of_intent(setting, Outcome.UNCHANGED, setting.reason))

    def _plan(self, owner: Owner, setting: Setting, held: Lease | None, schemata: dict[str, Setting]) -> WritePlan:
        alone = self._holdings.left_alone(owner, self._now.monotonic_seconds)
        if alone:
            raise Declined(Outcome.BACKING_OFF, alone)
        if setting.knob == Knob.RESCTRL_GROUP:
            forbidden = self._protection.forbids(setting.knob, setting.target, Direction.ASIDE)
            if forbidden:
                raise Declined(Outcome.PROTECTED, forbidden)
        aliases = self._applier.make_groups(setting, schemata, self._now, self._tell)
        plan = self._planner.plan(setting, held, self._protection, self._now, aliases)
        if plan.change.parts:
            self._check_claims(owner, plan)
            spent = self._budgets.take(setting.target, self._now.monotonic_seconds)
            if spent:
                raise Declined(Outcome.OVER_BUDGET, spent)
        return plan

    def _check_claims(self, owner: Owner, plan: WritePlan) -> None:
        for entry in plan.entries:
            other = self._claims.get(entry.place.key, owner)
            if other != owner:
                whose = f"it is set by {other[1]} of {other[0]}" if other else "an earlier change is not back yet"
                raise Declined(Outcome.CONFLICT, whose, entry.place.key)

    def close(self, now: Clocks | None = None) -> list[EnforcerEvent]:
        """Put everything back and let the journal go; idempotent."""
        if self._is_closed:
            return []
        self._is_closed = True
        self._now = now or read_clocks()
        self._holdings.release_all(self._tell)
        events = self._teller.finish()
        self._journal.close()
        self._teller.close()
        return events


def _damage(journal: Journal) -> EnforcerEvent:
    found = journal.found
    reason = (
        f"the journal is damaged ({found.damage}): the {len(found.live)} places before it are put back, "
        f"{found.lost_bytes} bytes after it are lost; it is kept as {journal.set_aside}"
    )
    return EnforcerEvent(
        strategy="", target="", knob="journal", file=str(journal.path), reason=reason, outcome=Outcome.FAILED
    )
