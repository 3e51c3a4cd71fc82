"""Room kept for pods to come: held by a stand-in pod, given to whom it is for, ended in time.

`scheduler.reservation` has the rules. The stand-in is scheduled and charged like any pod; what its consumers
take is charged with them and therefore given back on the row, so no amount counts twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds import RESERVATION
from api.crds import Reservation as ReservationObject
from api.meta import Condition
from api.objects import Node
from api.protocol import ANNOTATION_RESERVATION_ALLOCATED
from api.resources import CPU, MEMORY, QuantityError, Resources, format_resources, total
from api.times import epoch_seconds, rfc3339
from cluster.resources import Key, custom, merge_patch
from scheduler.devices.payload import drawn_from
from scheduler.diagnosis import sentence
from scheduler.framework import (
    Action,
    Attempt,
    Bits,
    Failure,
    Handle,
    Nomination,
    ObjectEvent,
    Plugin,
    Reason,
    Restored,
    Route,
    Scores,
    Verb,
    Write,
    scaled,
)
from scheduler.podinfo import PodClasses, PodInfo
from scheduler.reservation.capacity import ORDER_SCORE, conflicting_policies, nominate, score, shortfall
from scheduler.reservation.lifecycle import GC_SECONDS, Change, bound, collectable, followed, problem, unschedulable
from scheduler.reservation.matching import AffinityError, Seeker, refusal, seeker_of
from scheduler.reservation.standin import is_stand_in, stand_in, value_of
from scheduler.reservation.value import Phase, Reservation
from scheduler.snapshot import Row, Rows

RESERVATIONS = custom(RESERVATION)
NO_MATCH, TOO_SMALL, CONFLICT = 1, 2, 4
REWRITE_SECONDS = 10.0
"""A status write that the watch does not show is repeated after this long."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of Reservation."""

    scheduler_names: list[str] = msgspec.field(default_factory=lambda: ["", "koord-scheduler"])
    """Reservations whose template names one of these schedulers are ours."""
    gc_seconds: float = GC_SECONDS
    """Ended reservations are deleted after this long."""
    disable_garbage_collection: bool = False
    """Keep ended reservations."""


@dataclass(slots=True, eq=False)
class Held:
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

    @property
    def current(self) -> Reservation:
        """The value with its usage as of this moment."""
        used = total(requests for _, requests in self.consumers.values())
        allocated = {name: used.get(name, 0) for name in self.value.allocatable}
        return replace(self.value, allocated=allocated, consumers=frozenset(key for key, _ in self.consumers.values()))


@dataclass(slots=True, eq=False)
class Spec:
    """A class of pods that look for reservations, or one stand-in."""

    seeker: Seeker | None = None
    error: str = ""
    stands_in: bool = False
    offered: dict[Row, frozenset[str]] = field(default_factory=dict)
    """Reservations that the last attempt was offered, by row: rows that differ are judged anew."""


class ReservationPlugin(Plugin[Spec]):
    """Schedules reservations and gives them to their owners."""

    name = "Reservation"
    rank = 300
    weight = 5000
    requeue_on = frozenset(
        {"reservations/add", "reservations/update", "reservations/delete", "pods/delete", "nodes/add"}
    )
    watches = (RESERVATIONS,)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self._classes = PodClasses()
        self._held: dict[str, Held] = {}
        self._keys: dict[str, str] = {}
        """UID by name of the reservation."""
        self._draws: dict[str, str] = {}
        """UID of the reservation that a placed pod uses, by the pod's UID."""
        self._strays: dict[str, dict[str, tuple[str, Resources]]] = {}
        """Consumers of reservations that no watch has shown yet."""
        self._unplaced: set[str] = set()
        """Available reservations whose stand-in has yet to be put on its node."""
        self._problems: dict[str, str] = {}
        self._pending_writes: list[Write] = []
        self._now = 0.0

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """Reservations may have waited for the node to show."""
        self._unplaced |= {
            uid
            for uid, held in self._held.items()
            if held.row is None and held.value.phase is Phase.AVAILABLE and held.value.node == node.name
        }

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A stand-in takes its room, or a consumer uses some."""
        held = self._held.get(info.uid)
        if held is not None:
            held.row = row
            self._balance(held)
            return
        uid = drawn_from(info.annotation(ANNOTATION_RESERVATION_ALLOCATED))
        if uid:
            self._draws[info.uid] = uid
            held = self._held.get(uid)
            consumers = held.consumers if held is not None else self._strays.setdefault(uid, {})
            consumers[info.uid] = (info.key, info.requests)
            if held is not None:
                self._balance(held)

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """The reverse."""
        held = self._held.get(info.uid)
        if held is not None:
            self._balance(held, charged=False)
            held.row = None
            return
        uid = self._draws.pop(info.uid, None)
        if uid is None:
            return
        held = self._held.get(uid)
        if held is None:
            self._strays.get(uid, {}).pop(info.uid, None)
        else:
            held.consumers.pop(info.uid, None)
            self._balance(held)

    def on_object(self, event: ObjectEvent) -> None:
        """A reservation appeared, changed or went."""
        first = not self._held
        if event.action is Action.DELETE:
            self._drop(self._keys.pop(event.key.name, ""))
        else:
            self._take(event.after)
        if first and self._held:
            self.handle.invalidate()

    def tick(self, now: float) -> Iterable[Write]:
        """Follow every reservation, write what changed, delete what ended long ago."""
        self._now = now
        self._place_known()
        writes, self._pending_writes = self._pending_writes, []
        for held in list(self._held.values()):
            self._follow(held)
            writes.extend(self._status_write(held))
            writes.extend(self._collect(held))
        return writes

    # One attempt

    def prepare(self, info: PodInfo) -> Spec | None:
        """Decode what the pod says about reservations; None while there are none and it wants none."""
        if is_stand_in(info.pod):
            return Spec(stands_in=True)
        try:
            seeker = seeker_of(info.pod, info.requests)
        except AffinityError as error:
            return Spec(error=str(error))
        return Spec(seeker) if self._held or seeker.affinity is not None else None

    def pre_filter(self, attempt: Attempt, spec: Spec) -> Reason | None:
        """Refuse what cannot be read, and pods that must have a reservation where none is for them."""
        self._place_known()
        if spec.error:
            return Reason(spec.error, resolvable=False)
        if spec.seeker is None or spec.seeker.affinity is None or self._offers(attempt, spec):
            return None
        return Reason(self._why_none(attempt, spec.seeker), resolvable=False)

    def restore(self, attempt: Attempt, spec: Spec) -> Mapping[Row, Sequence[Restored]]:
        """The reservations that are for the pod."""
        offers = self._offers(attempt, spec)
        now_offered = {row: frozenset(held.value.uid for held in listed) for row, listed in offers.items()}
        for row in now_offered.keys() | spec.offered.keys():
            if now_offered.get(row) != spec.offered.get(row):
                attempt.snapshot.touch(row)
        spec.offered = now_offered
        return {row: [self._restored(held) for held in listed] for row, listed in offers.items()}

    def reasons(self, spec: Spec) -> tuple[Reason, ...]:
        """Meaning of the filter's bits."""
        return (
            Reason("node(s) without a reservation for the pod", resolvable=False),
            Reason("Reservation(s) with too little left and too little free beside it"),
            Reason("Reservation(s) of the default policy beside others", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: Spec, rows: Rows) -> Bits | None:
        """With an affinity only nodes with a fitting reservation will do; else the plain node does as well."""
        if spec.seeker is None:
            return None
        must = spec.seeker.affinity is not None
        if not must and not attempt.restored:
            return None
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        bits = np.full(numbers.shape[0], NO_MATCH if must else 0, dtype=np.int64)
        for position in np.flatnonzero(np.isin(numbers, list(attempt.restored))).tolist():
            row = int(numbers[position])
            listed = self._listed(attempt, row)
            if conflicting_policies([held.value for held in listed]):
                bits[position] = CONFLICT
            else:
                usable = self._fitting(attempt, row) or (not must and self._fits_plainly(attempt, row))
                bits[position] = 0 if usable else TOO_SMALL
        return bits

    def post_filter(self, attempt: Attempt, spec: Spec, failure: Failure) -> Nomination | None:
        """A reservation that finds no node says so in its status."""
        held = self._held.get(attempt.pod.uid) if spec.stands_in else None
        if held is not None:
            self._change(held, unschedulable(held.value, sentence(failure, attempt.snapshot)))
        return None

    def score(self, attempt: Attempt, spec: Spec, rows: Rows) -> Scores | None:
        """How full the pod makes the best reservation of a node."""
        if not attempt.restored:
            return None
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        scores = np.zeros(numbers.shape[0], dtype=np.int64)
        for position in np.flatnonzero(np.isin(numbers, list(attempt.restored))).tolist():
            fitting = self._fitting(attempt, int(numbers[position]))
            scores[position] = max((score(attempt.pod.requests, held.current) for held in fitting), default=0)
        return scores

    def normalize(self, attempt: Attempt, spec: Spec, scores: Scores, feasible: NDArray[np.bool_]) -> Scores:
        """The node with the lowest order comes first; otherwise relative to the best."""
        ordered = [
            (held.value.order, row)
            for row in attempt.restored
            if feasible[row]
            for held in self._fitting(attempt, row)
            if held.value.order > 0
        ]
        if ordered:
            scores = scores.copy()
            scores[min(ordered)[1]] = ORDER_SCORE
        return scaled(scores, feasible)

    def reserve(self, attempt: Attempt, spec: Spec, row: Row) -> Reason | None:
        """Nominate the reservation, and let the plugins after this one draw from no other."""
        if spec.seeker is None or row not in attempt.restored:
            attempt.restored = {}
            return None
        candidates = {held.value.uid: held for held in self._fitting(attempt, row)}
        chosen = nominate(attempt.pod.requests, [held.current for held in candidates.values()])
        if chosen is None:
            attempt.restored = {}
            return Reason("Reservation(s) gone", plugin=self.name) if spec.seeker.affinity is not None else None
        attempt.restored = {row: [each for each in attempt.restored[row] if each.holder.uid == chosen.uid]}
        body = msgspec.json.encode({"name": chosen.name, "uid": chosen.uid}).decode()
        attempt.pod.patch[ANNOTATION_RESERVATION_ALLOCATED] = body
        return None

    def bind(self, attempt: Attempt, spec: Spec, row: Row) -> Sequence[Write] | None:
        """A stand-in is bound by making its reservation available."""
        held = self._held.get(attempt.pod.uid) if spec.stands_in else None
        if held is None:
            return None
        key = Key("", held.value.name)
        change = bound(held.value, attempt.snapshot.names[row])
        writes = [Write(Verb.PATCH_STATUS, RESERVATIONS, key, merge_patch({"status": self._status(held, change)}))]
        if attempt.pod.patch:
            patch = {"metadata": {"annotations": dict(attempt.pod.patch)}}
            writes.insert(0, Write(Verb.PATCH, RESERVATIONS, key, merge_patch(patch)))
        return writes

    def post_bind(self, attempt: Attempt, spec: Spec, row: Row) -> Iterable[Write]:
        """The reservation is available."""
        held = self._held.get(attempt.pod.uid) if spec.stands_in else None
        if held is not None and not held.value.phase.terminal:
            change = bound(held.value, attempt.snapshot.names[row])
            held.value, held.conditions = change.reservation, _merged(held.conditions, change.conditions, self._now)
        return ()

    # Diagnosis

    def routes(self) -> Mapping[str, Route]:
        """Reservations of a node."""
        return {"nodeReservations/{name}": self.describe}

    def describe(self, name: str) -> dict[str, Any]:
        """What is reserved on a node, for whom it is used, what is left."""
        listed = [held.current for held in self._held.values() if held.value.node == name]
        return {
            value.name: {
                "phase": value.phase.value,
                "allocatable": format_resources(value.allocatable),
                "allocated": format_resources(value.allocated),
                "remaining": format_resources(value.remaining),
                "owners": sorted(value.consumers),
            }
            for value in listed
        }

    # Internals: objects

    def _take(self, item: ReservationObject) -> None:
        uid, name = item.metadata.uid, item.metadata.name
        try:
            value, pod = value_of(item), stand_in(item)
        except (QuantityError, msgspec.ValidationError) as error:
            self._refuse(item, f"spec cannot be read: {error}")
            return
        if pod.spec.scheduler_name not in self.config.scheduler_names and _names_scheduler(item):
            return
        self._keys[name] = uid
        wrong = problem(value, has_template=bool(item.spec.template))
        if wrong:
            self._refuse(item, wrong)
            return
        self._problems.pop(uid, None)
        held = self._held.get(uid)
        if held is None:
            held = self._held[uid] = Held(value, self._classes.info(pod), tuple(item.status.conditions))
            held.consumers = self._strays.pop(uid, {})
        elif held.value.phase.terminal and not value.phase.terminal:
            return
        elif held.value.phase is Phase.AVAILABLE and value.phase is Phase.PENDING:
            held.value = replace(value, phase=Phase.AVAILABLE, node=held.value.node, allocatable=held.value.allocatable)
        else:
            held.value = value
        self._settle(held)

    def _settle(self, held: Held) -> None:
        """Queue, place or withdraw the stand-in as the phase asks."""
        value = held.value
        if value.phase.terminal:
            self.handle.withdraw(value.uid)
        elif value.phase is Phase.AVAILABLE:
            if held.row is None:
                self._unplaced.add(value.uid)
        else:
            self.handle.enqueue(held.info)

    def _drop(self, uid: str) -> None:
        held = self._held.get(uid)
        if held is None:
            return
        self.handle.withdraw(uid)
        if held.row is not None:
            self.handle.snapshot.remove_pod(uid)
        del self._held[uid]
        self._unplaced.discard(uid)
        if held.consumers:
            self._strays[uid] = held.consumers

    def _refuse(self, item: ReservationObject, why: str) -> None:
        if self._problems.get(item.metadata.uid) == why:
            return
        self._problems[item.metadata.uid] = why
        condition = Condition(type="Scheduled", status="False", reason="Unschedulable", message=why)
        status = {"conditions": _wire(_merged(tuple(item.status.conditions), (condition,), self._now))}
        key = Key("", item.metadata.name)
        self._pending_writes.append(Write(Verb.PATCH_STATUS, RESERVATIONS, key, merge_patch({"status": status})))

    def _place_known(self) -> None:
        """Put stand-ins of available reservations on their nodes as far as these are known."""
        for uid in list(self._unplaced):
            held = self._held.get(uid)
            if held is None or held.row is not None or held.value.phase is not Phase.AVAILABLE:
                self._unplaced.discard(uid)
                continue
            row = self.handle.snapshot.row(held.value.node)
            if row is not None:
                self._unplaced.discard(uid)
                self.handle.snapshot.add_pod(held.info, row)

    # Internals: accounting

    def _balance(self, held: Held, *, charged: bool = True) -> None:
        """Give back on the stand-in's row what its consumers are charged for themselves."""
        if held.row is None:
            return
        snapshot = self.handle.snapshot
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

    def _follow(self, held: Held) -> None:
        if held.value.phase.terminal:
            return
        snapshot = self.handle.snapshot
        confirmed = {
            key: requests
            for uid, (key, requests) in held.consumers.items()
            if (placement := snapshot.pods.get(uid)) is not None and not placement.assumed
        }
        exists = snapshot.row(held.value.node) is not None
        self._change(held, followed(held.value, now=self._now, node_exists=exists, consumers=confirmed))

    def _change(self, held: Held, change: Change) -> None:
        ended = change.reservation.phase.terminal and not held.value.phase.terminal
        held.value = change.reservation
        held.conditions = _merged(held.conditions, change.conditions, self._now)
        if ended:
            self.handle.withdraw(held.value.uid)

    def _status(self, held: Held, change: Change) -> dict[str, Any]:
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
            "conditions": _wire(_merged(held.conditions, change.conditions, self._now)),
        }

    def _status_write(self, held: Held) -> Iterable[Write]:
        """The status, where it is not what the object shows and was not written just before."""
        key = Key("", held.value.name)
        shown = self.handle.objects(RESERVATIONS).get(key)
        if shown is None or (held.value.phase is Phase.PENDING and not held.conditions):
            return
        status = self._status(held, Change(held.value))
        if _same(status, shown.status):
            return
        at, body = held.written
        if body != status or self._now - at >= REWRITE_SECONDS:
            held.written = (self._now, status)
            yield Write(Verb.PATCH_STATUS, RESERVATIONS, key, merge_patch({"status": status}))

    def _collect(self, held: Held) -> Iterable[Write]:
        if self.config.disable_garbage_collection or not held.value.phase.terminal:
            return
        times = [epoch_seconds(condition.last_transition_time) for condition in held.conditions]
        ended = max((at for at in times if at is not None), default=held.value.created_seconds)
        if collectable(held.value, ended, self._now, self.config.gc_seconds):
            yield Write(Verb.DELETE, RESERVATIONS, Key("", held.value.name), held.value.uid)

    # Internals: attempts

    def _offers(self, attempt: Attempt, spec: Spec) -> dict[Row, list[Held]]:
        """Usable reservations that match the pod, by row."""
        offers: dict[Row, list[Held]] = {}
        if spec.seeker is None:
            return offers
        seeker = replace(spec.seeker, pod=attempt.pod.pod)
        for held in self._held.values():
            if held.row is None or not held.current.usable(attempt.now):
                continue
            if refusal(seeker, held.value, attempt.snapshot.labels.of(held.row)) is None:
                offers.setdefault(held.row, []).append(held)
        return offers

    def _why_none(self, attempt: Attempt, seeker: Seeker) -> str:
        seeker = replace(seeker, pod=attempt.pod.pod)
        reasons: Counter[str] = Counter()
        for held in self._held.values():
            labels = attempt.snapshot.labels.of(held.row) if held.row is not None else {}
            why = None if held.current.usable(attempt.now) else "it is not available or used up"
            reasons[why or refusal(seeker, held.value, labels) or "its node is gone"] += 1
        counted = ", ".join(f"{count} {text}" for text, count in sorted(reasons.items()))
        return f"Reservation(s) needed, none matches: {counted or 'there is none'}"

    def _restored(self, held: Held) -> Restored:
        snapshot = self.handle.snapshot
        left = {name: amount - held.returned.get(name, 0) for name, amount in held.info.requests.items()}
        columns = {snapshot.resource_column(name): max(amount, 0) for name, amount in left.items()}
        vector = np.zeros(snapshot.width, dtype=np.int64)
        for column, amount in columns.items():
            vector[column] = amount
        return Restored(held.info, vector)

    def _listed(self, attempt: Attempt, row: Row) -> list[Held]:
        return [self._held[each.holder.uid] for each in attempt.restored.get(row, ()) if each.holder.uid in self._held]

    def _fitting(self, attempt: Attempt, row: Row) -> list[Held]:
        """Reservations of the row that take the pod, by the policy of each."""
        free = self._free(attempt, row)
        request = attempt.pod.requests
        return [held for held in self._listed(attempt, row) if shortfall(request, free, held.current) is None]

    def _fits_plainly(self, attempt: Attempt, row: Row) -> bool:
        free = self._free(attempt, row)
        return all(amount <= free[name] for name, amount in attempt.pod.requests.items() if amount > 0)

    def _free(self, attempt: Attempt, row: Row) -> Resources:
        """What the row has left beside everything reserved, for the resources that the pod asks for."""
        snapshot = attempt.snapshot
        columns = {name: snapshot.resource_column(name) for name in attempt.pod.requests}
        return {
            name: int(snapshot.allocatable[row, column] - snapshot.requested[row, column])
            for name, column in columns.items()
        }


def _names_scheduler(item: ReservationObject) -> bool:
    """Whether the template names a scheduler at all."""
    return bool(((item.spec.template or {}).get("spec") or {}).get("schedulerName"))


def _merged(before: tuple[Condition, ...], after: tuple[Condition, ...], now: float) -> tuple[Condition, ...]:
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
