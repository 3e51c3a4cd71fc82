"""DynamicResources: devices for a pod's resource claims, chosen before it is bound and written into the claims.

A claim that has its devices limits the nodes; one that has none gets them from the node that is chosen. They are
written with the pod's binding, each claim as it was looked at, and are taken here from the choice until the API server
shows them. Claims that ask for what `scheduler.claims` does not know are refused with what it is: a pod that is bound
before its claims are allocated never starts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

import msgspec
import numpy as np

from api.kube.claims import DeviceClass, ResourceClaim, ResourceSlice
from api.kube.objects import Node
from api.kube.selectors import NodeSelector, node_term_matches
from cluster.resources import DEVICE_CLASSES, RESOURCE_SLICES, Key
from scheduler.claim_writes import CLAIMS, MAX_CONSUMERS, emptied, idle, reserved, without
from scheduler.claims.allocation import Effort, EffortEndedError, Given, allocate
from scheduler.claims.demand import ClaimDemand, UnsupportedClaimError, claim_keys, demand_of
from scheduler.claims.expression import Expression
from scheduler.claims.holdings import Choice, Holdings
from scheduler.claims.inventory import Content, Device, DeviceId, Inventory
from scheduler.claims.rowanswers import Looks, RowAnswers
from scheduler.claims.selectable import EvaluationError
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
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
    Scope,
    Wait,
    Write,
)

SLICES = RESOURCE_SLICES.of(ResourceSlice)
CLASSES = DEVICE_CLASSES.of(DeviceClass)

OUT_OF_REACH, NO_DEVICES, SELECTOR_FAILED, UNKNOWN = 1, 2, 4, 8
DOUBT_SECONDS = 60.0
"""Time for which devices stay taken whose writing failed, unless the claim shows devices or is gone."""
SHARED_SECONDS = 60.0
"""Longest wait of a pod for devices that another pod of its group writes into their claim."""
MAX_ANSWERS = 65536
"""Answers of selectors that are kept."""


@dataclass(slots=True, eq=False)
class Claims:
    """A class's claims: those with devices and those without."""

    refused: str = ""
    """A reason against every node, empty when there is none."""
    uids: Mapping[Key, str] = field(default_factory=dict)
    """The claims as they were looked at; one that is made again under a name is another one."""
    allocated: tuple[NodeSelector, ...] = ()
    """Nodes of claims that have devices, where not all reach them."""
    open: tuple[ClaimDemand, ...] = ()
    own: tuple[Key, ...] = ()
    """Claims that were made for one pod."""
    question: bytes = b""
    """What the open claims ask for, whatever their names."""


@dataclass(slots=True, eq=False)
class Plan:
    """A pod between choice and binding."""

    given: dict[Key, Given]
    uids: Mapping[Key, str] = field(default_factory=dict)
    """All claims of the pod, also those that had their devices before, as they were looked at."""
    shared: frozenset[Key] = frozenset()
    """Claims of them that got their devices for another pod of the group, which writes them."""
    sent: bool = False


class DynamicResources(Plugin[Claims]):
    """Filters by devices, and gives them to claims."""

    name = "DynamicResources"
    rank = 190
    scope = Scope.CLUSTER
    watches = (CLASSES, SLICES, CLAIMS)
    shares = (CLAIMS,)
    requeue_on = frozenset(
        {
            "nodes/add",
            "nodes/update",
            "pods/delete",
            "resourceclaims/add",
            "resourceclaims/update",
            "resourceclaims/delete",
            "resourceslices/add",
            "resourceslices/update",
            "deviceclasses/add",
            "deviceclasses/update",
        }
    )

    def __init__(self, config: object, handle: Handle) -> None:
        super().__init__(config, handle)
        self._inventory = Inventory()
        self._holdings = Holdings()
        self._plans: dict[str, Plan] = {}
        self._leaving: dict[Key, dict[str, float]] = {}
        """UIDs of pods of ours that claims may be reserved for and that did not come to be bound, by claim; with the
        time until which a late write may still reserve it."""
        self._ticked = 0.0
        self._release: dict[Key, tuple[str, str]] = {}
        """Claims to take devices from, each as it was looked at: its version, and the UID of the pod that it bars."""
        self._classes_of: dict[Key, WeakSet[PodClass]] = {}
        self._searching: set[str] = set()
        """UIDs of pods that found no devices on the rows that were searched so far."""
        self._rows = RowAnswers()
        """Whether rows serve what is asked, by question."""
        self._answers: dict[tuple[str, Content | DeviceId], bool] = {}
        """Whether selectors mean devices, by what these say."""
        self._labels: dict[Row, tuple[str, dict[str, str]]] = {}

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """Reach depends on names and labels."""
        known = (node.name, node.metadata.labels)
        if self._labels.get(row) != known:
            self._labels[row] = known
            self._rows.row_changed(row)

    def node_removed(self, row: Row) -> None:
        """Forget the row."""
        self._labels.pop(row, None)
        self._rows.row_changed(row)

    def on_object(self, event: ObjectEvent) -> None:
        """Devices, classes and claims."""
        if event.resource.plural == SLICES.plural:
            before = self._inventory.nodes_of_slice(event.key)
            if event.action is Action.DELETE:
                self._inventory.drop(event.key)
            else:
                self._inventory.put(event.key, event.after)
            after = self._inventory.nodes_of_slice(event.key)
            self._touch(None if before is None or after is None else {*before, *after})
        elif event.resource.plural == CLASSES.plural:
            self._rows.clear()
            self.handle.invalidate()
        else:
            self._claim_changed(event.key, None if event.action is Action.DELETE else event.after)

    def _claim_changed(self, key: Key, claim: ResourceClaim | None) -> None:
        self._used_otherwise(self._holdings.show(key, claim))
        classes = self._classes_of.pop(key, None)
        if classes:
            self.handle.forget(classes)
        for uid, plan in list(self._plans.items()):
            if key in plan.uids and (claim is None or claim.metadata.uid != plan.uids[key]):
                self.handle.reject(uid, Reason("a resource claim is gone", plugin=self.name))
            elif key in plan.shared:
                self._look_at_shared(uid, plan)

    def _used_otherwise(self, devices: Iterable[DeviceId]) -> None:
        for device in devices:
            self._touch(self._inventory.nodes_of(device))

    def _touch(self, nodes: Iterable[str] | None) -> None:
        """Ask the nodes again; None is all."""
        if nodes is None:
            self._rows.row_changed(None)
            return
        for node in nodes:
            row = self.handle.snapshot.row(node)
            if row is not None:
                self._rows.row_changed(row)

    # One attempt

    def prepare(self, info: PodInfo) -> Claims | None:
        """Sort the claims by their state; None for pods without any."""
        stated = info.pod.spec.resource_claims
        if not stated:
            return None
        found, own = claim_keys(info.pod)
        keys = tuple(dict.fromkeys(key for key in found if key is not None))
        for key in keys:
            self._classes_of.setdefault(key, WeakSet()).add(info.cls)
        if len(found) < len(stated):
            return Claims("waiting for the pod's resource claims to be created")
        claims = self.handle.objects(CLAIMS)
        uids: dict[Key, str] = {}
        allocated: list[NodeSelector] = []
        demands: list[ClaimDemand] = []
        for key in keys:
            claim: ResourceClaim | None = claims.get(key)
            if claim is None:
                return Claims(f'resourceclaim "{key.name}" not found')
            if claim.metadata.deletion_timestamp:
                return Claims(f'resourceclaim "{key.name}" is being deleted')
            uids[key] = claim.metadata.uid
            if claim.status.allocation is not None:
                if claim.status.allocation.node_selector is not None:
                    allocated.append(claim.status.allocation.node_selector)
                continue
            try:
                demands.append(demand_of(claim, self.handle.objects(CLASSES)))
            except UnsupportedClaimError as error:
                return Claims(f"{error}: not supported by this scheduler; use default-scheduler")
            except (LookupError, AttributeError, TypeError, ValueError) as error:
                return Claims(str(error))
        question = msgspec.msgpack.encode([demand.claim.spec for demand in demands])
        return Claims("", uids, tuple(allocated), tuple(demands), tuple(own), question)

    def pre_filter(self, attempt: Attempt, spec: Claims) -> Reason | None:
        """Claims that no node can help."""
        if attempt.pod.stand_in:
            text = "a reservation whose template has resource claims is not supported by this scheduler"
            return Reason(text, resolvable=False)
        if spec.refused:
            return Reason(spec.refused, resolvable=False)
        claims, uid = self.handle.objects(CLAIMS), attempt.pod.uid
        for key in spec.uids:
            claim: ResourceClaim = claims[key]
            owner = claim.metadata.controlled_by
            if key in spec.own and (owner is None or owner.uid != uid) and not attempt.simulated:
                return Reason(f'resourceclaim "{key.name}" was not created for the pod', resolvable=False)
            choice = self._holdings.chosen.get(key)
            if choice is not None and choice.uid != uid and not self._may_share(attempt.pod, choice):
                return Reason(f'resourceclaim "{key.name}" is being allocated for another pod', resolvable=False)
            consumers = claim.status.reserved_for
            others = len(choice.sharers) + 1 if choice is not None and choice.uid != uid else 0
            if len(consumers) + others >= MAX_CONSUMERS and all(each.uid != uid for each in consumers):
                return Reason(f'resourceclaim "{key.name}" has {MAX_CONSUMERS} consumers', resolvable=False)
        return None

    def reasons(self, spec: Claims) -> tuple[Reason, ...]:
        """Out of reach, too few devices, a selector that fails, or a search that has yet to end."""
        return (
            Reason("node(s) did not reach the devices of a resource claim", resolvable=False),
            Reason("node(s) could not allocate all resource claims"),
            Reason("node(s) with devices on which a claim's selector fails", resolvable=False),
            Reason("node(s) whose devices will be searched in another attempt", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: Claims, rows: Rows) -> Bits | None:
        """One bit for the first thing that is wrong with a row."""
        if not spec.open and not spec.allocated:
            return None
        bits, possible = self._judged(attempt, spec, rows), attempt.possible
        if possible is not None and (possible & (bits == UNKNOWN)).any():
            attempt.unfinished.add(self.name)
        return bits

    def post_filter(self, attempt: Attempt, spec: Claims, failure: Failure) -> Nomination | None:
        """Devices are given back that alone keep the pod from a node, where the claim has no other consumer."""
        if not attempt.simulated and self._rows_for(spec, failure, UNKNOWN):
            self._searching.add(attempt.pod.uid)
        barred = self._rows_for(spec, failure, OUT_OF_REACH)
        claims = self.handle.objects(CLAIMS)
        for key in spec.uids if barred else ():
            claim: ResourceClaim | None = claims.get(key)
            if claim is None or claim.status.allocation is None or claim.status.allocation.node_selector is None:
                continue
            selector = claim.status.allocation.node_selector
            if idle(claim, attempt.pod.uid) and not all(self._reaches(selector, row) for row in barred):
                self._release[key] = (claim.metadata.resource_version, attempt.pod.uid)
        return None

    def permit(self, attempt: Attempt, spec: Claims, row: Row) -> Reason | None:
        """Choose devices for the claims that have none, but for those that a pod of the same group chose before."""
        uid, chosen = attempt.pod.uid, self._holdings.chosen
        given = self._given(spec, row, uid, Effort())
        shared = frozenset(key for key in spec.uids if key in chosen and chosen[key].uid != uid)
        if given is None or self._out_of_reach(shared, row):
            return Reason("devices were given to another claim meanwhile")
        self._plans[uid] = Plan(given, spec.uids, shared)
        for key in shared:
            chosen[key].sharers.add(uid)
        for key, devices in given.items():
            self._used_otherwise(self._holdings.choose(key, Choice(uid, devices)))
        return None

    def settle(self, attempt: Attempt, spec: Claims, row: Row) -> Wait | Reason | None:
        """Wait for claims that another pod of the group writes."""
        plan = self._plans[attempt.pod.uid]
        return Wait(SHARED_SECONDS) if any(key in self._holdings.chosen for key in plan.shared) else None

    def pre_bind(self, attempt: Attempt, spec: Claims, row: Row) -> Reason | Sequence[Write]:
        """Write devices and consumers into each claim, which holds only for the claim that was looked at."""
        plan = self._plans[attempt.pod.uid]
        claims, placed = self.handle.objects(CLAIMS), self.handle.snapshot.pods
        demands = {demand.key: demand for demand in spec.open}
        writes: list[Write] = []
        for key, seen in spec.uids.items():
            claim: ResourceClaim | None = claims.get(key)
            if claim is None or claim.metadata.uid != seen:
                return Reason(f'resourceclaim "{key.name}" is gone')
            if not self._still_holds(plan, key, claim, attempt.pod.uid, row):
                return Reason(f'the devices of resourceclaim "{key.name}" changed while the pod was held')
            consumers, allocation = [attempt.pod], None
            if key in plan.given:
                sharers = sorted(self._holdings.chosen[key].sharers)
                consumers += [placed[uid].info for uid in sharers if uid in placed]
                allocation = (demands[key], plan.given[key])
            writes += reserved(claim, key, consumers, allocation, attempt.now)
        plan.sent = True
        return writes

    def unreserve(self, attempt: Attempt, spec: Claims, row: Row) -> None:
        """The devices are free again, unless it is unknown whether they were written."""
        if attempt.simulated:
            return
        uid = attempt.pod.uid
        plan = self._plans.pop(uid, None)
        if plan is None:
            return
        alone: set[str] = set()
        # The attempt of a pod that was held began long before.
        until = max(attempt.now, self._ticked) + DOUBT_SECONDS
        for key in plan.uids:
            choice = self._holdings.chosen.get(key)
            if choice is None:
                continue
            choice.sharers.discard(uid)
            if choice.uid == uid and plan.sent:
                choice.until = until
            elif choice.uid == uid:
                alone |= choice.sharers
                self._used_otherwise(self._holdings.drop(key))
        for key in spec.uids if plan.sent else plan.shared:
            self._leaving.setdefault(key, {})[uid] = until
        for other in sorted(alone):
            self.handle.reject(other, Reason("a resource claim lost its devices", plugin=self.name))

    def post_bind(self, attempt: Attempt, spec: Claims, row: Row) -> Iterable[Write]:
        """The claims will show their devices."""
        self._plans.pop(attempt.pod.uid, None)
        return ()

    def tick(self, now: float) -> Iterable[Write]:
        """Take pods out of claims that did not come to be bound, and devices from claims without consumers."""
        self._ticked = now
        if self._searching:
            self.handle.activate(self._searching)
            self._searching.clear()
        for key in [key for key, choice in self._holdings.chosen.items() if choice.until <= now]:
            self._used_otherwise(self._holdings.drop(key))
        claims, writes = self.handle.objects(CLAIMS), list(self._taken_out(now))
        release, self._release = self._release, {}
        in_use = {key for plan in self._plans.values() for key in plan.uids} if release else set()
        for key, (version, uid) in release.items():
            claim: ResourceClaim | None = claims.get(key)
            if claim is None or claim.metadata.resource_version != version or key in in_use or not idle(claim, uid):
                continue
            writes.append(emptied(claim, key))
        return writes

    # Internals

    def _judged(self, attempt: Attempt, spec: Claims, rows: Rows) -> Bits:
        """Why rows are barred, row by row."""
        snapshot, uid, chosen = attempt.snapshot, attempt.pod.uid, self._holdings.chosen
        effort = Effort()
        part = not isinstance(rows, slice) or rows.stop - rows.start != snapshot.rows_used
        if part or any(key in chosen for key in spec.uids):
            numbers = np.arange(snapshot.rows_used)[rows]
            return np.array([self._judge(spec, int(row), uid, effort) for row in numbers], dtype=np.int64)
        if not spec.open:
            return self._reached_bits(spec, snapshot.rows_used)

        looks = Looks()

        def serves(row: Row) -> int:
            return self._serves_alike(spec, row, uid, effort, looks)

        possible = attempt.possible
        bits = self._rows.of(spec.question, snapshot.rows_used, serves, unknown=UNKNOWN, wanted=possible)
        if looks.over and possible is not None and not (possible & (bits == 0)).any():
            # No pod need leave its node while there are devices that were not searched yet.
            bits = np.where(possible, UNKNOWN, bits)
        if not spec.allocated:
            return bits
        reached = self._reached_bits(spec, snapshot.rows_used)
        return np.where(reached != 0, reached, bits)

    def _still_holds(self, plan: Plan, key: Key, claim: ResourceClaim, uid: str, row: Row) -> bool:
        """Return whether the claim's devices, chosen or shown, are those that the pod was held for.

        Others take them meanwhile where a controller, or another scheduler, changed the claim while the pod waited.
        """
        allocation = claim.status.allocation
        if key in plan.given:
            choice = self._holdings.chosen.get(key)
            return allocation is None and choice is not None and choice.uid == uid
        if allocation is None:
            return False
        return allocation.node_selector is None or self._reaches(allocation.node_selector, row)

    def _taken_out(self, now: float) -> Iterable[Write]:
        """One write for each claim that shows pods which did not come to be bound."""
        claims, placed = self.handle.objects(CLAIMS), self.handle.snapshot.pods
        for key, leaving in list(self._leaving.items()):
            claim: ResourceClaim | None = claims.get(key)
            shown = {each.uid for each in claim.status.reserved_for} if claim is not None else set[str]()
            gone = {uid: until for uid, until in leaving.items() if uid not in self._plans and uid not in placed}
            self._leaving[key] = {uid: until for uid, until in gone.items() if uid in shown or until > now}
            if claim is None or not self._leaving[key]:
                del self._leaving[key]
            elif gone.keys() & shown:
                yield without(claim, key, gone.keys() & shown)

    def _rows_for(self, spec: Claims, failure: Failure, bit: int) -> list[int]:
        """Rows that take the pod as far as the filters before this one say, and that this one bars for a reason."""
        text = self.reasons(spec)[bit.bit_length() - 1].text
        places = [place for place, each in enumerate(failure.reasons) if each.plugin == self.name and each.text == text]
        if failure.reason is not None or not places:
            return []
        return [int(row) for row in np.flatnonzero(failure.bits & (1 << places[0]))]

    def _reaches(self, selector: NodeSelector, row: Row) -> bool:
        snapshot = self.handle.snapshot
        labels, name = snapshot.labels.of(row), snapshot.names[row]
        return any(node_term_matches(term, labels, name) for term in selector.node_selector_terms)

    def _kin(self, info: PodInfo) -> set[str]:
        return {uid for plugin in self.handle.peers().values() for uid in plugin.kin(info)}

    def _may_share(self, info: PodInfo, choice: Choice) -> bool:
        """Return whether the claim's devices were chosen for a pod of the same group that is still held."""
        return choice.uid in self.handle.waiting() and choice.uid in self._kin(info)

    def _look_at_shared(self, uid: str, plan: Plan) -> None:
        """Let a pod go on once the claims that another pod wrote show their devices."""
        claims = self.handle.objects(CLAIMS)
        shown = [claims.get(key) for key in plan.shared]
        if any(claim is None for claim in shown):
            self.handle.reject(uid, Reason("a resource claim is gone", plugin=self.name))
        elif all(claim is not None and claim.status.allocation is not None for claim in shown):
            self.handle.allow(uid, self.name)

    def _out_of_reach(self, keys: Iterable[Key], row: Row) -> bool:
        """Return whether the row does not reach devices that were chosen for another pod."""
        chosen, snapshot = self._holdings.chosen, self.handle.snapshot
        labels, name = snapshot.labels.of(row), snapshot.names[row]
        return not all(chosen[key].reached_by(name, labels) for key in keys)

    def _judge(self, spec: Claims, row: Row, uid: str, effort: Effort) -> int:
        snapshot, chosen = self.handle.snapshot, self._holdings.chosen
        if not snapshot.live[row]:
            return 0
        shared = [key for key in spec.uids if key in chosen and chosen[key].uid != uid]
        if not all(self._reaches(selector, row) for selector in spec.allocated) or self._out_of_reach(shared, row):
            return OUT_OF_REACH
        return self._serves(spec, row, uid, effort)

    def _reached_bits(self, spec: Claims, rows_used: int) -> Bits:
        """Rows that claims with devices are out of reach of."""
        live = self.handle.snapshot.live
        return np.array(
            [
                OUT_OF_REACH * (bool(live[row]) and not all(self._reaches(each, row) for each in spec.allocated))
                for row in range(rows_used)
            ],
            dtype=np.int64,
        )

    def _serves(self, spec: Claims, row: Row, uid: str, effort: Effort) -> int:
        """Why the row has no devices for the open claims; 0 when it has."""
        if not spec.open or not self.handle.snapshot.live[row]:
            return 0
        try:
            return 0 if self._given(spec, row, uid, effort) is not None else NO_DEVICES
        except EvaluationError:
            return SELECTOR_FAILED
        except EffortEndedError:
            return UNKNOWN

    def _serves_alike(self, spec: Claims, row: Row, uid: str, effort: Effort, looks: Looks) -> int:
        """The same for claims without choices, looked up where a row of the same likeness was searched."""
        if looks.over:
            return UNKNOWN
        if not self.handle.snapshot.live[row]:
            return 0
        likeness = self._holdings.likeness(self._inventory, self.handle.snapshot.names[row])
        answer = looks.known.get(likeness) if likeness is not None else None
        if answer is None:
            answer = self._serves(spec, row, uid, effort)
            looks.searched += 1
            if likeness is not None and answer != UNKNOWN:
                looks.known[likeness] = answer
        looks.serving += answer == 0
        return answer

    def _given(self, spec: Claims, row: Row, uid: str, effort: Effort) -> dict[Key, Given] | None:
        chosen = self._holdings.chosen
        demands = [each for each in spec.open if each.key not in chosen or chosen[each.key].uid == uid]
        if not demands:
            return {}
        snapshot = self.handle.snapshot
        name = snapshot.names[row]
        if any(demand.requests for demand in demands) and not self._inventory.may_serve(name):
            return None
        offer = self._holdings.offer(self._inventory, name, snapshot.labels.of(row), uid=uid, own=spec.uids)
        return allocate(demands, offer, self._selects, effort)

    def _selects(self, expression: Expression, device: Device) -> bool:
        known = (expression.text, device.content or device.id)
        answer = self._answers.get(known)
        if answer is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            answer = self._answers[known] = expression.selects(device.seen)
        return answer
