"""The gang state machine: members come, wait, bind and leave; a group is placed whole or not at all.

`Gangs` takes events (a pod appeared, was placed, was bound, released, disappeared) and returns the pods that
bind or give up their place. It knows no clock and no queue: an attempt is whatever lies between `begin` and
`close`, and a retry is due whenever an event changes an answer, so nothing waits for a counter or a timer.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from scheduler.gang.spec import GangSpec, MatchPolicy


@dataclass(slots=True)
class Gang:
    """One gang with its members by state; every set holds pod keys."""

    id: str
    spec: GangSpec | None = None
    declared: bool = False
    """A PodGroup object describes it, so it outlives its pods."""
    problem: str = ""
    """Why there is no spec."""
    members: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    """Placed (assumed) and held back until the group is complete."""
    bound: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    """Bound once and no longer running."""
    satisfied_once: bool = False

    @property
    def counted(self) -> int:
        """Members that count towards the minimum, by the match policy."""
        if self.spec is not None and self.spec.policy is MatchPolicy.WAITING_AND_RUNNING:
            return len(self.waiting) + len(self.bound - self.finished)
        return len(self.waiting)

    @property
    def unbound(self) -> int:
        """Members to bind until the minimum is."""
        return max(self.spec.minimum - len(self.bound), 0) if self.spec is not None else 0

    @property
    def satisfied(self) -> bool:
        """Enough members hold a place."""
        if self.spec is None:
            return False
        remembered = self.spec.policy is MatchPolicy.ONCE_SATISFIED and self.satisfied_once
        return remembered or self.counted >= self.spec.minimum


@dataclass(slots=True)
class GangAttempt:
    """One attempt to place a whole group."""

    group: str
    tried: set[str] = field(default_factory=set)
    failure: str = ""


@dataclass(frozen=True, slots=True)
class GangWait:
    """The pod keeps its place for at most this long while others are sought."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Allow:
    """The group is complete: all these pods may bind."""

    pods: tuple[str, ...]


class Gangs:
    """All gangs of the cluster. Unknown pods belong to no gang: every question answers "go ahead"."""

    def __init__(self) -> None:
        self.by_id: dict[str, Gang] = {}
        self._gang_of: dict[str, str] = {}
        self._attempts: dict[str, GangAttempt] = {}

    def declare(self, spec: GangSpec) -> None:
        """Take a PodGroup that appeared or changed; it overrules the pods' own keys."""
        gang = self._gang(spec.id)
        gang.spec, gang.declared, gang.problem = spec, True, ""

    def withdraw(self, gang_id: str) -> None:
        """Take the deletion of a PodGroup."""
        gang = self.by_id.get(gang_id)
        if gang is None:
            return
        gang.spec, gang.declared = None, False
        gang.problem = "its PodGroup is gone"
        if not gang.members:
            del self.by_id[gang_id]

    def pod_seen(self, pod: str, gang_id: str, spec: GangSpec | None, *, problem: str = "") -> None:
        """Take a member. `spec` is what its own keys describe; the first to describe the gang decides."""
        if self._gang_of.get(pod, gang_id) != gang_id:
            self.pod_gone(pod)
        gang = self._gang(gang_id)
        self._gang_of[pod] = gang_id
        gang.members.add(pod)
        if gang.spec is None and spec is not None:
            gang.spec, gang.problem = spec, ""
        elif gang.spec is None:
            gang.problem = problem or gang.problem

    def pod_bound(self, pod: str, *, running: bool = True) -> Gang | None:
        """Take a member that holds its place for good; `running` is False once it succeeded or failed.

        Returns its gang where another process bound it.
        """
        gang = self._of(pod)
        if gang is None:
            return None
        is_others = pod not in gang.bound | gang.waiting
        gang.waiting.discard(pod)
        gang.bound.add(pod)
        (gang.finished.discard if running else gang.finished.add)(pod)
        gang.satisfied_once = True
        return gang if is_others else None

    def cut_off(self, pending: Container[str]) -> list[str]:
        """Members among `pending` that strict groups lack of which a part is bound: as many as each gang needs.

        A group binds as a whole, so what chose its nodes ended in between, or bound members have gone since.
        """
        found: list[str] = []
        for gang in self.by_id.values():
            if gang.spec is None or not gang.spec.strict or not gang.unbound:
                continue
            able = sorted(key for key in gang.members - gang.bound - gang.waiting if key in pending)
            if able and any(sibling.bound for sibling in self._siblings(able[0])):
                found += able[: gang.unbound]
        return found

    def pod_gone(self, pod: str) -> None:
        """Forget a deleted pod."""
        gang = self._of(pod)
        if gang is None:
            return
        for members in (gang.members, gang.waiting, gang.bound, gang.finished):
            members.discard(pod)
        del self._gang_of[pod]
        if not gang.members and not gang.declared:
            del self.by_id[gang.id]

    def shortage(self, pod: str) -> str | None:
        """Return why the pod may not be attempted yet, with the missing count; None when it may."""
        gang = self._of(pod)
        if gang is None or (gang.spec is not None and gang.satisfied and gang.satisfied_once):
            return None
        if gang.spec is None:
            return f"gang {gang.id} is unknown: {gang.problem or 'its PodGroup does not exist'}"
        for gang_id in gang.spec.group:
            sibling = self.by_id.get(gang_id)
            if sibling is None or sibling.spec is None:
                return f"gang {gang.id} is bound to gang {gang_id}, which does not exist yet"
            if sibling.spec.group != gang.spec.group:
                return f"gang {gang.id} is bound to gang {gang_id}, which does not name the same gangs"
            missing = sibling.spec.minimum - len(sibling.members)
            if missing > 0:
                return f"gang {gang_id} has {len(sibling.members)} of {sibling.spec.minimum} members, {missing} missing"
        return None

    def group_of(self, pod: str) -> str | None:
        """The id of the gang group that a pod belongs to."""
        gang = self._of(pod)
        return gang.spec.group_id if gang is not None and gang.spec is not None else None

    def begin(self, pod: str) -> GangAttempt | None:
        """The attempt that a pod is part of, started by its first member; None without a gang."""
        group = self.group_of(pod)
        if group is None:
            return None
        attempt = self._attempts.setdefault(group, GangAttempt(group))
        attempt.tried.add(pod)
        return attempt

    def attempt_of(self, pod: str) -> GangAttempt | None:
        """The running attempt of the pod's group."""
        return self._attempts.get(self.group_of(pod) or "")

    def untried(self, pod: str) -> list[str]:
        """Siblings that the running attempt has to try next, in order of their names."""
        attempt = self.attempt_of(pod)
        if attempt is None:
            return []
        pending = (m for gang in self._siblings(pod) for m in gang.members - gang.waiting - gang.bound)
        return sorted(set(pending) - attempt.tried)

    def fail(self, pod: str, reason: str) -> list[str]:
        """Take a member that found no place. Returns the waiting pods that give up theirs.

        The first failure of an attempt is kept and is the reason of every later sibling.
        """
        attempt = self.attempt_of(pod)
        if attempt is not None and not attempt.failure:
            attempt.failure = f"{self.progress(pod)}; {pod}: {reason}"
        return self._let_go(pod)

    def place(self, pod: str) -> Allow | GangWait:
        """Take a member that found a place: all may bind, or it waits for the rest."""
        gang = self._of(pod)
        if gang is None or gang.spec is None:
            return Allow((pod,))
        gang.waiting.add(pod)
        siblings = self._siblings(pod)
        if _whole(gang.spec, siblings):
            self._attempts.pop(gang.spec.group_id, None)
            for sibling in siblings:
                sibling.satisfied_once = True
            return Allow(tuple(sorted(_all(sibling.waiting for sibling in siblings))))
        if _satisfied_for_good(gang):
            # Its group was complete once; gangs of it that are gone or start anew hold nothing back.
            return Allow(tuple(sorted(gang.waiting)))
        return GangWait(gang.spec.wait_seconds, self.progress(pod))

    def held(self, pod: str) -> bool:
        """Return whether the pod has a place and waits for others of its group."""
        gang = self._of(pod)
        if gang is None or gang.spec is None or pod not in gang.waiting or _satisfied_for_good(gang):
            return False
        return not _whole(gang.spec, self._siblings(pod))

    def loose(self, pod: str) -> bool:
        """Return whether all gangs of the pod's group are of the mode NonStrict."""
        return all(gang.spec is not None and not gang.spec.strict for gang in self._siblings(pod))

    def needed(self, pod: str, pending: Container[str]) -> list[str]:
        """Members among `pending` that the group needs beside those that hold a place; empty where they are too few."""
        found: list[str] = []
        for gang in self._siblings(pod):
            short = max(gang.spec.minimum - gang.counted, 0) if gang.spec is not None else 0
            able = [key for key in sorted(gang.members - gang.waiting - gang.bound) if key in pending]
            if len(able) < short:
                return []
            found += able[:short]
        return found

    def unplace(self, pod: str) -> list[str]:
        """Take a member that lost its place. Returns the others that must give up theirs."""
        gang = self._of(pod)
        if gang is None:
            return []
        gang.waiting.discard(pod)
        gang.bound.discard(pod)
        return self._let_go(pod)

    def close(self, pod: str) -> list[str]:
        """End the attempt. Returns the waiting pods that give up their place in an incomplete group."""
        attempt = self._attempts.pop(self.group_of(pod) or "", None)
        return self._let_go(pod) if attempt is not None else []

    def progress(self, pod: str) -> str:
        """Progress of each gang of the pod's group: placed, minimum and missing."""
        parts = []
        for gang in self._siblings(pod):
            minimum = gang.spec.minimum if gang.spec else 0
            missing = max(minimum - gang.counted, 0)
            parts.append(f"gang {gang.id} has {gang.counted} of {minimum} members placed, {missing} missing")
        return "; ".join(parts)

    def _let_go(self, pod: str) -> list[str]:
        """Waiting pods of a strict group that is not complete; gangs of it that were complete once keep theirs."""
        gang = self._of(pod)
        if gang is None or gang.spec is None or not gang.spec.strict:
            return []
        siblings = self._siblings(pod)
        if _whole(gang.spec, siblings):
            return []
        return sorted(_all(sibling.waiting for sibling in siblings if not _satisfied_for_good(sibling)))

    def _siblings(self, pod: str) -> list[Gang]:
        gang = self._of(pod)
        if gang is None or gang.spec is None:
            return []
        # A gang that does not name the same group has not agreed to share its fate.
        return [
            sibling
            for gang_id in gang.spec.group
            if (sibling := self.by_id.get(gang_id)) is not None
            and (sibling is gang or (sibling.spec is not None and sibling.spec.group == gang.spec.group))
        ]

    def _gang(self, gang_id: str) -> Gang:
        return self.by_id.setdefault(gang_id, Gang(gang_id))

    def _of(self, pod: str) -> Gang | None:
        gang_id = self._gang_of.get(pod)
        return self.by_id.get(gang_id) if gang_id is not None else None


def _whole(spec: GangSpec, siblings: Sequence[Gang]) -> bool:
    """Return whether every gang of the group is there and satisfied; one that has vanished since is incomplete."""
    return len(siblings) == len(spec.group) and all(sibling.satisfied for sibling in siblings)


def _satisfied_for_good(gang: Gang) -> bool:
    policy = gang.spec.policy if gang.spec else None
    return policy is MatchPolicy.ONCE_SATISFIED and gang.satisfied_once


def _all(sets: Iterable[set[str]]) -> set[str]:
    return set().union(*sets)
