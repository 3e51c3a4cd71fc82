"""NodeVolumeLimits: a node attaches only so many volumes of a driver; volumes shared by pods of one node count once."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.resources import Key
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.framework import Attempt, Bits, Handle, ObjectEvent, Plugin, Reason
from scheduler.matching.volumes import CLAIMS, CLASSES, NODE_DRIVERS, VOLUMES, VolumeView, claim_keys


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume as its driver sees it; claims without a volume yet count by their name."""

    driver: str
    volume: str


class NodeVolumeLimits(Plugin[frozenset[Attachment]]):
    """Counts attached volumes by row and driver."""

    name = "NodeVolumeLimits"
    rank = 170
    watches = (CLAIMS, VOLUMES, CLASSES, NODE_DRIVERS)
    requeue_on = frozenset({"pods/delete", "nodes/add", "csinodes/add", "csinodes/update"})

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._classes_of: dict[Key, set[PodClass]] = {}
        self._rows_of: dict[Key, Counter[Row]] = {}
        self._attached: dict[Row, Counter[Key]] = {}
        """Users of each claim by row; claims become attachments when asked, since they may be bound later."""

    def on_object(self, event: ObjectEvent) -> None:
        """Only what an object bears on is looked at anew: a node's limits, or a claim with its users."""
        if event.resource.plural == "csinodes":
            row = self.handle.snapshot.row(event.key.name)
            if row is not None:
                self.handle.snapshot.touch(row)
        elif event.resource.plural == "storageclasses":
            self.handle.invalidate()
        elif event.resource.plural == "persistentvolumeclaims":
            self._claim_changed(event.key)
        else:
            volume = event.before if event.after is None else event.after
            owner = volume.spec.claim_ref if volume is not None else None
            if owner is not None:
                self._claim_changed(Key(owner.namespace, owner.name))

    def _claim_changed(self, claim: Key) -> None:
        self.handle.forget(self._classes_of.pop(claim, ()))
        for row in self._rows_of.get(claim, ()):
            self.handle.snapshot.touch(row)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Count the pod's claims."""
        keys = claim_keys(info.pod) if info.pod.spec.volumes else []
        if keys:
            self._attached.setdefault(row, Counter()).update(keys)
            for key in keys:
                self._rows_of.setdefault(key, Counter())[row] += 1

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Uncount the pod's claims."""
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
            self._classes_of.setdefault(key, set()).add(info.cls)
        return self._attachments(keys) or None

    def reasons(self, spec: frozenset[Attachment]) -> tuple[Reason, ...]:
        """One reason."""
        return (Reason("node(s) exceed max volume count"),)

    def filter(self, attempt: Attempt, spec: frozenset[Attachment], rows: Rows) -> Bits:
        """Rejects rows where a driver would hold more than it can."""
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        return np.array([self._exceeds(int(row), spec) for row in numbers], dtype=np.int64)

    def _exceeds(self, row: Row, spec: frozenset[Attachment]) -> bool:
        limits = self._limits(self.handle.snapshot.names[row])
        if not limits:
            return False
        together = spec | self._attachments(list(self._attached.get(row, ())))
        counted = Counter(item.driver for item in together)
        asked = {item.driver for item in spec}
        return any(driver in limits and counted[driver] > limits[driver] for driver in asked)

    def _limits(self, node: str) -> dict[str, int]:
        known = self.handle.objects(NODE_DRIVERS).get(Key("", node))
        drivers = known.spec.drivers if known is not None else []
        return {
            driver.name: driver.allocatable.count
            for driver in drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }

    def _attachments(self, keys: list[Key]) -> frozenset[Attachment]:
        objects = self.handle.objects
        view = VolumeView(objects(CLAIMS), objects(VOLUMES), objects(CLASSES))
        found: set[Attachment] = set()
        for key in keys:
            claim = view.claims.get(key)
            volume = view.volumes.get(Key("", claim.spec.volume_name)) if claim is not None else None
            if volume is not None:
                if volume.spec.csi is not None:
                    found.add(Attachment(volume.spec.csi.driver, volume.spec.csi.volume_handle))
            elif claim is not None and (chosen := view.class_of(claim)) is not None:
                found.add(Attachment(chosen.provisioner, str(key)))
        return frozenset(found)
