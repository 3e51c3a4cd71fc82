"""Free volumes by storage class and reach, and the rows that reach them, so that one attempt looks at each group once.

Volumes of one class that the same nodes reach differ in size alone; of a group the smallest that suits is taken.
"""

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.meta import LabelSelector
from api.kube.selectors import NodeSelector, NodeSelectorTerm, label_selector_matches, node_term_matches
from api.kube.storage import Claim, PersistentVolume
from cluster.resources import Key
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.matching.volumes import suits

Offering = tuple[str, str, frozenset[str]]
"""Mode, attributes class and access modes of a volume."""
Group = list[tuple[int, str, PersistentVolume, Offering]]
"""Volumes of one reach by size, then name."""
MAX_SHAPES = 256
"""Kinds of claims (class, size, modes, selector) whose volumes are remembered."""
FEW_ROWS = 64
"""Rows of a selector that are noted row by row, so that a row is asked which selectors mean it."""


class VolumeIndex:
    """Volumes that no claim has, and those set aside for a claim by name."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with every change."""
        self._groups: dict[str, dict[bytes, Group]] = {}
        self._places: dict[str, tuple[str, bytes, int]] = {}
        self._set_aside: dict[tuple[str, str], dict[str, PersistentVolume]] = {}
        self._owners: dict[str, tuple[str, str]] = {}
        self._selectors: dict[bytes, NodeSelector | None] = {}
        self._rows: ReachRows | None = None
        self._unlearned: dict[bytes, None] = {}
        """Selectors that `_rows` was not told yet, in the order in which they came."""
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._encoder = msgspec.msgpack.Encoder(order="sorted")

    def put(self, volume: PersistentVolume) -> None:
        """A volume appeared or changed. Raises QuantityError for an unreadable size, with the volume left out."""
        self.drop(volume)
        owner, name = volume.spec.claim_ref, volume.metadata.name
        if owner is not None:
            self._owners[name] = (owner.namespace, owner.name)
            self._set_aside.setdefault(self._owners[name], {})[name] = volume
        elif volume.status.phase in ("", "Available") and not volume.metadata.deletion_timestamp:
            size = volume.bytes
            required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
            reach = self._encoder.encode(required)
            if reach not in self._selectors:
                self._selectors[reach] = required
                self._unlearned[reach] = None
            groups = self._groups.setdefault(volume.spec.storage_class_name, {})
            insort(groups.setdefault(reach, []), (size, name, volume, _offering(volume)))
            self._places[name] = (volume.spec.storage_class_name, reach, size)
            self._changed(volume.spec.storage_class_name, reach)
        self.version += 1

    def drop(self, volume: PersistentVolume) -> None:
        """A volume is gone; an unknown one is ignored."""
        name = volume.metadata.name
        place = self._places.pop(name, None)
        if place is not None:
            groups = self._groups[place[0]]
            groups[place[1]] = [item for item in groups[place[1]] if item[1] != name]
            if not groups[place[1]]:
                del groups[place[1]]
            self._changed(place[0], place[1])
        owner = self._owners.pop(name, None)
        if owner is not None:
            del self._set_aside[owner][name]
            if not self._set_aside[owner]:
                del self._set_aside[owner]
        self.version += 1

    def candidates(
        self, claim: Claim, taken: Mapping[str, Key], mine: Container[Key], rows: "ReachRows", row: Row, count: int
    ) -> Iterator[PersistentVolume]:
        """Volumes for the claim that the row reaches and no other was promised; the `count` smallest of each group."""
        for volume in self._set_aside.get((claim.metadata.namespace, claim.metadata.name), {}).values():
            if _open(taken, volume, mine):
                yield volume
        self.learn(rows)
        suiting = self._suiting(claim)
        for reach in rows.reaching(row):
            yield from islice((volume for volume in suiting.get(reach, ()) if _open(taken, volume, mine)), count)

    def reaching(self, claim: Claim, taken: Mapping[str, Key], rows: "ReachRows") -> NDArray[np.bool_]:
        """bool[rows_used]: rows that reach a volume which suits the claim and is not `taken` by another."""
        mine = (Key(claim.metadata.namespace, claim.metadata.name),)
        mask = rows.none()
        found: list[Row] = []
        for volume in self._set_aside.get((claim.metadata.namespace, claim.metadata.name), {}).values():
            if suits(volume, claim) and _open(taken, volume, mine):
                required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
                if rows.add(self._encoder.encode(required), required, found):
                    return rows.all()
        for reach, volumes in self._suiting(claim).items():
            for volume in volumes:
                if volume.metadata.name not in taken or _open(taken, volume, mine):
                    if rows.add(reach, self._selectors[reach], found):
                        return rows.all()
                    break
        mask[found] = True
        return mask

    def learn(self, rows: "ReachRows", most: int | None = None) -> None:
        """Tell `rows` the selectors of volumes, at `most` so many of those that it was not told yet."""
        if rows is not self._rows:
            self._rows, self._unlearned = rows, dict.fromkeys(self._selectors)
        while rows.forgotten:
            self._unlearned[rows.forgotten.pop()] = None
        for reach in list(islice(self._unlearned, most)):
            rows.learn(reach, self._selectors[reach])
            del self._unlearned[reach]

    def _suiting(self, claim: Claim) -> dict[bytes, list[PersistentVolume]]:
        """Volumes that suit claims of this one's shape, by reach; groups that changed are looked at anew."""
        spec = claim.spec
        selector = self._encoder.encode(spec.selector)
        attributes = spec.volume_attributes_class_name or ""
        shape = (claim.class_name, claim.bytes, spec.volume_mode, tuple(spec.access_modes), attributes, selector)
        groups = self._groups.get(claim.class_name, {})
        known = self._shapes.get(shape)
        if known is None:
            if len(self._shapes) >= MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            known = self._shapes[shape] = Shape(stale=set(groups))
        for reach in known.stale:
            group = groups.get(reach)
            if group is None:
                known.volumes.pop(reach, None)
            else:
                known.volumes[reach] = known.suiting(claim, shape[1], group)
        known.stale.clear()
        return known.volumes

    def _changed(self, storage_class: str, reach: bytes) -> None:
        for shape, known in self._shapes.items():
            if shape[0] == storage_class:
                known.stale.add(reach)


@dataclass(slots=True)
class Shape:
    """Answers for claims that ask for the same: volumes that suit them by reach, and reaches to look at anew."""

    volumes: dict[bytes, list[PersistentVolume]] = field(default_factory=dict)
    stale: set[bytes] = field(default_factory=set)
    suited: dict[Offering, bool] = field(default_factory=dict)

    def suiting(self, claim: Claim, size: int, group: Group) -> list[PersistentVolume]:
        """Volumes of a group that suit the claim, as `suits` says of each that is free and of the claim's class."""
        found: list[PersistentVolume] = []
        for _, _, volume, offering in group[bisect_left(group, (size,)) :]:
            alike = self.suited.get(offering)
            if alike is None:
                alike = self.suited[offering] = _suited(claim, offering)
            selector = claim.spec.selector
            if alike and (selector is None or label_selector_matches(selector, volume.metadata.labels)):
                found.append(volume)
        return found


def _offering(volume: PersistentVolume) -> Offering:
    spec = volume.spec
    return spec.volume_mode, spec.volume_attributes_class_name or "", frozenset(spec.access_modes)


def _suited(claim: Claim, offering: Offering) -> bool:
    mode, attributes, access = offering
    spec = claim.spec
    stated = spec.volume_attributes_class_name or ""
    return mode == spec.volume_mode and attributes == stated and access.issuperset(spec.access_modes)


def _open(taken: Mapping[str, Key], volume: PersistentVolume, mine: Container[Key]) -> bool:
    """Return whether no claim but some of ours was promised the volume."""
    owner = taken.get(volume.metadata.name)
    return owner is None or owner in mine


class ReachRows:
    """Rows that node selectors mean. A node that changes has those forgotten that may mean it now, or did before."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.version = 0
        """Grows when a node changes, comes or goes."""
        self.forgotten: list[bytes] = []
        """Selectors that are to be learned anew."""
        self._known: dict[bytes, list[Row]] = {}
        self._learned: set[bytes] = set()
        self._meaning: dict[Row, dict[bytes, None]] = {}
        """Selectors of few rows by each of these."""
        self._wide: dict[bytes, NodeSelector | None] = {}
        """The other selectors that were learned; None means every row."""
        self._by_value: dict[str, dict[str, list[Row]]] = {}
        self._asking: dict[tuple[str, str], set[bytes]] = {}
        """Known selectors by the labels that they ask for."""
        self._excluding: dict[str, set[bytes]] = {}
        """Known selectors by the keys of labels that they ask otherwise about, as by NotIn or Exists."""
        self._vague: set[bytes] = set()
        """Known selectors that may mean a node whatever its labels are."""

    def change(self, before: Mapping[str, str] | None, after: Mapping[str, str] | None) -> None:
        """A node has other labels; it came where `before` is None, and is gone where `after` is."""
        self.version += 1
        was, now = before or {}, after or {}
        keys = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
        stale: set[bytes] = set()
        for key in keys:
            self._by_value.pop(key, None)
            stale |= self._excluding.get(key, set())
            for labels in (was, now):
                if key in labels:
                    stale |= self._asking.get((key, labels[key]), set())
        if before is None or after is None:
            stale |= self._vague
        for selector in sorted(stale):
            self._forget(selector)

    def _forget(self, key: bytes) -> None:
        rows = self._known.pop(key, None)
        if rows is not None and key in self._learned:
            self._learned.remove(key)
            self.forgotten.append(key)
            if self._wide.pop(key, None) is None:
                for row in rows:
                    del self._meaning[row][key]

    def none(self) -> NDArray[np.bool_]:
        """No row."""
        return np.zeros(self._snapshot.rows_used, dtype=bool)

    def all(self) -> NDArray[np.bool_]:
        """Every row."""
        return np.ones(self._snapshot.rows_used, dtype=bool)

    def add(self, key: bytes, selector: NodeSelector | None, found: list[Row]) -> bool:
        """Append the rows of a selector; True when that is all of them."""
        if selector is None:
            return True
        found.extend(self._of(key, selector))
        return False

    def learn(self, key: bytes, selector: NodeSelector | None) -> None:
        """Take up a selector that `reaching` is asked for."""
        self._learned.add(key)
        rows = self._of(key, selector) if selector is not None else []
        if selector is None or len(rows) > FEW_ROWS:
            self._wide[key] = selector
        else:
            for row in rows:
                self._meaning.setdefault(row, {})[key] = None

    def reaching(self, row: Row) -> Iterator[bytes]:
        """Selectors that were learned and mean the row."""
        yield from self._meaning.get(row, ())
        yield from (key for key, selector in self._wide.items() if selector is None or self._has(key, selector, row))

    def _has(self, key: bytes, selector: NodeSelector, row: Row) -> bool:
        rows = self._of(key, selector)
        at = bisect_left(rows, row)
        return at < len(rows) and rows[at] == row

    def _of(self, key: bytes, selector: NodeSelector) -> list[Row]:
        rows = self._known.get(key)
        if rows is None:
            terms = selector.node_selector_terms
            single = self._single(terms[0]) if len(terms) == 1 else None
            rows = sorted({row for term in terms for row in self._rows(term)}) if single is None else single
            self._known[key] = rows
            for term in terms:
                self._note(key, term)
        return rows

    def _note(self, key: bytes, term: NodeSelectorTerm) -> None:
        """Note which changes of a node may change the term's answer."""
        for asked in term.match_expressions:
            if asked.operator == "In":
                for value in asked.values:
                    self._asking.setdefault((asked.key, value), set()).add(key)
            else:
                self._excluding.setdefault(asked.key, set()).add(key)
        if all(asked.operator != "In" for asked in term.match_expressions):
            self._vague.add(key)

    def _single(self, term: NodeSelectorTerm) -> list[Row] | None:
        """Rows of a term that asks for one value of one label, as those of local volumes; None for others."""
        if term.match_fields or len(term.match_expressions) != 1:
            return None
        asked = term.match_expressions[0]
        if asked.operator != "In" or len(asked.values) != 1:
            return None
        return self._values(asked.key).get(asked.values[0], [])

    def labelled(self, selector: LabelSelector | None) -> list[Row]:
        """Rows whose labels a selector matches; none without a selector."""
        if selector is None:
            return []
        labels = self._snapshot.labels
        first = next(iter(selector.match_labels.items()), None)
        if first is not None:
            rows = self._values(first[0]).get(first[1], [])
            if len(selector.match_labels) == 1 and not selector.match_expressions:
                return rows
        else:
            rows = np.flatnonzero(self._snapshot.live).tolist()
        return [row for row in rows if label_selector_matches(selector, labels.of(row))]

    def _rows(self, term: NodeSelectorTerm) -> Iterable[Row]:
        labels, names = self._snapshot.labels, self._snapshot.names
        first = next((item for item in term.match_expressions if item.operator == "In"), None)
        rows: Iterable[Row]
        if first is not None:
            values = self._values(first.key)
            rows = [row for value in first.values for row in values.get(value, ())]
            if len(term.match_expressions) == 1 and not term.match_fields:
                return rows
        else:
            rows = np.flatnonzero(self._snapshot.live).tolist()
        return [row for row in rows if node_term_matches(term, labels.of(row), names[row])]

    def _values(self, key: str) -> dict[str, list[Row]]:
        known = self._by_value.get(key)
        if known is None:
            known = self._by_value[key] = {}
            for row in np.flatnonzero(self._snapshot.live).tolist():
                value = self._snapshot.labels.of(row).get(key)
                if value is not None:
                    known.setdefault(value, []).append(row)
        return known
