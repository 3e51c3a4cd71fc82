"""Counts of matching pods per row, kept up to date pod by pod.

Topology spread and pod affinity ask "how many pods that match this selector are there, row by row". A count is
registered once per question and then changed by every pod that comes or goes. Pods with the same namespace and
labels match alike: the match is computed once, and a new question looks at groups of pods, not at each pod.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from api.kube.meta import LabelSelector
from api.kube.selectors import label_selector_matches
from scheduler.cluster_state.columns import Column, Row
from scheduler.cluster_state.podinfo import IDENTITY_LABELS, Placement, PodClass, PodInfo

Identity: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""Namespace and labels: all that a selector can see of a pod."""

MAX_IDENTITIES = 1024
RECENT_COUNTS = 512


@dataclass(frozen=True, slots=True)
class PodQuestion:
    """Selection of the pods that count: in `namespaces` (None = all) and matching every selector.

    `alive` leaves out pods that are being deleted.
    """

    namespaces: frozenset[str] | None
    selectors: tuple[bytes, ...]
    alive: bool = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class PodCount:
    """The answer to one question: `column.values` is int64 per row."""

    matches: Callable[[str, dict[str, str]], bool]
    alive: bool
    column: Column
    known: dict[Identity, bool] = field(default_factory=dict)

    def covers(self, info: PodInfo, identity: Identity) -> bool:
        """Return whether the pod counts."""
        return not (self.alive and info.pod.metadata.deletion_timestamp) and self.selects(identity)

    def selects(self, identity: Identity) -> bool:
        """Return whether pods of this namespace and these labels count."""
        answer = self.known.get(identity)
        if answer is None:
            if len(self.known) >= MAX_IDENTITIES:
                self.known.clear()
            namespace, labels = identity
            answer = self.known[identity] = self.matches(namespace, dict(labels))
        return answer


@dataclass(slots=True, eq=False)
class PodGroup:
    """Placed pods of one namespace and one set of labels, by UID."""

    identity: Identity
    uids: set[str] = field(default_factory=set)


class PodCounts:
    """All registered counts over `placements`; `new_column` makes an int64 column of zeros."""

    def __init__(self, placements: Mapping[str, Placement], new_column: Callable[[], Column]) -> None:
        self._placements = placements
        self._new_column = new_column
        self._counts: WeakValueDictionary[PodQuestion, PodCount] = WeakValueDictionary()
        """Those that are asked for, or that a placed pod counts in."""
        self._recent: deque[PodCount] = deque(maxlen=RECENT_COUNTS)
        """Those registered last, which live on without."""
        self._covering: WeakKeyDictionary[PodClass, tuple[PodCount, ...]] = WeakKeyDictionary()
        """Counts by class, for pods whose labels all belong to the class."""
        self._counted: dict[str, tuple[PodCount, ...]] = {}
        """Per pod UID, the counts it was added to; a pod's labels may change while it is placed."""
        self._groups: dict[Identity, PodGroup] = {}
        self._group_of: dict[str, PodGroup] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, question: PodQuestion, selectors: Iterable[LabelSelector | None]) -> PodCount:
        """The count for a question, registered on first use; `selectors` are the question's, decoded."""
        known = self._counts.get(question)
        if known is not None:
            return known
        wanted = tuple(selectors)
        namespaces = question.namespaces

        def matches(namespace: str, labels: dict[str, str]) -> bool:
            inside = namespaces is None or namespace in namespaces
            return inside and all(label_selector_matches(selector, labels) for selector in wanted)

        count = PodCount(matches, question.alive, self._new_column())
        self._counts[question] = count
        self._recent.append(count)
        self._covering.clear()
        for group in self._groups.values():
            if not count.selects(group.identity):
                continue
            for uid in group.uids:
                placement = self._placements[uid]
                if count.covers(placement.info, group.identity):
                    count.column.values[placement.row] += 1
                    self._counted[uid] = (*self._counted.get(uid, ()), count)
        return count

    def add(self, info: PodInfo, row: Row) -> None:
        """A pod was placed on the row."""
        identity = identity_of(info)
        group = self._groups.get(identity)
        if group is None:
            group = self._groups[identity] = PodGroup(identity)
        group.uids.add(info.uid)
        self._group_of[info.uid] = group
        if not self._counts:
            return
        covering = self._counts_of(info, identity)
        if covering:
            self._counted[info.uid] = covering
            for count in covering:
                count.column.values[row] += 1

    def without(self, count: PodCount, uids: Iterable[str]) -> NDArray[np.int64]:
        """The count's values as they would be without some pods. Not to be changed."""
        rows = [self._placements[uid].row for uid in uids if count in self._counted.get(uid, ())]
        if not rows:
            return count.column.values
        values: NDArray[np.int64] = count.column.values.copy()
        np.subtract.at(values, rows, 1)
        return values

    def _counts_of(self, info: PodInfo, identity: Identity) -> tuple[PodCount, ...]:
        alike = not info.pod.metadata.deletion_timestamp and IDENTITY_LABELS.isdisjoint(info.labels)
        known = self._covering.get(info.cls) if alike else None
        if known is None:
            known = tuple(count for count in self._counts.values() if count.covers(info, identity))
            if alike:
                self._covering[info.cls] = known
        return known

    def remove(self, info: PodInfo, row: Row) -> None:
        """A pod left the row."""
        group = self._group_of.pop(info.uid, None)
        if group is not None:
            group.uids.discard(info.uid)
            if not group.uids:
                del self._groups[group.identity]
        for count in self._counted.pop(info.uid, ()):
            count.column.values[row] -= 1


def identity_of(info: PodInfo) -> Identity:
    """Namespace and labels of a pod."""
    return info.namespace, frozenset(info.labels.items())
