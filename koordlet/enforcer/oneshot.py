"""Wishes that are done once and leave nothing to put back: memory taken from a cgroup, and its end."""

from collections.abc import Iterable

from api.intents import Evict, Intent, Reclaim
from api.plugin import Unsupported
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.budgets import Budgets
from koordlet.enforcer.events import EnforcerEvent, of_intent
from koordlet.enforcer.evictions import Evictions
from koordlet.enforcer.leases import Tell
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.reclaim import JournalUnavailable, Reclaimer
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.knobs.knobs import CgroupGone, Knobs


class OneShotActions:
    """Times are monotonic seconds."""

    def __init__(
        self, settings: EnforcerSettings, knobs: Knobs, hands: KernelWriter, budgets: Budgets, taking: Reclaimer
    ) -> None:
        self._may_evict = settings.evict
        self._budgets = budgets
        self._taking = taking
        self._evictions = Evictions(
            hands, lambda target: knobs.directory("cpu", target), settings.evict_cooldown_seconds
        )

    def is_ending(self, target: str) -> bool:
        """Whether an eviction reaches into a cgroup: its own, of one above or of one below."""
        prefix = target.rstrip("/") + "/"
        return any(f"{path}/".startswith(prefix) or prefix.startswith(f"{path}/") for path in self._evictions.targets)

    def reclaim(self, wish: Reclaim, protection: ProtectedCgroups, now_seconds: float, tell: Tell) -> None:
        """Take memory, unless the cgroup is protected."""
        forbidden = protection.why(wish.target)
        spent = "" if forbidden else self._budgets.take(wish.target, now_seconds)
        if forbidden or spent:
            tell(of_intent(wish, Outcome.PROTECTED if forbidden else Outcome.OVER_BUDGET, forbidden or spent))
            return
        try:
            taken = self._taking.take(wish, tell)
        except JournalUnavailable:
            tell(of_intent(wish, Outcome.JOURNAL_UNAVAILABLE, "the journal cannot be written; nothing changed"))
            return
        except (Unsupported, CgroupGone, OSError) as error:
            tell(_failure(wish, error))
            return
        got = taken.amount_bytes
        short = f"; no more than {got} bytes were to be had" if got < wish.amount_bytes else ""
        tell(of_intent(wish, Outcome.RECLAIMED, wish.reason + short, file=taken.file))

    def evict(self, wishes: Iterable[Evict], protection: ProtectedCgroups, now_seconds: float, tell: Tell) -> None:
        """Go on with what has begun, and begin what may begin."""
        for event in self._evictions.advance(now_seconds):
            tell(event)
        for wish in sorted(wishes, key=lambda wish: (wish.target, wish.strategy)):
            forbidden = protection.why(wish.target)
            if not self._may_evict:
                tell(of_intent(wish, Outcome.REFUSED, "[enforcer] evict is off"))
            elif forbidden:
                tell(of_intent(wish, Outcome.PROTECTED, forbidden))
            else:
                self._begin(wish, now_seconds, tell)

    def _begin(self, wish: Evict, now_seconds: float, tell: Tell) -> None:
        event: EnforcerEvent | None
        try:
            event = self._evictions.ask(wish, now_seconds)
        except (Unsupported, CgroupGone, OSError) as error:
            event = _failure(wish, error)
        if event is not None:
            tell(event)


def _failure(wish: Intent, error: Exception) -> EnforcerEvent:
    if isinstance(error, Unsupported):
        return of_intent(wish, Outcome.UNSUPPORTED, f"{error.reason}; {error.remedy}" if error.remedy else error.reason)
    if isinstance(error, CgroupGone):
        return of_intent(wish, Outcome.GONE, "there is no such cgroup")
    return of_intent(wish, Outcome.FAILED, str(error))
