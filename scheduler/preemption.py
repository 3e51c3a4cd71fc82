"""Choice of victims so that a more important pod fits, as the stock scheduler makes it.

On each node where removal may help, all less important pods are removed in a trial; if the pod then fits, victims are
given back one by one, those protected by a disruption budget first, then by importance, as long as the pod
still fits. Of the nodes' answers the one that hurts least is taken.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from api.kube.objects import PodDisruptionBudget
from api.kube.selectors import label_selector_matches
from cluster.resources import POD_DISRUPTION_BUDGETS
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.cluster_state.snapshot import Snapshot, Trial
from scheduler.framework import Attempt, Failure
from scheduler.priority import sub_priority

BUDGETS = POD_DISRUPTION_BUDGETS.of(PodDisruptionBudget)

MAX_GANG_ROWS = 100
"""Rows looked at for each member of a gang."""
GANG_CANDIDATES = 20
"""Candidates among which one is chosen for each member of a gang; all members are one attempt."""
LATEST_ROWS = 8
"""Rows that were given to members last, on which a further one is tried."""

PRIORITY_OFFSET = 2**31
"""Keeps sums of priorities ordered by count when priorities are negative."""


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """A row and the pods that must leave it; `violations` of them break a disruption budget."""

    row: Row
    victims: tuple[PodInfo, ...]
    violations: int


def importance(info: PodInfo) -> tuple[int, int, str]:
    """Sort key: most important first; of equal priority by sub-priority, then who started earlier."""
    return -info.priority, -sub_priority(info.labels), info.pod.status.start_time or "9999"


def may_go(info: PodInfo) -> bool:
    """Return whether a less important pod may be removed: a reservation's stand-in is no pod that could be."""
    return not info.stand_in


def any_less_important(snapshot: Snapshot, infos: Iterable[PodInfo]) -> bool:
    """Return whether some placed pod may be removed for one of these."""
    highest = max(info.priority for info in infos)
    return any(placed.info.priority < highest and may_go(placed.info) for placed in snapshot.pods.values())


def violating(
    victims: Iterable[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[PodInfo], list[PodInfo]]:
    """Victims split into those that break a budget and those that do not, in the given order."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    breaking: list[PodInfo] = []
    harmless: list[PodInfo] = []
    for info in victims:
        broken = False
        for index, budget in enumerate(budgets):
            if not covers(budget, info) or info.pod.metadata.name in budget.status.disrupted_pods:
                continue
            allowed[index] -= 1
            broken = broken or allowed[index] < 0
        (breaking if broken else harmless).append(info)
    return breaking, harmless


def covers(budget: PodDisruptionBudget, info: PodInfo) -> bool:
    """Return whether a budget protects the pod; a budget without a selector protects no pod."""
    selector = budget.spec.selector
    if selector is None or (not selector.match_labels and not selector.match_expressions):
        return False
    return budget.metadata.namespace == info.namespace and label_selector_matches(selector, info.labels)


def victims_on(
    attempt: Attempt,
    row: Row,
    budgets: Sequence[PodDisruptionBudget],
    *,
    fits: Callable[[Attempt, Row], bool],
    may_go: Callable[[PodInfo], bool],
) -> PreemptionCandidate | None:
    """The fewest, least important pods whose leaving lets the pod onto the row; None when nothing helps."""
    snapshot = attempt.snapshot
    gone = [info for info in snapshot.residents[row].values() if info.priority < attempt.pod.priority and may_go(info)]
    if not gone or not _enough(snapshot, attempt, row, gone):
        return None
    with snapshot.trial() as trial:
        taken = snapshot.requested[row].copy()
        for info in gone:
            trial.remove(info.uid)
            taken -= snapshot.vector(info)
        if not fits(attempt, row):
            return None
        # A pod in a reservation leaves its room to that: then sums say nothing of what its coming back takes.
        plain = row not in attempt.restored and bool((taken == snapshot.requested[row]).all())
        breaking, harmless = violating(sorted(gone, key=importance), budgets)
        victims: list[PodInfo] = []
        violations = 0
        for info in breaking + harmless:
            in_the_way = plain and not _beside(snapshot, attempt, row, info)
            if in_the_way or not _given_back(trial, attempt, row, info, fits):
                victims.append(info)
                violations += info in breaking
    if not victims:
        return None
    return PreemptionCandidate(row, tuple(sorted(victims, key=importance)), violations)


def gang_victims(
    attempts: Sequence[Attempt],
    budgets: Sequence[PodDisruptionBudget],
    *,
    best_row: Callable[[Attempt], tuple[Row | None, Failure]],
    fits: Callable[[Attempt, Row], bool],
    may_go: Callable[[PodInfo], bool],
) -> tuple[list[Row], tuple[PodInfo, ...]] | None:
    """Rows of all pods of a gang, and the pods that must leave so that all fit; None when they do not fit even then.

    Members are placed one after another; what turns out not to be in the way is given back at the end, most important
    first. Devices and CPUs of one's own are looked at member by member.
    """
    snapshot = attempts[0].snapshot
    rows: list[Row] = []
    gone: dict[str, tuple[PodInfo, Row]] = {}
    outlooks: dict[tuple[PodClass, int], Outlook] = {}
    with snapshot.trial() as trial:
        for attempt in attempts:
            kind = attempt.pod.cls, attempt.pod.priority
            outlook, failure = outlooks.get(kind), None
            if outlook is None or _draws_on_others(attempt.pod):
                row, failure = best_row(attempt)
            else:
                # No other row had room for the one before; what changed since are the rows that members were given.
                given = list(dict.fromkeys(reversed(rows)))[:LATEST_ROWS]
                able = (each for each in given if _enough(snapshot, attempt, each))
                row = next((each for each in able if fits(attempt, each)), None)
            if row is None:
                look = partial(victims_on, attempt, budgets=budgets, fits=fits, may_go=may_go)
                chosen = outlook.chosen(look) if outlook is not None else None
                if chosen is None and failure is None:
                    # Victims that left may have been in the way elsewhere too, by their anti-affinity or their labels.
                    row, failure = best_row(attempt)
                if chosen is None and row is None and failure is not None and failure.reason is None:
                    outlooks[kind] = Outlook(failure.resolvable_rows(snapshot)[:MAX_GANG_ROWS].tolist())
                    chosen = outlooks[kind].chosen(look)
                if chosen is None and row is None:
                    return None
            if row is None:
                assert chosen is not None
                row = chosen.row
                for victim in chosen.victims:
                    trial.remove(victim.uid)
                    gone[victim.uid] = (victim, row)
            trial.add(attempt.pod, row)
            rows.append(row)
        for victim, row in sorted(gone.values(), key=lambda item: importance(item[0])):
            trial.add(victim, row)
            if all(
                _still_fits(trial, attempt, at, fits) for attempt, at in zip(attempts, rows, strict=True) if at == row
            ):
                del gone[victim.uid]
            else:
                trial.remove(victim.uid)
    return rows, tuple(sorted((victim for victim, _ in gone.values()), key=importance))


def _draws_on_others(info: PodInfo) -> bool:
    """Return whether rows that could not take the pod may be able to once members like it are on others."""
    spec = info.pod.spec
    affinity = spec.affinity.pod_affinity if spec.affinity is not None else None
    return bool(affinity is not None and affinity.required) or any(
        each.when_unsatisfiable == "DoNotSchedule" for each in spec.topology_spread_constraints
    )


@dataclass(slots=True)
class Outlook:
    """Rows on which room may be made for members that are alike, in order, and what that takes on those looked at."""

    rows: list[Row]
    known: list[PreemptionCandidate] = field(default_factory=list)

    def chosen(self, look: Callable[[Row], PreemptionCandidate | None]) -> PreemptionCandidate | None:
        """The least harmful of some candidates; None when there is none any more. `look` asks a row as it is now."""
        while True:
            while self.rows and len(self.known) < GANG_CANDIDATES:
                found = look(self.rows.pop(0))
                if found is not None:
                    self.known.append(found)
            if not self.known:
                return None
            best = least_harmful(self.known)
            self.known.remove(best)
            now = look(best.row)
            if now == best:
                # Another member may find its victims there too.
                self.rows.insert(0, best.row)
                return best
            if now is not None:
                self.known.append(now)


def _still_fits(trial: Trial, attempt: Attempt, row: Row, fits: Callable[[Attempt, Row], bool]) -> bool:
    trial.remove(attempt.pod.uid)
    good = fits(attempt, row)
    trial.add(attempt.pod, row)
    return good


def least_harmful(candidates: Sequence[PreemptionCandidate]) -> PreemptionCandidate:
    """Fewest broken budgets; then lowest top priority, lowest sum, fewest pods, youngest top victim."""
    return min(candidates, key=_harm)


def _harm(candidate: PreemptionCandidate) -> tuple[int, int, int, int, "_Latest"]:
    top = candidate.victims[0].priority
    started = [info.pod.status.start_time or "9999" for info in candidate.victims if info.priority == top]
    return (
        candidate.violations,
        top,
        sum(info.priority + PRIORITY_OFFSET for info in candidate.victims),
        len(candidate.victims),
        _Latest(min(started)),
    )


@dataclass(frozen=True, slots=True)
class _Latest:
    """Sorts later times first."""

    time: str

    def __lt__(self, other: "_Latest") -> bool:
        return self.time > other.time


def _enough(snapshot: Snapshot, attempt: Attempt, row: Row, gone: Iterable[PodInfo] = ()) -> bool:
    """Cheap look ahead: would the pod's requests fit if all of these left."""
    taken = attempt.requested(slice(row, row + 1))[0].copy()
    for info in gone:
        taken -= snapshot.vector(info)
    wanted = snapshot.vector(attempt.pod)
    return bool(((taken + wanted <= snapshot.allocatable[row]) | (wanted == 0)).all())


def _beside(snapshot: Snapshot, attempt: Attempt, row: Row, info: PodInfo) -> bool:
    """Cheap look ahead: would the pod's requests fit beside this one?"""
    wanted = snapshot.vector(attempt.pod)
    taken = snapshot.requested[row] + snapshot.vector(info)
    return bool(((taken + wanted <= snapshot.allocatable[row]) | (wanted == 0)).all())


def _given_back(
    trial: Trial,
    attempt: Attempt,
    row: Row,
    info: PodInfo,
    fits: Callable[[Attempt, Row], bool],
) -> bool:
    """Suppose the victim back; it leaves again when the pod does not fit beside it."""
    trial.add(info, row)
    if fits(attempt, row):
        return True
    trial.remove(info.uid)
    return False
