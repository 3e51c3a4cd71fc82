"""VolumeBinding: a pod goes where its volumes can: where bound ones are reached, and waiting ones can be found or made.

Claims that wait for their first consumer are settled after a node is chosen: a matching volume is promised, or
the claim is annotated with the node so that a provisioner makes one. The pod holds its node at Permit until its claims
are bound; a claim that loses its node again (provisioning failed) gives the node up.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np

from api.kube.storage import Claim, PersistentVolume
from cluster.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Key, merge_patch
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Action, Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Verb, Wait, Write
from scheduler.matching.volumes import (
    CLAIMS,
    CLASSES,
    NO_PROVISIONER,
    SELECTED_NODE,
    VOLUMES,
    VolumeView,
    allowed,
    claim_keys,
    reaches,
    smallest_volumes,
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of VolumeBinding."""

    bind_timeout_seconds: float = 600.0
    """Longest time that a pod holds its node while its claims are bound."""


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """A class's claims: those with a volume, and those that wait for a node."""

    missing: str
    """A reason against every node, empty when there is none."""
    bound: tuple[PersistentVolume, ...]
    waiting: tuple[Claim, ...]


class VolumeBinding(Plugin[Needs]):
    """Filters by reach, and sees claims bound before the pod."""

    name = "VolumeBinding"
    rank = 180
    watches = (CLAIMS, VOLUMES, CLASSES)
    requeue_on = frozenset(
        {
            "nodes/add",
            "nodes/update",
            "persistentvolumeclaims/add",
            "persistentvolumeclaims/update",
            "persistentvolumes/add",
            "persistentvolumes/update",
            "storageclasses/add",
        }
    )

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self._writes: deque[Write] = deque()
        self._promised: dict[Key, Key] = {}
        """Volume to the claim that it was promised to in this process."""
        self._settling: dict[str, tuple[str, frozenset[Key]]] = {}
        """Pods at Permit: the node they hold and the claims they wait for."""

    def on_object(self, event: ObjectEvent) -> None:
        """Specs depend on all three kinds; a bound claim may let a pod go on."""
        if event.resource.plural == "persistentvolumes" and event.action is Action.DELETE:
            self._promised.pop(event.key, None)
        self.handle.invalidate()
        if event.resource.plural == "persistentvolumeclaims":
            self._look_at_waiting(event.key)

    def prepare(self, info: PodInfo) -> Needs | None:
        """Sort the claims by their state; None for pods without any."""
        keys = claim_keys(info.pod)
        if not keys:
            return None
        view = self._view()
        bound: list[PersistentVolume] = []
        waiting: list[Claim] = []
        for key in keys:
            claim = view.claims.get(key)
            if claim is None:
                return Needs(f'persistentvolumeclaim "{key.name}" not found', (), ())
            if claim.bound:
                volume = view.volumes.get(Key("", claim.spec.volume_name))
                if volume is None:
                    return Needs(f'persistentvolume "{claim.spec.volume_name}" not found', (), ())
                bound.append(volume)
            elif view.waits_for_consumer(claim):
                waiting.append(claim)
            else:
                return Needs("pod has unbound immediate PersistentVolumeClaims", (), ())
        return Needs("", tuple(bound), tuple(waiting))

    def pre_filter(self, attempt: Attempt, spec: Needs) -> Reason | None:
        """Claims that no node can help."""
        return Reason(spec.missing, resolvable=False) if spec.missing else None

    def reasons(self, spec: Needs) -> tuple[Reason, ...]:
        """Out of reach, or nothing to be found or made."""
        return (
            Reason("node(s) didn't match PersistentVolume's node affinity", resolvable=False),
            Reason("node(s) didn't find available persistent volumes to bind", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: Needs, rows: Rows) -> Bits | None:
        """Bit 0 for reach, bit 1 for claims that wait."""
        pinned = [volume for volume in spec.bound if volume.spec.node_affinity is not None]
        if not pinned and not spec.waiting:
            return None
        snapshot = attempt.snapshot
        numbers = np.arange(snapshot.rows_used)[rows]
        return np.array([self._judge(int(row), pinned, spec.waiting) for row in numbers], dtype=np.int64)

    def permit(self, attempt: Attempt, spec: Needs, row: Row) -> Wait | Reason | None:
        """Settle the claims that wait, and hold the pod until they are bound."""
        if not spec.waiting:
            return None
        name = attempt.snapshot.names[row]
        found, left = self._volumes_for(row, spec.waiting)
        if any(not self._can_make(claim, row) for claim in left):
            return Reason("volumes were taken by another pod meanwhile")
        for key, volume in found.items():
            self._promise(key, volume)
        for claim in left:
            key = Key(claim.metadata.namespace, claim.metadata.name)
            patch = merge_patch({"metadata": {"annotations": {SELECTED_NODE: name}}})
            self._writes.append(Write(Verb.PATCH, PERSISTENT_VOLUME_CLAIMS, key, patch))
        wanted = frozenset(Key(claim.metadata.namespace, claim.metadata.name) for claim in spec.waiting)
        self._settling[attempt.pod.uid] = (name, wanted)
        config: Config = self.config
        return Wait(config.bind_timeout_seconds)

    def unreserve(self, attempt: Attempt, spec: Needs, row: Row) -> None:
        """Promises that were not kept yet are taken back."""
        if attempt.simulated:
            return
        _, wanted = self._settling.pop(attempt.pod.uid, ("", frozenset()))
        for volume, claim in list(self._promised.items()):
            if claim in wanted:
                del self._promised[volume]

    def tick(self, now: float) -> Iterable[Write]:
        """Hand out the writes that settle claims."""
        writes = tuple(self._writes)
        self._writes.clear()
        return writes

    def _view(self) -> VolumeView:
        objects = self.handle.objects
        return VolumeView(objects(CLAIMS), objects(VOLUMES), objects(CLASSES))

    def _judge(self, row: Row, pinned: list[PersistentVolume], waiting: tuple[Claim, ...]) -> int:
        labels, name = self.handle.snapshot.labels.of(row), self.handle.snapshot.names[row]
        if not all(reaches(volume, labels, name) for volume in pinned):
            return 1
        _, left = self._volumes_for(row, waiting)
        return 2 if any(not self._can_make(claim, row) for claim in left) else 0

    def _volumes_for(self, row: Row, waiting: tuple[Claim, ...]) -> tuple[dict[Key, PersistentVolume], list[Claim]]:
        mine = {Key(claim.metadata.namespace, claim.metadata.name) for claim in waiting}
        free = [
            volume
            for key, volume in self.handle.objects(VOLUMES).items()
            if self._promised.get(key) is None or self._promised[key] in mine
        ]
        labels, name = self.handle.snapshot.labels.of(row), self.handle.snapshot.names[row]
        return smallest_volumes(waiting, free, labels, name)

    def _can_make(self, claim: Claim, row: Row) -> bool:
        chosen = self._view().class_of(claim)
        if chosen is None or chosen.provisioner == NO_PROVISIONER:
            return False
        return allowed(chosen, self.handle.snapshot.labels.of(row))

    def _promise(self, claim: Key, volume: PersistentVolume) -> None:
        """Write the claim into the volume; the volume controller completes the binding."""
        key = Key("", volume.metadata.name)
        self._promised[key] = claim
        known = self.handle.objects(CLAIMS)[claim]
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": known.metadata.uid,
        }
        self._writes.append(Write(Verb.PATCH, PERSISTENT_VOLUMES, key, merge_patch({"spec": {"claimRef": reference}})))

    def _look_at_waiting(self, changed: Key) -> None:
        claims = self.handle.objects(CLAIMS)
        for uid, (node, wanted) in list(self._settling.items()):
            if changed not in wanted:
                continue
            claim = claims.get(changed)
            if claim is None or claim.metadata.annotations.get(SELECTED_NODE, node) != node:
                self.handle.reject(uid, Reason("a volume could not be provisioned for the node", plugin=self.name))
            elif all((found := claims.get(key)) is not None and found.bound for key in wanted):
                del self._settling[uid]
                self.handle.allow(uid, self.name)
