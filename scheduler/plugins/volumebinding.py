"""VolumeBinding: a pod goes where its volumes can: where bound ones are reached, and waiting ones can be found or made.

Claims that wait for their first consumer are settled after a node is chosen and every plugin has let the pod go: a
matching volume is given to the claim, or the claim is annotated with the node so that a provisioner makes one. Both
writes hold only for the object that was looked at. The pod keeps its node until its claims are bound and the node
reaches what they are bound to; a claim that loses its node again (provisioning failed) gives the node up.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakSet

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Node
from api.kube.storage import Claim, PersistentVolume
from cluster.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Key, merge_patch
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.framework import Action, Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Scope, Verb, Wait, Write
from scheduler.matching.storageroom import StorageRoom
from scheduler.matching.volumeindex import ReachRows, VolumeIndex
from scheduler.matching.volumes import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    DRIVERS,
    NO_PROVISIONER,
    SELECTED_NODE,
    VOLUMES,
    VolumeView,
    allowed,
    claim_keys,
    ephemeral_claims,
    reaches,
    smallest_volumes,
    zone_allows,
)

LEARNED_PER_TICK = 2500
"""Node selectors of volumes that a tick looks at."""
OUT_OF_REACH, OTHER_ZONE, NONE_TO_BIND, SELECTED, NO_ROOM = 1, 2, 4, 8, 16


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of VolumeBinding."""

    bind_timeout_seconds: float = 600.0
    """Longest time that a pod holds its node while its claims are bound."""


@dataclass(slots=True, eq=False)
class Needs:
    """A class's claims: those with a volume, and those that wait for a node."""

    missing: str
    """A reason against every node, empty when there is none."""
    bound: tuple[PersistentVolume, ...] = ()
    waiting: tuple[Claim, ...] = ()
    bits: Bits = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Answers for all rows, good for `state`."""
    state: tuple[int, int, int, int] = (-1, -1, -1, -1)


@dataclass(slots=True, eq=False)
class Plan:
    """A pod that holds a node: the volumes that it gives to its claims, and claims that a provisioner serves."""

    node: str
    row: Row
    volumes: dict[Key, PersistentVolume]
    provisioned: tuple[Claim, ...]
    settling: bool = False

    @property
    def claims(self) -> frozenset[Key]:
        """Every claim that the pod waits for."""
        return frozenset(self.volumes) | {key_of(claim) for claim in self.provisioned}


class VolumeBinding(Plugin[Needs]):
    """Filters by reach, and sees claims bound before the pod."""

    name = "VolumeBinding"
    rank = 180
    scope = Scope.CLUSTER
    watches = (CLAIMS, VOLUMES, CLASSES, DRIVERS, CAPACITIES)
    requeue_on = frozenset(
        {
            "nodes/add",
            "nodes/update",
            "persistentvolumeclaims/add",
            "persistentvolumeclaims/update",
            "persistentvolumes/add",
            "persistentvolumes/update",
            "storageclasses/add",
            "csidrivers/add",
            "csidrivers/update",
            "csidrivers/delete",
            "csistoragecapacities/add",
            "csistoragecapacities/update",
        }
    )

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self._index = VolumeIndex()
        self._room = StorageRoom()
        self._promised: dict[str, Key] = {}
        """Volume to the claim that it was promised to in this process."""
        self._chosen: dict[Key, tuple[str, int]] = {}
        """Node that pods at work here chose for a claim, and how many of them."""
        self._plans: dict[str, Plan] = {}
        """Pods that hold a node for their claims, by UID."""
        self._classes_of: dict[Key, WeakSet[PodClass]] = {}
        """Classes whose pods mount a claim."""
        self._nodes_version = 0
        self._promises_version = 0
        self._labels: dict[Row, tuple[str, dict[str, str]]] = {}
        self._reach = ReachRows(handle.snapshot)

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """Reach depends on names and labels alone."""
        known = (node.name, node.metadata.labels)
        before = self._labels.get(row)
        if before == known:
            return
        self._nodes_version += 1
        self._labels[row] = known
        if before is not None and before[0] == node.name:
            self._reach.change(before[1], known[1])
        else:
            if before is not None:
                self._reach.change(before[1], None)
            self._reach.change(None, known[1])

    def node_removed(self, row: Row) -> None:
        """Forget the row."""
        self._nodes_version += 1
        before = self._labels.pop(row, None)
        if before is not None:
            self._reach.change(before[1], None)

    def on_object(self, event: ObjectEvent) -> None:
        """A claim, a volume or a class changed: only classes that mount it are looked at anew."""
        if event.resource.plural in ("storageclasses", "csidrivers"):
            self.handle.invalidate()
        elif event.resource.plural == "csistoragecapacities":
            if event.action is Action.DELETE:
                self._room.drop(event.key)
            else:
                self._room.put(event.key, event.after)
        elif event.resource.plural == "persistentvolumes":
            self._volume_changed(event)
        else:
            self._forget_classes(event.key)
            self._look_at_waiting(event.key)

    def _volume_changed(self, event: ObjectEvent) -> None:
        volume: PersistentVolume = event.before if event.after is None else event.after
        if event.action is Action.DELETE:
            self._promised.pop(event.key.name, None)
            if volume is not None:
                self._index.drop(volume)
        else:
            self._index.put(volume)
        if volume is not None and volume.spec.claim_ref is not None:
            owner = Key(volume.spec.claim_ref.namespace, volume.spec.claim_ref.name)
            self._forget_classes(owner)
            self._look_at_waiting(owner)

    def tick(self, now: float) -> Iterable[Write]:
        """Look at volumes that came before a pod asks for them: all at once take longer than an attempt may."""
        self._index.learn(self._reach, LEARNED_PER_TICK)
        return ()

    # One attempt

    def prepare(self, info: PodInfo) -> Needs | None:
        """Sort the claims by their state; None for pods without any."""
        keys = claim_keys(info.pod)
        if not keys:
            return None
        for key in keys:
            self._classes_of.setdefault(key, WeakSet()).add(info.cls)
        view = self._view()
        bound: list[PersistentVolume] = []
        waiting: list[Claim] = []
        for key in dict.fromkeys(keys):
            claim = view.claims.get(key)
            problem = _problem(key, claim)
            if problem or claim is None:
                return Needs(problem)
            if claim.bound:
                volume = view.volumes.get(Key("", claim.spec.volume_name))
                if volume is None:
                    return Needs(f'persistentvolume "{claim.spec.volume_name}" not found')
                bound.append(volume)
            elif claim.spec.volume_name or not view.waits_for_consumer(claim):
                return Needs("pod has unbound immediate PersistentVolumeClaims")
            else:
                waiting.append(claim)
        return Needs("", tuple(bound), tuple(waiting))

    def pre_filter(self, attempt: Attempt, spec: Needs) -> Reason | None:
        """Claims that no node can help."""
        if spec.missing:
            return Reason(spec.missing, resolvable=False)
        claims = self.handle.objects(CLAIMS)
        for key in ephemeral_claims(attempt.pod.pod):
            owner = claims[key].metadata.controlled_by if key in claims else None
            if owner is None or (owner.uid not in (attempt.pod.uid, "") and not attempt.simulated):
                return Reason(f'persistentvolumeclaim "{key.name}" was not created for the pod', resolvable=False)
        return None

    def reasons(self, spec: Needs) -> tuple[Reason, ...]:
        """Out of reach, in another zone, nothing to be found or made, or another node is chosen already."""
        return (
            Reason("node(s) didn't match PersistentVolume's node affinity", resolvable=False),
            Reason("node(s) had no available volume zone", resolvable=False),
            Reason("node(s) didn't find available persistent volumes to bind", resolvable=False),
            Reason("node(s) other than the one that was chosen for a volume", resolvable=False),
            Reason("node(s) did not have enough free storage", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: Needs, rows: Rows) -> Bits | None:
        """One bit for the first thing that is wrong with a row."""
        if not spec.waiting and all(_everywhere(volume) for volume in spec.bound):
            return None
        if not isinstance(rows, slice) or rows.stop - rows.start != attempt.snapshot.rows_used:
            numbers = np.arange(attempt.snapshot.rows_used)[rows]
            return np.array([self._judge(spec, int(row)) for row in numbers], dtype=np.int64)
        state = (self._nodes_version, self._index.version, self._promises_version, self._room.version)
        if spec.state != state or spec.bits.shape[0] != attempt.snapshot.rows_used:
            spec.bits, spec.state = self._judge_all(spec), state
        return spec.bits

    def permit(self, attempt: Attempt, spec: Needs, row: Row) -> Wait | Reason | None:
        """Choose volumes for the claims that wait; nothing is written before every plugin has let the pod go."""
        if not spec.waiting:
            return None
        found, left = self._volumes_for(row, spec.waiting)
        if self._out_of_reach(spec, row) or any(self._unmade(claim, row) for claim in left):
            return Reason("volumes were taken by another pod meanwhile")
        plan = self._plans[attempt.pod.uid] = Plan(attempt.snapshot.names[row], row, found, tuple(left))
        for key, volume in found.items():
            self._promised[volume.metadata.name] = key
        for key in plan.claims:
            self._chosen[key] = (plan.node, self._chosen.get(key, ("", 0))[1] + 1)
        self._promises_version += 1
        return None

    def settle(self, attempt: Attempt, spec: Needs, row: Row) -> Wait | Reason | None:
        """Write what was chosen, and hold the pod until its claims are bound."""
        plan = self._plans.get(attempt.pod.uid)
        if plan is None:
            return None
        plan.settling = True
        writes = [_given(key, volume, self.handle.objects(CLAIMS)[key]) for key, volume in plan.volumes.items()]
        writes += [_chosen(claim, plan.node) for claim in plan.provisioned]
        config: Config = self.config
        return Wait(config.bind_timeout_seconds, tuple(writes))

    def unreserve(self, attempt: Attempt, spec: Needs, row: Row) -> None:
        """Promises that were not kept yet are taken back."""
        if not attempt.simulated:
            self._end(attempt.pod.uid)

    def post_bind(self, attempt: Attempt, spec: Needs, row: Row) -> Iterable[Write]:
        """The promises are kept."""
        self._end(attempt.pod.uid)
        return ()

    def write_failed(self, write: Write, message: str) -> None:
        """The volume or claim has changed, or may not be written: the pod looks for another node."""
        for uid, plan in list(self._plans.items()):
            volumes = {volume.metadata.name for volume in plan.volumes.values()}
            concerns_volume = write.resource.plural == "persistentvolumes" and write.key.name in volumes
            concerns_claim = write.resource.plural == "persistentvolumeclaims" and write.key in plan.claims
            if plan.settling and (concerns_volume or concerns_claim):
                self.handle.reject(uid, Reason(f"a volume could not be bound: {message}", plugin=self.name))

    # Internals

    def _end(self, uid: str) -> None:
        plan = self._plans.pop(uid, None)
        if plan is None:
            return
        others = {name for other in self._plans.values() for name in map(_name, other.volumes.values())}
        for name in map(_name, plan.volumes.values()):
            if name not in others:
                self._promised.pop(name, None)
        for key in plan.claims:
            node, users = self._chosen[key]
            if users > 1:
                self._chosen[key] = (node, users - 1)
            else:
                del self._chosen[key]
        self._promises_version += 1

    def _forget_classes(self, claim: Key) -> None:
        classes = self._classes_of.pop(claim, None)
        if classes:
            self.handle.forget(classes)

    def _view(self) -> VolumeView:
        objects = self.handle.objects
        return VolumeView(objects(CLAIMS), objects(VOLUMES), objects(CLASSES))

    def _node_of(self, claim: Claim) -> str:
        """The node that was chosen for a claim, by its annotation or by a pod that is at work here."""
        chosen = self._chosen.get(key_of(claim))
        return chosen[0] if chosen is not None else claim.metadata.annotations.get(SELECTED_NODE, "")

    def _judge(self, spec: Needs, row: Row) -> int:
        """The same for one row."""
        fixed = self._out_of_reach(spec, row)
        if fixed:
            return fixed
        _, left = self._volumes_for(row, spec.waiting)
        found = {self._unmade(claim, row) for claim in left}
        return next((reason for reason in (NONE_TO_BIND, NO_ROOM) if reason in found), 0)

    def _out_of_reach(self, spec: Needs, row: Row) -> int:
        """What bound volumes and nodes that were chosen before have against the row; 0 when nothing."""
        labels, name = self.handle.snapshot.labels.of(row), self.handle.snapshot.names[row]
        if not all(reaches(volume, labels, name) for volume in spec.bound):
            return OUT_OF_REACH
        if not all(zone_allows(volume, labels) for volume in spec.bound):
            return OTHER_ZONE
        if any(self._node_of(claim) not in ("", name) for claim in spec.waiting):
            return SELECTED
        return 0

    def _judge_all(self, spec: Needs) -> Bits:
        """Rows that reach every bound volume, and something for each waiting claim; the rest is tried row by row."""
        snapshot = self.handle.snapshot
        possible = self._reach.all() & snapshot.live[snapshot.all_rows]
        bits = np.zeros(snapshot.rows_used, dtype=np.int64)
        for volume in spec.bound:
            _bar(bits, possible, self._reached(volume), OUT_OF_REACH)
        for row in np.flatnonzero(possible) if any(volume.metadata.labels for volume in spec.bound) else ():
            labels = snapshot.labels.of(int(row))
            if not all(zone_allows(volume, labels) for volume in spec.bound):
                bits[row], possible[row] = OTHER_ZONE, False
        for claim in spec.waiting:
            chosen = self._node_of(claim)
            if chosen:
                only = self._reach.none()
                at = snapshot.row(chosen)
                if at is not None:
                    only[at] = True
                _bar(bits, possible, only, SELECTED)
        for claim in spec.waiting:
            served, roomy = self._servable(claim)
            _bar(bits, possible, served, NONE_TO_BIND)
            _bar(bits, possible, roomy, NO_ROOM)
        if len(spec.waiting) > 1:
            for row in np.flatnonzero(possible):
                bits[row] = self._judge(spec, int(row))
        return bits

    def _reached(self, volume: PersistentVolume) -> NDArray[np.bool_]:
        required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
        found: list[Row] = []
        if self._reach.add(msgspec.msgpack.encode(required), required, found):
            return self._reach.all()
        mask = self._reach.none()
        mask[found] = True
        return mask

    def _servable(self, claim: Claim) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows with a volume for the claim or where its class makes one; and those of them with room for it."""
        chosen, limited = self._view().class_of(claim), self._limited(claim)
        made = chosen is not None and chosen.provisioner != NO_PROVISIONER
        if made and chosen is not None and not chosen.allowed_topologies and not limited:
            return self._reach.all(), self._reach.all()
        found = self._reach.none()
        if not self._settled_by_provisioner(claim):
            found = self._index.reaching(claim, self._promised, self._reach)
        if not made or chosen is None:
            return found, found
        served = found.copy()
        if chosen.allowed_topologies:
            snapshot = self.handle.snapshot
            for row in np.flatnonzero(~found & snapshot.live[snapshot.all_rows]):
                served[row] = allowed(chosen, snapshot.labels.of(int(row)))
        else:
            served[:] = True
        return served, (found | (served & self._room.rows(claim, self._reach))) if limited else served

    def _limited(self, claim: Claim) -> bool:
        """Return whether the driver that makes the claim's volume says where it has room."""
        chosen = self._view().class_of(claim)
        driver = self.handle.objects(DRIVERS).get(Key("", chosen.provisioner)) if chosen is not None else None
        return driver is not None and bool(driver.spec.storage_capacity) and "storage" in claim.spec.resources.requests

    def _settled_by_provisioner(self, claim: Claim) -> bool:
        """A claim with a node on it is a provisioner's already; no volume is looked for."""
        return SELECTED_NODE in claim.metadata.annotations

    def _volumes_for(self, row: Row, waiting: tuple[Claim, ...]) -> tuple[dict[Key, PersistentVolume], list[Claim]]:
        mine = {key_of(claim) for claim in waiting}
        labels, name = self.handle.snapshot.labels.of(row), self.handle.snapshot.names[row]
        made = [claim for claim in waiting if self._settled_by_provisioner(claim)]
        sought = [claim for claim in waiting if not self._settled_by_provisioner(claim)]
        free: dict[str, PersistentVolume] = {}
        for claim in sought:
            for volume in self._index.candidates(claim, self._promised, mine, self._reach, row, len(sought)):
                free[volume.metadata.name] = volume
        found, left = smallest_volumes(sought, free.values(), labels, name)
        return found, left + made

    def _unmade(self, claim: Claim, row: Row) -> int:
        """Why no volume can be made for the claim on the row; 0 when one can."""
        chosen = self._view().class_of(claim)
        if chosen is None or chosen.provisioner == NO_PROVISIONER:
            return NONE_TO_BIND
        if not allowed(chosen, self.handle.snapshot.labels.of(row)):
            return NONE_TO_BIND
        return NO_ROOM if self._limited(claim) and not self._room.rows(claim, self._reach)[row] else 0

    def _look_at_waiting(self, changed: Key) -> None:
        claims = self.handle.objects(CLAIMS)
        for uid, plan in list(self._plans.items()):
            if not plan.settling or changed not in plan.claims:
                continue
            claim = claims.get(changed)
            if claim is None or claim.metadata.annotations.get(SELECTED_NODE, plan.node) != plan.node:
                self.handle.reject(uid, Reason("a volume could not be provisioned for the node", plugin=self.name))
            elif all((found := claims.get(key)) is not None and found.bound for key in plan.claims):
                self._let_go(uid, plan)

    def _let_go(self, uid: str, plan: Plan) -> None:
        """All claims are bound: the node must reach what they are bound to."""
        view = self._view()
        volumes = [view.volumes.get(Key("", view.claims[key].spec.volume_name)) for key in plan.claims]
        if any(volume is None for volume in volumes):
            return
        labels = self.handle.snapshot.labels.of(plan.row)
        if all(volume is not None and reaches(volume, labels, plan.node) for volume in volumes):
            self.handle.allow(uid, self.name)
        else:
            self.handle.reject(uid, Reason("a claim is bound to a volume that the node cannot reach", plugin=self.name))


def _name(volume: PersistentVolume) -> str:
    return volume.metadata.name


def key_of(claim: Claim) -> Key:
    """The key of a claim."""
    return Key(claim.metadata.namespace, claim.metadata.name)


def _problem(key: Key, claim: Claim | None) -> str:
    if claim is None:
        return f'persistentvolumeclaim "{key.name}" not found'
    if claim.metadata.deletion_timestamp:
        return f'persistentvolumeclaim "{key.name}" is being deleted'
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{key.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    return ""


def _everywhere(volume: PersistentVolume) -> bool:
    return volume.spec.node_affinity is None and not volume.metadata.labels


def _bar(bits: Bits, possible: NDArray[np.bool_], good: NDArray[np.bool_], reason: int) -> None:
    """Note the reason on rows that were possible and are not good."""
    bits[possible & ~good] = reason
    possible &= good


def _given(key: Key, volume: PersistentVolume, claim: Claim) -> Write:
    """Write the claim into the volume as it was looked at; the volume controller completes the binding."""
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": key.namespace,
        "name": key.name,
        "uid": claim.metadata.uid,
    }
    body = {"metadata": _as_seen(volume.metadata.resource_version), "spec": {"claimRef": reference}}
    return Write(Verb.PATCH, PERSISTENT_VOLUMES, Key("", volume.metadata.name), merge_patch(body), repeat=False)


def _chosen(claim: Claim, node: str) -> Write:
    """Write the node onto the claim as it was looked at; a provisioner makes the volume."""
    meta = {**_as_seen(claim.metadata.resource_version), "annotations": {SELECTED_NODE: node}}
    return Write(Verb.PATCH, PERSISTENT_VOLUME_CLAIMS, key_of(claim), merge_patch({"metadata": meta}), repeat=False)


def _as_seen(resource_version: str) -> dict[str, str]:
    return {"resourceVersion": resource_version} if resource_version else {}
