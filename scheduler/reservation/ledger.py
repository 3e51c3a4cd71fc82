"""Ledger of reservations: phase, placement and consumers of each, and its status writes.

The stand-in's charge on its row is lowered by what its consumers are charged for themselves, in whatever order
they come, go and are removed in trials. Of a pod that acts as a reservation nothing is given back: it runs beside its
consumer, and the kubelet counts both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from api.crds import RESERVATION
from api.crds import Reservation as ReservationObject
from api.kube.meta import Condition, LabelSelector
from api.kube.objects import Node
from api.kube.resources import CPU, MEMORY, QuantityError, Resources, format_resources, total
from api.kube.times import epoch_seconds, rfc3339
from api.protocol import ANNOTATION_RESERVATION_ALLOCATED
from cluster.resources import Key, custom, merge_patch
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import IDENTITY_LABELS, PodClasses, PodInfo
from scheduler.devices.payload import drawn_from
from scheduler.framework import Handle, Verb, Write
from scheduler.reservation.capacity import asks_amounts_alone
from scheduler.reservation.lifecycle import ReservationChange, collectable, followed, problem
from scheduler.reservation.matching import owner_matches
from scheduler.reservation.operating_pod import operates, serves, value_of_pod
from scheduler.reservation.pre_allocation import PRE_ALLOCATED_PODS
from scheduler.reservation.standin import stand_in, value_of
from scheduler.reservation.value import Reservation, ReservationPhase

RESERVATIONS = custom(RESERVATION)
REWRITE_SECONDS = 10.0
"""A status write that the watch does not show is repeated after this long."""


@dataclass(slots=True, eq=False)
class ReservationUse:
    """A reservation, its stand-in (or the pod that acts as a reservation) and its consumers."""

    value: Reservation
    info: PodInfo
    conditions: tuple[Condition, ...] = ()
    row: Row | None = None
    """Where the stand-in is placed."""
    consumers: dict[str, tuple[str, Resources]] = field(default_factory=dict)
    """Key and requests of the pods that use it, by UID, assumed ones included."""
    returned: Resources = field(default_factory=dict)
    """Part of the stand-in's charge that is given back on its row."""
    written: tuple[float, Any] = (0.0, None)
    """When which status was last written."""
    operating: bool = False
    """`info` is a pod that acts as a reservation: no object has its status."""

    def usable(self, now: float) -> bool:
        """Return whether pods may use it at `now`; a one-time reservation serves one, if only assumed."""
        if self.operating and not serves(self.info.pod):
            return False
        return self.row is not None and self.value.usable(now) and not (self.value.allocate_once and self.consumers)

    @property
    def current(self) -> Reservation:
        """The value with its usage as of now."""
        return self.counted(self.value)

    def counted(self, value: Reservation) -> Reservation:
        """Return the value with the usage of this reservation's consumers."""
        used = total(requests for _, requests in self.consumers.values())
        allocated = {name: used.get(name, 0) for name in value.allocatable}
        return replace(value, allocated=allocated, consumers=frozenset(key for key, _ in self.consumers.values()))


class ReservationLedger:
    """Reservations by UID. `gc_seconds` None keeps ended ones."""

    def __init__(self, handle: Handle, scheduler_names: Iterable[str], gc_seconds: float | None) -> None:
        self.reservations: dict[str, ReservationUse] = {}
        self.generation = 0
        """Grows with every change that may alter the pods that a reservation serves."""
        self.by_identity: set[str] = set()
        """Reservations with owners that select single pods of a workload, by UID."""
        self.operating = 0
        """Number of pods that act as reservations; whether one of them serves changes with its status alone."""
        self.in_use = False
        """There was a reservation once."""
        self.now = 0.0
        self._handle = handle
        self._scheduler_names = frozenset(scheduler_names)
        self._gc_seconds = gc_seconds
        self._classes = PodClasses()
        self._keys: dict[str, str] = {}
        """UID by name of the reservation."""
        self._draws: dict[str, str] = {}
        """UID of the reservation that a placed pod uses, by the pod's UID."""
        self._taken: dict[str, str] = {}
        """UID of the reservation that took a placed pod before it was available, by the pod's UID."""
        self._strays: dict[str, dict[str, PodInfo]] = {}
        """Consumers of reservations that no watch has shown yet."""
        self._unplaced: set[str] = set()
        """Available reservations whose stand-in has yet to be put on its node."""
        self._problems: dict[str, str] = {}
        self._refusals: list[Write] = []

    # What happens

    def node_changed(self, node: Node) -> None:
        """Reservations may have waited for the node to show, and look at its labels."""
        self.generation += 1
        self._unplaced |= {
            uid
            for uid, reservation in self.reservations.items()
            if reservation.row is None
            and reservation.value.phase is ReservationPhase.AVAILABLE
            and reservation.value.node == node.name
        }

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A stand-in takes its room, or a consumer uses some."""
        reservation = self.reservations.get(info.uid)
        if reservation is not None:
            reservation.row = row
            self._take_over(reservation, info)
            self._balance(reservation)
            return
        if operates(info.pod) and info.pod.spec.node_name and asks_amounts_alone(info.requests, info.labels):
            self._operate(info, row)
        uid = drawn_from(info.annotation(ANNOTATION_RESERVATION_ALLOCATED)) or self._taken.get(info.uid)
        if not uid:
            return
        reservation = self.reservations.get(uid)
        if reservation is None:
            self._draws[info.uid] = uid
            self._strays.setdefault(uid, {})[info.uid] = info
        elif self._entitled(reservation, info, self._handle.snapshot.names[row]):
            self._draws[info.uid] = uid
            reservation.consumers[info.uid] = (info.key, info.requests)
            self._balance(reservation)

    def pod_removed(self, info: PodInfo) -> None:
        """A stand-in left its room, or a consumer gave back what it used."""
        reservation = self.reservations.get(info.uid)
        if reservation is not None and not reservation.operating:
            self._balance(reservation, charged=False)
            reservation.row = None
            self._let_go(reservation, info)
            return
        if reservation is not None:
            self.operating -= 1
            self._forget(reservation)
        uid = self._draws.pop(info.uid, None)
        if uid is None:
            return
        reservation = self.reservations.get(uid)
        if reservation is None:
            self._strays.get(uid, {}).pop(info.uid, None)
        else:
            reservation.consumers.pop(info.uid, None)
            self._balance(reservation)

    def _entitled(self, reservation: ReservationUse, info: PodInfo, node: str) -> bool:
        """Return whether a pod that says so can have drawn from the reservation: same node, among its owners."""
        value, row = reservation.value, reservation.row
        held_on = self._handle.snapshot.names[row] if row is not None else value.node
        if node != held_on or value.namespace not in ("", info.namespace):
            return False
        taken = self._taken.get(info.uid) == value.uid
        return taken or any(owner_matches(owner, info.pod) for owner in value.owners)

    def _adopted(self, reservation: ReservationUse) -> dict[str, tuple[str, Resources]]:
        """Pods that were seen before the reservation they draw from."""
        snapshot, found = self._handle.snapshot, {}
        for uid, info in self._strays.pop(reservation.value.uid, {}).items():
            placement = snapshot.pods.get(uid)
            if placement is not None and self._entitled(reservation, info, snapshot.names[placement.row]):
                found[uid] = (info.key, info.requests)
        return found

    def draws(self, uid: str) -> bool:
        """Return whether a placed pod uses a reservation, or says so, or is one."""
        return uid in self._draws or uid in self.reservations

    def pod_ended(self, uid: str) -> None:
        """A pod is gone for good."""
        self._taken.pop(uid, None)

    def take(self, item: ReservationObject) -> None:
        """A reservation appeared or changed."""
        self.generation += 1
        self.in_use = True
        uid, name = item.metadata.uid, item.metadata.name
        try:
            value, pod = value_of(item), stand_in(item)
        except (QuantityError, msgspec.ValidationError) as error:
            self._refuse(item, f"spec cannot be read: {error}")
            return
        if pod.spec.scheduler_name not in self._scheduler_names and _names_scheduler(item):
            return
        self._keys[name] = uid
        wrong = problem(value, has_template=bool(item.spec.template))
        if wrong:
            self._refuse(item, wrong)
            return
        self._problems.pop(uid, None)
        self._note_identity(value)
        reservation = self.reservations.get(uid)
        if reservation is None:
            info = self._classes.info(pod)
            info.stand_in = True
            reservation = self.reservations[uid] = ReservationUse(value, info, tuple(item.status.conditions))
            reservation.consumers = self._adopted(reservation)
        elif reservation.value.phase.terminal and not value.phase.terminal:
            return
        elif reservation.value.phase is ReservationPhase.AVAILABLE and value.phase is ReservationPhase.PENDING:
            reservation.value = replace(
                value,
                phase=ReservationPhase.AVAILABLE,
                node=reservation.value.node,
                allocatable=reservation.value.allocatable,
            )
        else:
            reservation.value = value
        if value.phase is ReservationPhase.AVAILABLE and reservation.row is None:
            reservation.info.pod = pod
            reservation.info.believe()
        if value.phase is ReservationPhase.AVAILABLE and value.pre_allocation is not None:
            self._read_taken(item, reservation)
        self._settle(reservation)

    def _settle(self, reservation: ReservationUse) -> None:
        """Queue, place or withdraw the stand-in as the phase asks."""
        value = reservation.value
        if value.phase.terminal:
            self._handle.withdraw(value.uid)
        elif value.phase is ReservationPhase.AVAILABLE:
            if reservation.row is None:
                self._unplaced.add(value.uid)
        else:
            self._handle.enqueue(reservation.info)

    def drop(self, name: str) -> None:
        """A reservation was deleted."""
        self.generation += 1
        uid = self._keys.pop(name, "")
        reservation = self.reservations.get(uid)
        if reservation is None:
            return
        self._handle.withdraw(uid)
        if reservation.row is not None:
            self._handle.snapshot.remove_pod(uid)
        self._taken = {pod: taker for pod, taker in self._taken.items() if taker != uid}
        self._unplaced.discard(uid)
        self._forget(reservation)

    def _forget(self, reservation: ReservationUse) -> None:
        """A reservation is gone; its consumers are known should it come back."""
        uid = reservation.value.uid
        del self.reservations[uid]
        self.by_identity.discard(uid)
        self.generation += 1
        placed = self._handle.snapshot.pods
        consumers = {key: placed[key].info for key in reservation.consumers if key in placed}
        if consumers:
            self._strays[uid] = consumers

    def _refuse(self, item: ReservationObject, why: str) -> None:
        if self._problems.get(item.metadata.uid) == why:
            return
        self._problems[item.metadata.uid] = why
        condition = Condition(type="Scheduled", status="False", reason="Unschedulable", message=why)
        status = {"conditions": _wire(merged(tuple(item.status.conditions), (condition,), self.now))}
        key = Key("", item.metadata.name)
        self._refusals.append(Write(Verb.PATCH_STATUS, RESERVATIONS, key, merge_patch({"status": status})))

    def writes(self) -> Iterable[Write]:
        """Follow every reservation, write what changed, delete what ended long ago."""
        yield from self._refusals
        self._refusals.clear()
        for reservation in [each for each in self.reservations.values() if not each.operating]:
            self._follow(reservation)
            yield from self._status_write(reservation)
            yield from self._collect(reservation)

    def restate(self) -> None:
        """Write every status that the object does not show, whenever it was last written."""
        self._problems.clear()
        for reservation in self.reservations.values():
            reservation.written = (0.0, None)

    def place_known(self) -> None:
        """Put stand-ins of available reservations on their nodes as far as these are known."""
        for uid in list(self._unplaced):
            reservation = self.reservations.get(uid)
            if (
                reservation is None
                or reservation.row is not None
                or reservation.value.phase is not ReservationPhase.AVAILABLE
            ):
                self._unplaced.discard(uid)
                continue
            row = self._handle.snapshot.row(reservation.value.node)
            if row is not None:
                self._unplaced.discard(uid)
                self._handle.snapshot.add_pod(reservation.info, row)

    # Internals

    def _note_identity(self, value: Reservation) -> None:
        by_identity = any(owner.object is not None or _by_identity(owner.selector) for owner in value.owners)
        (self.by_identity.add if by_identity else self.by_identity.discard)(value.uid)

    def _operate(self, info: PodInfo, row: Row) -> None:
        """A bound pod acts as a reservation from here on, where its status lets it."""
        value = value_of_pod(info.pod, self._handle.snapshot.names[row], info.requests)
        reservation = self.reservations[info.uid] = ReservationUse(value, info, row=row, operating=True)
        reservation.consumers = self._adopted(reservation)
        self._note_identity(value)
        self.operating += 1
        self.generation += 1
        self.in_use = True

    def _take_over(self, reservation: ReservationUse, info: PodInfo) -> None:
        """Take the pods that were chosen with the stand-in's place, as consumers."""
        snapshot, uid = self._handle.snapshot, reservation.value.uid
        for pod in filter(None, info.patch.get(PRE_ALLOCATED_PODS, "").split(",")):
            placement = snapshot.pods.get(pod)
            if placement is not None and placement.row == reservation.row and pod not in self._draws:
                self._taken[pod] = self._draws[pod] = uid
                reservation.consumers[pod] = (placement.info.key, placement.info.requests)

    def _let_go(self, reservation: ReservationUse, info: PodInfo) -> None:
        """The stand-in gave its place up before it was bound: what it took is as before."""
        if reservation.value.phase is not ReservationPhase.PENDING:
            return
        for pod in filter(None, info.patch.get(PRE_ALLOCATED_PODS, "").split(",")):
            if self._taken.get(pod) == reservation.value.uid:
                del self._taken[pod]
                self._draws.pop(pod, None)
                reservation.consumers.pop(pod, None)

    def _read_taken(self, item: ReservationObject, reservation: ReservationUse) -> None:
        """Learn from the status which pods were taken, after a restart or where another process leads.

        Their annotations do not say: the scheduler has no right to change pods.
        """
        snapshot, uid = self._handle.snapshot, item.metadata.uid
        for pod in (owner.uid for owner in item.status.current_owners):
            self._taken.setdefault(pod, uid)
            placement = snapshot.pods.get(pod)
            if placement is None or pod in self._draws or self._taken[pod] != uid:
                continue
            self._draws[pod] = uid
            if self._entitled(reservation, placement.info, snapshot.names[placement.row]):
                reservation.consumers[pod] = (placement.info.key, placement.info.requests)
        self._balance(reservation)

    def _balance(self, reservation: ReservationUse, *, charged: bool = True) -> None:
        """Give back on the stand-in's row what its consumers are charged for themselves."""
        self.generation += 1
        if reservation.row is None:
            return
        snapshot = self._handle.snapshot
        charged = charged and not reservation.operating
        used = total(requests for _, requests in reservation.consumers.values()) if charged else {}
        wanted = {
            name: min(amount, used.get(name, 0))
            for name, amount in reservation.info.requests.items()
            if used.get(name, 0)
        }
        for name in wanted.keys() | reservation.returned.keys():
            change = wanted.get(name, 0) - reservation.returned.get(name, 0)
            snapshot.requested[reservation.row, snapshot.resource_column(name)] -= change
            if name in (CPU, MEMORY):
                snapshot.nonzero[reservation.row, 0 if name == CPU else 1] -= change
        reservation.returned = wanted
        snapshot.touch(reservation.row)

    def _follow(self, reservation: ReservationUse) -> None:
        if reservation.value.phase.terminal:
            return
        snapshot = self._handle.snapshot
        confirmed = {
            key: requests
            for uid, (key, requests) in reservation.consumers.items()
            if (placement := snapshot.pods.get(uid)) is not None and not placement.assumed
        }
        exists = snapshot.row(reservation.value.node) is not None
        self.change(reservation, followed(reservation.value, now=self.now, node_exists=exists, consumers=confirmed))

    def change(self, reservation: ReservationUse, change: ReservationChange) -> None:
        """Take over a transition; an ended reservation lets go of its room."""
        ended = change.reservation.phase.terminal and not reservation.value.phase.terminal
        if change.reservation != reservation.value:
            reservation.value = change.reservation
            self.generation += 1
        reservation.conditions = merged(reservation.conditions, change.conditions, self.now)
        if ended:
            self._handle.withdraw(reservation.value.uid)

    def status(self, reservation: ReservationUse, change: ReservationChange) -> dict[str, Any]:
        """The status on the wire after a transition."""
        value = change.reservation
        names = {key: uid for uid, (key, _) in reservation.consumers.items()}
        return {
            "phase": value.phase.value,
            "nodeName": value.node,
            "allocatable": format_resources({name: n for name, n in value.allocatable.items() if name != "pods"}),
            "allocated": format_resources({name: n for name, n in value.allocated.items() if name != "pods"}),
            "currentOwners": [
                {"namespace": key.partition("/")[0], "name": key.partition("/")[2], "uid": names.get(key, "")}
                for key in sorted(value.consumers)
            ],
            "conditions": _wire(merged(reservation.conditions, change.conditions, self.now)),
        }

    def _status_write(self, reservation: ReservationUse) -> Iterable[Write]:
        """The status, where it is not what the object shows and was not written just before."""
        key = Key("", reservation.value.name)
        shown = self._handle.objects(RESERVATIONS).get(key)
        if shown is None or (reservation.value.phase is ReservationPhase.PENDING and not reservation.conditions):
            return
        status = self.status(reservation, ReservationChange(reservation.value))
        if _same(status, shown.status):
            return
        at, body = reservation.written
        if body != status or self.now - at >= REWRITE_SECONDS:
            reservation.written = (self.now, status)
            yield Write(Verb.PATCH_STATUS, RESERVATIONS, key, merge_patch({"status": status}))

    def _collect(self, reservation: ReservationUse) -> Iterable[Write]:
        if self._gc_seconds is None or not reservation.value.phase.terminal:
            return
        times = [epoch_seconds(condition.last_transition_time) for condition in reservation.conditions]
        ended = max((at for at in times if at is not None), default=reservation.value.created_seconds)
        if collectable(reservation.value, ended, self.now, self._gc_seconds):
            yield Write(Verb.DELETE, RESERVATIONS, Key("", reservation.value.name), reservation.value.uid)


def _by_identity(selector: LabelSelector | None) -> bool:
    """Return whether the selector looks at labels that members of one workload do not share."""
    if selector is None:
        return False
    keys = {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}
    return bool(keys & IDENTITY_LABELS)


def _names_scheduler(item: ReservationObject) -> bool:
    """Return whether the template names a scheduler at all."""
    return bool(((item.spec.template or {}).get("spec") or {}).get("schedulerName"))


def merged(before: tuple[Condition, ...], after: tuple[Condition, ...], now: float) -> tuple[Condition, ...]:
    """Conditions by type, the later ones winning; a time only moves when the status does."""
    known = {condition.type: condition for condition in before}
    for condition in after:
        old = known.get(condition.type)
        unchanged = old is not None and old.status == condition.status
        changed_at = old.last_transition_time if old is not None and unchanged else rfc3339(now)
        known[condition.type] = msgspec.structs.replace(condition, last_transition_time=changed_at)
    return tuple(known.values())


def _wire(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(condition) for condition in conditions]


def _same(status: Mapping[str, Any], shown: Any) -> bool:
    """Return whether the object's status shows already what would be written."""
    wire = msgspec.to_builtins(shown)
    return all(wire.get(name, type(value)()) == value for name, value in status.items())
