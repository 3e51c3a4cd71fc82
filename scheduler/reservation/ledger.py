"""All reservations the scheduler knows: where each stands, who uses it, and what to write about it.

The stand-in's charge on its row is lowered by what its consumers are charged for themselves, in whatever order
they come, go and are supposed gone.
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
from scheduler.reservation.lifecycle import ReservationChange, collectable, followed, problem
from scheduler.reservation.standin import stand_in, value_of
from scheduler.reservation.value import Reservation, ReservationPhase

RESERVATIONS = custom(RESERVATION)
REWRITE_SECONDS = 10.0
"""A status write that the watch does not show is repeated after this long."""


@dataclass(slots=True, eq=False)
class ReservationUse:
    """A reservation, its stand-in, and who uses it."""

    value: Reservation
    info: PodInfo
    conditions: tuple[Condition, ...] = ()
    row: Row | None = None
    """Where the stand-in is placed."""
    consumers: dict[str, tuple[str, Resources]] = field(default_factory=dict)
    """Key and requests of the pods that use it, by UID, assumed ones included."""
    returned: Resources = field(default_factory=dict)
    """What of the stand-in's charge is given back on its row."""
    written: tuple[float, Any] = (0.0, None)
    """When which status was last written."""

    def usable(self, now: float) -> bool:
        """Whether pods may use it at this moment; a one-time reservation serves one, if only assumed."""
        return self.row is not None and self.value.usable(now) and not (self.value.allocate_once and self.consumers)

    @property
    def current(self) -> Reservation:
        """The value with its usage as of this moment."""
        used = total(requests for _, requests in self.consumers.values())
        allocated = {name: used.get(name, 0) for name in self.value.allocatable}
        return replace(self.value, allocated=allocated, consumers=frozenset(key for key, _ in self.consumers.values()))


class ReservationLedger:
    """Reservations by UID. `gc_seconds` None keeps ended ones."""

    def __init__(self, handle: Handle, scheduler_names: Iterable[str], gc_seconds: float | None) -> None:
        self.held: dict[str, ReservationUse] = {}
        self.generation = 0
        """Grows with every change that may alter whom a reservation serves."""
        self.by_identity: set[str] = set()
        """Reservations whose owners may tell pods of one workload apart, by UID."""
        self.now = 0.0
        self._handle = handle
        self._scheduler_names = frozenset(scheduler_names)
        self._gc_seconds = gc_seconds
        self._classes = PodClasses()
        self._keys: dict[str, str] = {}
        """UID by name of the reservation."""
        self._draws: dict[str, str] = {}
        """UID of the reservation that a placed pod uses, by the pod's UID."""
        self._strays: dict[str, dict[str, tuple[str, Resources]]] = {}
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
            for uid, held in self.held.items()
            if held.row is None and held.value.phase is ReservationPhase.AVAILABLE and held.value.node == node.name
        }

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A stand-in takes its room, or a consumer uses some."""
        held = self.held.get(info.uid)
        if held is not None:
            held.row = row
            self._balance(held)
            return
        uid = drawn_from(info.annotation(ANNOTATION_RESERVATION_ALLOCATED))
        if uid:
            self._draws[info.uid] = uid
            held = self.held.get(uid)
            consumers = held.consumers if held is not None else self._strays.setdefault(uid, {})
            consumers[info.uid] = (info.key, info.requests)
            if held is not None:
                self._balance(held)

    def pod_removed(self, info: PodInfo) -> None:
        """A stand-in left its room, or a consumer gave back what it used."""
        held = self.held.get(info.uid)
        if held is not None:
            self._balance(held, charged=False)
            held.row = None
            return
        uid = self._draws.pop(info.uid, None)
        if uid is None:
            return
        held = self.held.get(uid)
        if held is None:
            self._strays.get(uid, {}).pop(info.uid, None)
        else:
            held.consumers.pop(info.uid, None)
            self._balance(held)

    def take(self, item: ReservationObject) -> None:
        """A reservation appeared or changed."""
        self.generation += 1
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
        told_apart = any(owner.object is not None or _by_identity(owner.selector) for owner in value.owners)
        (self.by_identity.add if told_apart else self.by_identity.discard)(uid)
        held = self.held.get(uid)
        if held is None:
            held = self.held[uid] = ReservationUse(value, self._classes.info(pod), tuple(item.status.conditions))
            held.consumers = self._strays.pop(uid, {})
        elif held.value.phase.terminal and not value.phase.terminal:
            return
        elif held.value.phase is ReservationPhase.AVAILABLE and value.phase is ReservationPhase.PENDING:
            held.value = replace(
                value, phase=ReservationPhase.AVAILABLE, node=held.value.node, allocatable=held.value.allocatable
            )
        else:
            held.value = value
        self._settle(held)

    def _settle(self, held: ReservationUse) -> None:
        """Queue, place or withdraw the stand-in as the phase asks."""
        value = held.value
        if value.phase.terminal:
            self._handle.withdraw(value.uid)
        elif value.phase is ReservationPhase.AVAILABLE:
            if held.row is None:
                self._unplaced.add(value.uid)
        else:
            self._handle.enqueue(held.info)

    def drop(self, name: str) -> None:
        """A reservation was deleted."""
        self.generation += 1
        uid = self._keys.pop(name, "")
        held = self.held.get(uid)
        if held is None:
            return
        self._handle.withdraw(uid)
        if held.row is not None:
            self._handle.snapshot.remove_pod(uid)
        del self.held[uid]
        self.by_identity.discard(uid)
        self._unplaced.discard(uid)
        if held.consumers:
            self._strays[uid] = held.consumers

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
        for held in list(self.held.values()):
            self._follow(held)
            yield from self._status_write(held)
            yield from self._collect(held)

    def place_known(self) -> None:
        """Put stand-ins of available reservations on their nodes as far as these are known."""
        for uid in list(self._unplaced):
            held = self.held.get(uid)
            if held is None or held.row is not None or held.value.phase is not ReservationPhase.AVAILABLE:
                self._unplaced.discard(uid)
                continue
            row = self._handle.snapshot.row(held.value.node)
            if row is not None:
                self._unplaced.discard(uid)
                self._handle.snapshot.add_pod(held.info, row)

    # Internals

    def _balance(self, held: ReservationUse, *, charged: bool = True) -> None:
        """Give back on the stand-in's row what its consumers are charged for themselves."""
        self.generation += 1
        if held.row is None:
            return
        snapshot = self._handle.snapshot
        used = total(requests for _, requests in held.consumers.values()) if charged else {}
        wanted = {
            name: min(amount, used.get(name, 0)) for name, amount in held.info.requests.items() if used.get(name, 0)
        }
        for name in wanted.keys() | held.returned.keys():
            change = wanted.get(name, 0) - held.returned.get(name, 0)
            snapshot.requested[held.row, snapshot.resource_column(name)] -= change
            if name in (CPU, MEMORY):
                snapshot.nonzero[held.row, 0 if name == CPU else 1] -= change
        held.returned = wanted
        snapshot.touch(held.row)

    def _follow(self, held: ReservationUse) -> None:
        if held.value.phase.terminal:
            return
        snapshot = self._handle.snapshot
        confirmed = {
            key: requests
            for uid, (key, requests) in held.consumers.items()
            if (placement := snapshot.pods.get(uid)) is not None and not placement.assumed
        }
        exists = snapshot.row(held.value.node) is not None
        self.change(held, followed(held.value, now=self.now, node_exists=exists, consumers=confirmed))

    def change(self, held: ReservationUse, change: ReservationChange) -> None:
        """Take over a transition; an ended reservation lets go of its room."""
        ended = change.reservation.phase.terminal and not held.value.phase.terminal
        if change.reservation != held.value:
            held.value = change.reservation
            self.generation += 1
        held.conditions = merged(held.conditions, change.conditions, self.now)
        if ended:
            self._handle.withdraw(held.value.uid)

    def status(self, held: ReservationUse, change: ReservationChange) -> dict[str, Any]:
        """The status on the wire after a transition."""
        value = change.reservation
        names = {key: uid for uid, (key, _) in held.consumers.items()}
        return {
            "phase": value.phase.value,
            "nodeName": value.node,
            "allocatable": format_resources({name: n for name, n in value.allocatable.items() if name != "pods"}),
            "allocated": format_resources({name: n for name, n in value.allocated.items() if name != "pods"}),
            "currentOwners": [
                {"namespace": key.partition("/")[0], "name": key.partition("/")[2], "uid": names.get(key, "")}
                for key in sorted(value.consumers)
            ],
            "conditions": _wire(merged(held.conditions, change.conditions, self.now)),
        }

    def _status_write(self, held: ReservationUse) -> Iterable[Write]:
        """The status, where it is not what the object shows and was not written just before."""
        key = Key("", held.value.name)
        shown = self._handle.objects(RESERVATIONS).get(key)
        if shown is None or (held.value.phase is ReservationPhase.PENDING and not held.conditions):
            return
        status = self.status(held, ReservationChange(held.value))
        if _same(status, shown.status):
            return
        at, body = held.written
        if body != status or self.now - at >= REWRITE_SECONDS:
            held.written = (self.now, status)
            yield Write(Verb.PATCH_STATUS, RESERVATIONS, key, merge_patch({"status": status}))

    def _collect(self, held: ReservationUse) -> Iterable[Write]:
        if self._gc_seconds is None or not held.value.phase.terminal:
            return
        times = [epoch_seconds(condition.last_transition_time) for condition in held.conditions]
        ended = max((at for at in times if at is not None), default=held.value.created_seconds)
        if collectable(held.value, ended, self.now, self._gc_seconds):
            yield Write(Verb.DELETE, RESERVATIONS, Key("", held.value.name), held.value.uid)


def _by_identity(selector: LabelSelector | None) -> bool:
    """Whether the selector looks at labels that members of one workload do not share."""
    if selector is None:
        return False
    keys = {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}
    return bool(keys & IDENTITY_LABELS)


def _names_scheduler(item: ReservationObject) -> bool:
    """Whether the template names a scheduler at all."""
    return bool(((item.spec.template or {}).get("spec") or {}).get("schedulerName"))


def merged(before: tuple[Condition, ...], after: tuple[Condition, ...], now: float) -> tuple[Condition, ...]:
    """Conditions by type, the later ones winning; a time only moves when the status does."""
    known = {condition.type: condition for condition in before}
    for condition in after:
        old = known.get(condition.type)
        kept = old is not None and old.status == condition.status
        moment = old.last_transition_time if old is not None and kept else rfc3339(now)
        known[condition.type] = msgspec.structs.replace(condition, last_transition_time=moment)
    return tuple(known.values())


def _wire(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(condition) for condition in conditions]


def _same(status: Mapping[str, Any], shown: Any) -> bool:
    """Whether the object's status shows already what would be written."""
    wire = msgspec.to_builtins(shown)
    return all(wire.get(name, type(value)()) == value for name, value in status.items())
