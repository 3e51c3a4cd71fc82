"""Free volumes by storage class and reach, and the rows that reach them, so that one attempt looks at each group once.

Volumes of one class that the same nodes reach differ in size alone; of a group the smallest that suits is taken.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.selectors import NodeSelector, NodeSelectorTerm, node_term_matches
from api.kube.storage import Claim, PersistentVolume
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.matching.volumes import suits

Group = list[tuple[int, str, PersistentVolume]]
"""Volumes of one reach by size, then name."""


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
            self._selectors.setdefault(reach, required)
            insort(
                self._groups.setdefault(volume.spec.storage_class_name, {}).setdefault(reach, []), (size, name, volume)
            )
            self._places[name] = (volume.spec.storage_class_name, reach, size)
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
        owner = self._owners.pop(name, None)
        if owner is not None:
            del self._set_aside[owner][name]
            if not self._set_aside[owner]:
                del self._set_aside[owner]
        self.version += 1

    def candidates(self, claim: Claim) -> Iterator[PersistentVolume]:
        """Every volume that may serve the claim, smaller ones first within a group."""
        yield from self._set_aside.get((claim.metadata.namespace, claim.metadata.name), {}).values()
        for group in self._groups.get(claim.class_name, {}).values():
            for _, _, volume in group:
                yield volume

    def reaching(self, claim: Claim, taken: Callable[[PersistentVolume], bool], rows: "ReachRows") -> NDArray[np.bool_]:
        """bool[rows_used]: rows that reach a volume which suits the claim and is not `taken`."""
        mask = rows.none()
        found: list[Row] = []
        for volume in self._set_aside.get((claim.metadata.namespace, claim.metadata.name), {}).values():
            if suits(volume, claim) and not taken(volume):
                required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
                if rows.add(self._encoder.encode(required), required, found):
                    return rows.all()
        for reach, group in self._groups.get(claim.class_name, {}).items():
            if any(suits(volume, claim) and not taken(volume) for _, _, volume in group) and rows.add(
                reach, self._selectors[reach], found
            ):
                return rows.all()
        mask[found] = True
        return mask


class ReachRows:
    """Rows that node selectors mean, kept as long as names and labels of the nodes stay."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[bytes, list[Row]] = {}
        self._by_value: dict[str, dict[str, list[Row]]] = {}

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
        rows = self._known.get(key)
        if rows is None:
            rows = self._known[key] = sorted({row for term in selector.node_selector_terms for row in self._rows(term)})
        found.extend(rows)
        return False

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
