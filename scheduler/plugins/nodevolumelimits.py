"""NodeVolumeLimits: a node attaches only so many volumes of a driver; volumes shared by pods of one node count once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from api.kube.storage import CsiNode, VolumeAttachment
from cluster.resources import Key
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.framework import Action, Attempt, Bits, Handle, ObjectEvent, Plugin, Reason
from scheduler.matching.attachments import Attachment, attachments_of, inline_attachments, migrated_kinds
from scheduler.matching.volumes import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    DRIVERS,
    NODE_DRIVERS,
    VOLUMES,
    VolumeView,
    claim_keys,
)

EXCEEDED, MISSING = 1, 2


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NodeDrivers:
    """What a node's CSINode says; nodes that say the same share one."""

    names: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most volumes by driver."""
    kinds: frozenset[str] = frozenset()
    """Kinds of volumes that drivers attach there."""


NO_DRIVERS = NodeDrivers()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod asks of nodes with the same drivers."""

    attachments: frozenset[Attachment]
    """Volumes that drivers attach there."""
    missing: bool
    """A driver that must be there is not."""
    limits: Mapping[str, int]
    """Most volumes by driver, of those asked for."""
    room: int
    """Further volumes with which no limit can be exceeded."""


class NodeVolumeLimits(Plugin[frozenset[Attachment]]):
    """Counts attached volumes by row and driver."""

    name = "NodeVolumeLimits"
    rank = 170
    watches = (CLAIMS, VOLUMES, CLASSES, NODE_DRIVERS, DRIVERS, ATTACHMENTS)
    requeue_on = frozenset(
        {"pods/delete", "nodes/add", "csinodes/add", "csinodes/update", "volumeattachments/delete", "csidrivers/update"}
    )

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._classes_of: dict[Key, WeakSet[PodClass]] = {}
        self._rows_of: dict[Key, Counter[Row]] = {}
        self._attached: dict[Row, Counter[Key]] = {}
        """Users of each claim by row; claims become attachments when asked, since they may be bound later."""
        self._inline: dict[Row, Counter[Attachment]] = {}
        """Volumes of migrated kinds that pods name themselves, by row."""
        self._drivers: dict[str, NodeDrivers] = {}
        """Drivers by name of the node."""
        self._alike: WeakValueDictionary[tuple[object, ...], NodeDrivers] = WeakValueDictionary()
        """What CSINodes say, by what they say."""
        self._stated: dict[str, dict[Key, VolumeAttachment]] = {}
        """What is attached to each node, whatever pods are there."""

    def on_object(self, event: ObjectEvent) -> None:
        """Only what an object bears on is looked at anew: a node's limits, or a claim with its users."""
        if event.resource.plural == "csinodes":
            if event.action is Action.DELETE:
                self._drivers.pop(event.key.name, None)
            else:
                self._drivers[event.key.name] = self._drivers_of(event.after)
            row = self.handle.snapshot.row(event.key.name)
            if row is not None:
                self.handle.snapshot.touch(row)
        elif event.resource.plural == "volumeattachments":
            self._attachment_changed(event)
        elif event.resource.plural in ("storageclasses", "csidrivers"):
            self.handle.invalidate()
        elif event.resource.plural == "persistentvolumeclaims":
            self._claim_changed(event.key)
        else:
            volume = event.before if event.after is None else event.after
            owner = volume.spec.claim_ref if volume is not None else None
            if owner is not None:
                self._claim_changed(Key(owner.namespace, owner.name))

    def _attachment_changed(self, event: ObjectEvent) -> None:
        for item, added in ((event.before, False), (event.after, True)):
            if item is None:
                continue
            known = self._stated.setdefault(item.spec.node_name, {})
            known.pop(event.key, None)
            if added and event.action is not Action.DELETE:
                known[event.key] = item
            if not known:
                del self._stated[item.spec.node_name]
            row = self.handle.snapshot.row(item.spec.node_name)
            if row is not None:
                self.handle.snapshot.touch(row)

    def _claim_changed(self, claim: Key) -> None:
        self.handle.forget(self._classes_of.pop(claim, ()))
        for row in self._rows_of.get(claim, ()):
            self.handle.snapshot.touch(row)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Count the pod's claims and volumes."""
        if info.pod.spec.volumes and (inline := inline_attachments(info.pod)):
            self._inline.setdefault(row, Counter()).update(inline)
        keys = claim_keys(info.pod) if info.pod.spec.volumes else []
        if keys:
            self._attached.setdefault(row, Counter()).update(keys)
            for key in keys:
                self._rows_of.setdefault(key, Counter())[row] += 1

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Uncount the pod's claims and volumes."""
        if info.pod.spec.volumes and (inline := inline_attachments(info.pod)):
            self._inline[row] -= Counter(inline)
        for key in claim_keys(info.pod) if info.pod.spec.volumes else []:
            users = self._attached[row]
            users[key] -= 1
            if users[key] <= 0:
                del users[key]
            rows = self._rows_of[key]
            rows[row] -= 1
            if rows[row] <= 0:
                del rows[row]
            if not rows:
                del self._rows_of[key]

    def prepare(self, info: PodInfo) -> frozenset[Attachment] | None:
        """Volumes that the pod attaches; None when no driver is involved."""
        keys = claim_keys(info.pod)
        for key in keys:
            self._classes_of.setdefault(key, WeakSet()).add(info.cls)
        return (self._attachments(keys) | inline_attachments(info.pod)) or None

    def reasons(self, spec: frozenset[Attachment]) -> tuple[Reason, ...]:
        """Too many volumes, or no driver for them."""
        return (Reason("node(s) exceed max volume count"), Reason("node(s) without a CSI driver of a volume"))

    def filter(self, attempt: Attempt, spec: frozenset[Attachment], rows: Rows) -> Bits:
        """Rejects rows where a driver would hold more than it can, or is needed and not there."""
        names, drivers = attempt.snapshot.names, self._drivers
        numbers = np.arange(attempt.snapshot.rows_used)[rows].tolist()
        needed = {driver for driver in {each.driver for each in spec} if self._is_needed(driver)}
        known: dict[NodeDrivers, Asked] = {}
        bits = np.zeros(len(numbers), dtype=np.int64)
        for position, row in enumerate(numbers):
            name = names[row]
            there = drivers.get(name, NO_DRIVERS)
            asked = known.get(there)
            if asked is None:
                asked = known[there] = _asked(spec, there, needed)
            if asked.missing:
                bits[position] = MISSING
            elif asked.limits:
                claims, stated = self._attached.get(row, ()), self._stated.get(name, ())
                if len(claims) + len(self._inline.get(row, ())) + len(stated) > asked.room:
                    bits[position] = self._judge(row, there, asked)
        return bits

    def _judge(self, row: Row, there: NodeDrivers, asked: Asked) -> int:
        inline = self._inline.get(row, ())
        claims = list(self._attached.get(row, ()))
        held = _attached_by_drivers(self._attachments(claims).union(inline), there)
        held |= self._attached_to(self.handle.snapshot.names[row])
        counted = Counter(driver for driver, _ in {(each.driver, each.volume) for each in asked.attachments | held})
        return EXCEEDED * any(counted[driver] > limit for driver, limit in asked.limits.items())

    def _drivers_of(self, node: CsiNode) -> NodeDrivers:
        limits = {
            driver.name: driver.allocatable.count
            for driver in node.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        names, kinds = frozenset(driver.name for driver in node.spec.drivers), migrated_kinds(node)
        return self._alike.setdefault((names, frozenset(limits.items()), kinds), NodeDrivers(names, limits, kinds))

    def _is_needed(self, driver: str) -> bool:
        """Return whether pods go only to nodes that the driver is on."""
        known = self.handle.objects(DRIVERS).get(Key("", driver))
        return known is not None and bool(known.spec.prevent_pod_scheduling_if_missing)

    def _attached_to(self, node: str) -> set[Attachment]:
        """Volumes that are attached to a node, also where no pod is left that uses them."""
        found: set[Attachment] = set()
        for item in self._stated.get(node, {}).values():
            volume = self.handle.objects(VOLUMES).get(Key("", item.spec.source.persistent_volume_name))
            if volume is not None and volume.spec.csi is not None and item.spec.attacher:
                found.add(Attachment(item.spec.attacher, volume.spec.csi.volume_handle))
        return found

    def _attachments(self, keys: list[Key]) -> frozenset[Attachment]:
        objects = self.handle.objects
        return attachments_of(keys, VolumeView(objects(CLAIMS), objects(VOLUMES), objects(CLASSES)))


def _asked(spec: frozenset[Attachment], there: NodeDrivers, needed: set[str]) -> Asked:
    mine = _attached_by_drivers(spec, there)
    limits = {each.driver: there.limits[each.driver] for each in mine if each.driver in there.limits}
    missing = any(each.driver in needed and each.driver not in there.names for each in mine)
    return Asked(mine, missing, limits, min(limits.values(), default=0) - len(mine))


def _attached_by_drivers(volumes: frozenset[Attachment], there: NodeDrivers) -> frozenset[Attachment]:
    """Volumes that drivers attach on the node: not those of kinds that it does not leave to drivers."""
    return frozenset(each for each in volumes if not each.kind or each.kind in there.kinds)
