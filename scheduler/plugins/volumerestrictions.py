"""VolumeRestrictions: volumes that only one pod or one node may mount at a time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np

from api.kube.objects import Pod
from cluster.resources import Key
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.framework import Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Scope
from scheduler.matching.volumes import CLAIMS, READ_WRITE_ONCE_POD, claim_keys

MOUNTED, USED = 1, 2


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that a volume names directly; readers share it unless `shareable` is False."""

    identity: str
    read_only: bool
    shareable: bool

    def conflicts(self, other: "Disk") -> bool:
        """Return whether both cannot be mounted on one node."""
        if self.identity != other.identity:
            return False
        return not (self.shareable and other.shareable and self.read_only and other.read_only)


@dataclass(frozen=True, slots=True, eq=False)
class Mounts:
    """A class's disks, and its claims that one pod alone may use."""

    disks: tuple[Disk, ...]
    exclusive: tuple[Key, ...]


def disks_of(pod: Pod) -> Iterable[Disk]:
    """The directly named disks of a pod, by the stock scheduler's rules for each type."""
    for volume in pod.spec.volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            yield Disk(f"gce/{gce.get('pdName')}", bool(gce.get("readOnly")), shareable=True)
        if (aws := volume.aws_elastic_block_store) is not None:
            yield Disk(f"aws/{aws.get('volumeID')}", read_only=False, shareable=False)
        if (iscsi := volume.iscsi) is not None:
            yield Disk(f"iscsi/{iscsi.get('iqn')}", bool(iscsi.get("readOnly")), shareable=True)
        if (rbd := volume.rbd) is not None:
            monitors = ",".join(sorted(rbd.get("monitors", [])))
            image = f"rbd/{monitors}/{rbd.get('pool', 'rbd')}/{rbd.get('image')}"
            yield Disk(image, bool(rbd.get("readOnly")), shareable=True)


class VolumeRestrictions(Plugin[Mounts]):
    """Keeps which disks are mounted where, and which claims are in use."""

    name = "VolumeRestrictions"
    rank = 160
    scope = Scope.CLUSTER
    watches = (CLAIMS,)
    requeue_on = frozenset({"pods/delete", "nodes/add", "persistentvolumeclaims/update"})

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._disks: dict[str, dict[Row, list[Disk]]] = {}
        self._users: Counter[Key] = Counter()
        self._classes_of: dict[Key, WeakSet[PodClass]] = {}

    def on_object(self, event: ObjectEvent) -> None:
        """Specs depend on the claims' access modes."""
        self.handle.forget(self._classes_of.pop(event.key, ()))

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Note the pod's disks and claims."""
        if not info.pod.spec.volumes:
            return
        self._users.update(claim_keys(info.pod))
        for disk in disks_of(info.pod):
            self._disks.setdefault(disk.identity, {}).setdefault(row, []).append(disk)

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Take them off again."""
        if not info.pod.spec.volumes:
            return
        self._users.subtract(claim_keys(info.pod))
        for disk in disks_of(info.pod):
            self._disks[disk.identity][row].remove(disk)

    def prepare(self, info: PodInfo) -> Mounts | None:
        """None for pods with neither."""
        claims = self.handle.objects(CLAIMS)
        for key in claim_keys(info.pod):
            self._classes_of.setdefault(key, WeakSet()).add(info.cls)
        exclusive = tuple(
            key
            for key in claim_keys(info.pod)
            if key in claims and READ_WRITE_ONCE_POD in claims[key].spec.access_modes
        )
        disks = tuple(disks_of(info.pod))
        return Mounts(disks, exclusive) if disks or exclusive else None

    def reasons(self, spec: Mounts) -> tuple[Reason, ...]:
        """A disk that is mounted there, or a claim for one pod alone that another uses, wherever that is."""
        return (
            Reason("node(s) had no available disk"),
            Reason("node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"),
        )

    def filter(self, attempt: Attempt, spec: Mounts, rows: Rows) -> Bits | None:
        """Rejects rows where a disk conflicts, and all while another pod uses the claim."""
        used = any(self._users[key] > 0 for key in spec.exclusive)
        if not spec.disks and not used:
            return None
        taken = np.full(attempt.snapshot.rows_used, USED * used, dtype=np.int64)
        for disk in spec.disks:
            for row, mounted in self._disks.get(disk.identity, {}).items():
                if any(disk.conflicts(other) for other in mounted):
                    taken[row] |= MOUNTED
        return taken[rows]
