"""One-shot actions, which leave nothing to restore: memory reclaim, and eviction."""

import time
from collections.abc import Iterable

from api.cgroup_path import ROOT, is_below, is_within, lineage
from api.frame import CgroupKind
from api.intents import Evict, Intent, Reclaim
from api.plugin import Unsupported
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, EventLog, StepClock, of_intent
from koordlet.enforcer.evictions.by_api import PodEvictions
from koordlet.enforcer.evictions.by_signal import Evictions
from koordlet.enforcer.journal import NOT_WRITTEN
from koordlet.enforcer.limits.budgets import Budgets
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.reclaim import JournalUnavailable, Reclaimer
from koordlet.host.knobs.knobs import CgroupGone
from koordlet.identity.cgroup_names import kind_at, name_cgroup
from koordlet.identity.pod_lookup import pod_of
from koordlet.identity.pods import PodTableOf, no_pods

MOST_RECLAIM_SECONDS = 0.2
"""Time that all reclaims of a step may take: trips wait meanwhile."""


class OneShotActions:
    """Checks protection and budgets, then reclaims or evicts."""

    def __init__(
        self, reclaimer: Reclaimer, evictions: Evictions, budgets: Budgets, log: EventLog, clock: StepClock
    ) -> None:
        self._reclaimer = reclaimer
        self._evictions = evictions
        self._budgets = budgets
        self._log = log
        self._clock = clock
        self._pod_evictions: PodEvictions | None = None
        self._pods_of: PodTableOf = no_pods
        self._reclaim_seconds = 0.0

    def evict_pods_by(self, evictions: PodEvictions, pods_of: PodTableOf) -> None:
        """Evict pods of the kubelet through the API server."""
        self._pod_evictions, self._pods_of = evictions, pods_of

    def close(self) -> None:
        """Idempotent."""
        if self._pod_evictions is not None:
            self._pod_evictions.close()

    def is_evicting(self, target: str) -> bool:
        """Return whether an eviction is under way in a cgroup, in one above it or in one below."""
        return any(
            target == ROOT or is_within(path, target) or is_below(target, path)
            for path in (*self._evictions.targets, *(self._pod_evictions.targets if self._pod_evictions else ()))
        )

    def reclaim(self, intent: Reclaim, protection: ProtectedCgroups) -> None:
        """Reclaim memory, unless the cgroup is protected."""
        forbidden = protection.refusal(intent.strategy, intent.target)
        spent = "" if forbidden else self._no_time() or self._spend(intent)
        if forbidden or spent:
            outcome = Outcome.PROTECTED if forbidden else Outcome.OVER_BUDGET
            self._log.emit(of_intent(intent, outcome, forbidden or spent))
            return
        started = time.monotonic()
        try:
            reclaimed = self._reclaimer.reclaim(intent)
        except JournalUnavailable:
            self._log.emit(of_intent(intent, Outcome.JOURNAL_UNAVAILABLE, NOT_WRITTEN))
            return
        except (Unsupported, CgroupGone, OSError) as error:
            self._log.emit(_failure(intent, error))
            return
        finally:
            self._reclaim_seconds += time.monotonic() - started
        got = reclaimed.amount_bytes
        short = f"; no more than {got} bytes were to be had" if got < intent.amount_bytes else ""
        self._log.emit(of_intent(intent, Outcome.RECLAIMED, intent.reason + short, file=reclaimed.file))

    def start_step(self) -> None:
        """Begin a step: its reclaims together take no longer than one may, however many there are."""
        self._reclaim_seconds = 0.0

    def _no_time(self) -> str:
        if self._reclaim_seconds < MOST_RECLAIM_SECONDS:
            return ""
        return f"the reclaims of this step took {self._reclaim_seconds:.1f} s already"

    def _spend(self, intent: Reclaim) -> str:
        return self._budgets.spend(intent.target, self._clock.monotonic_seconds)

    def evict(self, intents: Iterable[Evict], protection: ProtectedCgroups) -> None:
        """Go on with the evictions under way, and begin those that may begin, in the order of the intents."""
        now = self._clock.monotonic_seconds
        for event in self._evictions.advance(now):
            self._log.emit(event)
        for event in self._pod_evictions.advance(now) if self._pod_evictions else ():
            self._log.emit(event)
        for intent in intents:
            forbidden = protection.refusal(intent.strategy, intent.target)
            if not self._evictions.enabled:
                self._log.emit(of_intent(intent, Outcome.REFUSED, "[enforcer] evict is off"))
            elif forbidden:
                self._log.emit(of_intent(intent, Outcome.PROTECTED, forbidden))
            elif _is_kubelets(intent.target, protection):
                self._begin_pod(intent)
            else:
                self._begin(intent)

    def _begin_pod(self, intent: Evict) -> None:
        """Ask the API server; a process of a pod is never signalled, since the kubelet would start it again."""
        if self._pod_evictions is None:
            reason = "pods are evicted through the API server only; run the agent in a cluster, without --standalone"
            self._log.emit(of_intent(intent, Outcome.REFUSED, reason))
            return
        pod = pod_of(self._pods_of(), intent.target)
        if pod is None:
            self._log.emit(of_intent(intent, Outcome.REFUSED, "no pod is known to be there"))
            return
        event = self._pod_evictions.begin(intent, pod, self._clock.monotonic_seconds)
        if event is not None:
            self._log.emit(event)

    def _begin(self, intent: Evict) -> None:
        event: EnforcerEvent | None
        try:
            event = self._evictions.begin(intent, self._clock.monotonic_seconds)
        except (Unsupported, CgroupGone, OSError) as error:
            event = _failure(intent, error)
        if event is not None:
            self._log.emit(event)


def _is_kubelets(target: str, protection: ProtectedCgroups) -> bool:
    """Whether a cgroup is the kubelet's, or may be by its name.

    A host application in one of the kubelet's directories is none: the kubelet does not know its processes.
    """
    kinds = (CgroupKind.KUBEPODS, CgroupKind.POD)
    if any(protection.pod_uids.get(path) for path in lineage(target)):
        return True
    if target in protection.applications:
        return False
    return any(kind_at(path, protection.kinds) in kinds or name_cgroup(path).kind in kinds for path in lineage(target))


def _failure(intent: Intent, error: Exception) -> EnforcerEvent:
    if isinstance(error, Unsupported):
        reason = f"{error.reason}; {error.remedy}" if error.remedy else error.reason
        return of_intent(intent, Outcome.UNSUPPORTED, reason)
    if isinstance(error, CgroupGone):
        return of_intent(intent, Outcome.GONE, "there is no such cgroup")
    return of_intent(intent, Outcome.FAILED, str(error))
