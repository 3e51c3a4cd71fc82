"""DynamicResources: devices for a pod's resource claims, chosen before it is bound and written into the claims.

A claim that has its devices limits the nodes; one that has none gets them from the node that is chosen. They are
written with the pod's binding, each claim as it was looked at, and are taken here from the choice until the API server
shows them. Claims that ask for what `scheduler.claims` does not know are refused with what it is: a pod that is bound
before its claims are allocated never starts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from api.kube.claims import DeviceClass, ResourceClaim, ResourceSlice
from api.kube.objects import Node, Pod
from api.kube.selectors import NodeSelector, node_term_matches
from cluster.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Key, merge_patch, strategic_patch
from scheduler.claims.allocation import (
    ClaimDemand,
    Given,
    UnsupportedClaimError,
    allocate,
    allocation_document,
    demand_of,
)
from scheduler.claims.expression import EvaluationError, Expression
from scheduler.claims.inventory import Device, DeviceId, Inventory
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
    Verb,
    Write,
)

CLAIMS = RESOURCE_CLAIMS.of(ResourceClaim)
SLICES = RESOURCE_SLICES.of(ResourceSlice)
CLASSES = DEVICE_CLASSES.of(DeviceClass)

FINALIZER = "resource.kubernetes.io/delete-protection"
MAX_CONSUMERS = 256
"""Consumers of a claim; the API server takes no more."""
OUT_OF_REACH, NO_DEVICES, SELECTOR_FAILED = 1, 2, 4
DOUBT_SECONDS = 60.0
"""Time for which devices stay taken whose writing failed, unless the claim shows that it did not take place."""
MAX_ANSWERS = 65536
"""Answers of selectors that are kept."""


@dataclass(slots=True, eq=False)
class Claims:
    """A class's claims: those with devices and those without."""

    refused: str = ""
    """A reason against every node, empty when there is none."""
    keys: tuple[Key, ...] = ()
    allocated: tuple[NodeSelector, ...] = ()
    """Nodes of claims that have devices, where not all reach them."""
    open: tuple[ClaimDemand, ...] = ()
    own: tuple[Key, ...] = ()
    """Claims that were made for one pod."""
    bits: Bits = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Answers for all rows, good for `state`."""
    state: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Choice:
    """Devices that were chosen for a claim and are not shown by it yet."""

    uid: str
    """Of the pod."""
    devices: frozenset[DeviceId]
    until: float = float("inf")


@dataclass(slots=True, eq=False)
class Plan:
    """A pod between choice and binding."""

    given: dict[Key, Given]
    keys: tuple[Key, ...] = ()
    """All claims of the pod, also those that had their devices before."""
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
        self._held: dict[Key, frozenset[DeviceId]] = {}
        """Devices by the claim that shows them."""
        self._taken: Counter[DeviceId] = Counter()
        self._chosen: dict[Key, Choice] = {}
        self._plans: dict[str, Plan] = {}
        self._leaving: set[tuple[Key, str]] = set()
        """Claims with the UID of a pod of ours that they were reserved for and that did not come to be bound."""
        self._release: dict[Key, tuple[str, str]] = {}
        """Claims to take devices from, each as it was looked at: its version, and the UID of the pod that it bars."""
        self._classes_of: dict[Key, set[PodClass]] = {}
        self._version = 0
        self._answers: dict[tuple[str, DeviceId], bool] = {}

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """Reach depends on names and labels."""
        self._version += 1

    def on_object(self, event: ObjectEvent) -> None:
        """Devices, classes and claims."""
        self._version += 1
        if event.resource.plural == SLICES.plural:
            self._answers.clear()
            if event.action is Action.DELETE:
                self._inventory.drop(event.key)
            else:
                self._inventory.put(event.key, event.after)
        elif event.resource.plural == CLASSES.plural:
            self.handle.invalidate()
        else:
            self._claim_changed(event.key, None if event.action is Action.DELETE else event.after)

    def _claim_changed(self, key: Key, claim: ResourceClaim | None) -> None:
        for device in self._held.pop(key, ()):
            self._taken[device] -= 1
            if not self._taken[device]:
                del self._taken[device]
        allocation = claim.status.allocation if claim is not None else None
        if allocation is not None:
            results = allocation.devices.results
            devices = frozenset((each.driver, each.pool, each.device) for each in results if not each.admin_access)
            self._held[key] = devices
            self._taken.update(devices)
        choice = self._chosen.get(key)
        if choice is not None and (claim is None or allocation is not None or choice.until != float("inf")):
            del self._chosen[key]
        classes = self._classes_of.pop(key, None)
        if classes:
            self.handle.forget(classes)

    # One attempt

    def prepare(self, info: PodInfo) -> Claims | None:
        """Sort the claims by their state; None for pods without any."""
        stated = info.pod.spec.resource_claims
        if not stated:
            return None
        found, own = _claim_keys(info.pod)
        keys = tuple(dict.fromkeys(key for key in found if key is not None))
        for key in keys:
            self._classes_of.setdefault(key, set()).add(info.cls)
        if len(found) < len(stated):
            return Claims("waiting for the pod's resource claims to be created")
        claims = self.handle.objects(CLAIMS)
        allocated: list[NodeSelector] = []
        demands: list[ClaimDemand] = []
        for key in keys:
            claim: ResourceClaim | None = claims.get(key)
            if claim is None:
                return Claims(f'resourceclaim "{key.name}" not found')
            if claim.metadata.deletion_timestamp:
                return Claims(f'resourceclaim "{key.name}" is being deleted')
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
        return Claims("", keys, tuple(allocated), tuple(demands), tuple(own))

    def pre_filter(self, attempt: Attempt, spec: Claims) -> Reason | None:
        """Claims that no node can help."""
        if attempt.pod.stand_in:
            text = "a reservation whose template has resource claims is not supported by this scheduler"
            return Reason(text, resolvable=False)
        if spec.refused:
            return Reason(spec.refused, resolvable=False)
        claims, uid = self.handle.objects(CLAIMS), attempt.pod.uid
        for key in spec.keys:
            claim: ResourceClaim = claims[key]
            owner = claim.metadata.controlled_by
            if key in spec.own and (owner is None or owner.uid != uid) and not attempt.simulated:
                return Reason(f'resourceclaim "{key.name}" was not created for the pod', resolvable=False)
            choice = self._chosen.get(key)
            if choice is not None and choice.uid != uid:
                if choice.uid in self._kin(attempt.pod) and choice.uid in self.handle.waiting():
                    text = f'a gang whose members share resourceclaim "{key.name}" before it has devices'
                    return Reason(f"{text} is not supported by this scheduler", resolvable=False)
                return Reason(f'resourceclaim "{key.name}" is being allocated for another pod', resolvable=False)
            consumers = claim.status.reserved_for
            if len(consumers) >= MAX_CONSUMERS and all(each.uid != uid for each in consumers):
                return Reason(f'resourceclaim "{key.name}" has {MAX_CONSUMERS} consumers', resolvable=False)
        return None

    def reasons(self, spec: Claims) -> tuple[Reason, ...]:
        """Out of reach, too few devices, or a selector that fails."""
        return (
            Reason("node(s) did not reach the devices of a resource claim", resolvable=False),
            Reason("node(s) could not allocate all resource claims"),
            Reason("node(s) with devices on which a claim's selector fails", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: Claims, rows: Rows) -> Bits | None:
        """One bit for the first thing that is wrong with a row."""
        if not spec.open and not spec.allocated:
            return None
        snapshot = attempt.snapshot
        if not isinstance(rows, slice) or rows.stop - rows.start != snapshot.rows_used:
            numbers = np.arange(snapshot.rows_used)[rows]
            return np.array([self._judge(spec, int(row), attempt.pod.uid) for row in numbers], dtype=np.int64)
        state = (self._version, snapshot.rows_used)
        if spec.state != state:
            bits = [self._judge(spec, row, attempt.pod.uid) for row in range(snapshot.rows_used)]
            spec.bits, spec.state = np.array(bits, dtype=np.int64), state
        return spec.bits

    def post_filter(self, attempt: Attempt, spec: Claims, failure: Failure) -> Nomination | None:
        """Devices are given back that alone keep the pod from a node, where nobody else uses the claim."""
        barred = self._barred(spec, failure)
        claims = self.handle.objects(CLAIMS)
        for key in spec.keys if barred else ():
            claim: ResourceClaim | None = claims.get(key)
            if claim is None or claim.status.allocation is None or claim.status.allocation.node_selector is None:
                continue
            selector = claim.status.allocation.node_selector
            if _idle(claim, attempt.pod.uid) and not all(self._reaches(selector, row) for row in barred):
                self._release[key] = (claim.metadata.resource_version, attempt.pod.uid)
        return None

    def permit(self, attempt: Attempt, spec: Claims, row: Row) -> Reason | None:
        """Choose devices for the claims that have none."""
        given = self._given(spec, row, attempt.pod.uid)
        if given is None:
            return Reason("devices were given to another claim meanwhile")
        self._plans[attempt.pod.uid] = Plan(given, spec.keys)
        for key, devices in given.items():
            self._chosen[key] = Choice(attempt.pod.uid, frozenset(device.id for _, device in devices))
            self._version += 1
        return None

    def pre_bind(self, attempt: Attempt, spec: Claims, row: Row) -> Reason | Sequence[Write]:
        """Write devices and consumer into each claim, which holds only for the claim that was looked at."""
        plan = self._plans[attempt.pod.uid]
        plan.sent = True
        claims = self.handle.objects(CLAIMS)
        demands = {demand.key: demand for demand in spec.open}
        writes: list[Write] = []
        for key in spec.keys:
            claim: ResourceClaim | None = claims.get(key)
            if claim is None:
                return Reason(f'resourceclaim "{key.name}" is gone')
            writes += _writes(claim, key, attempt, demands.get(key), plan.given.get(key))
        return writes

    def unreserve(self, attempt: Attempt, spec: Claims, row: Row) -> None:
        """The devices are free again, unless it is unknown whether they were written."""
        if attempt.simulated:
            return
        uid = attempt.pod.uid
        plan = self._plans.pop(uid, None)
        if plan is None:
            return
        for key in plan.given:
            choice = self._chosen.get(key)
            if choice is not None and choice.uid == uid:
                if plan.sent:
                    choice.until = attempt.now + DOUBT_SECONDS
                else:
                    del self._chosen[key]
        if plan.sent:
            self._leaving |= {(key, uid) for key in spec.keys}
        self._version += 1

    def post_bind(self, attempt: Attempt, spec: Claims, row: Row) -> Iterable[Write]:
        """The claims will show their devices."""
        self._plans.pop(attempt.pod.uid, None)
        return ()

    def tick(self, now: float) -> Iterable[Write]:
        """Take pods out of claims that did not come to be bound, and devices from claims that nobody uses."""
        for key in [key for key, choice in self._chosen.items() if choice.until <= now]:
            del self._chosen[key]
            self._version += 1
        claims, writes = self.handle.objects(CLAIMS), list[Write]()
        for key, uid in list(self._leaving):
            claim: ResourceClaim | None = claims.get(key)
            if claim is None or uid in self._plans or uid in self.handle.snapshot.pods:
                self._leaving.discard((key, uid))
            elif any(each.uid == uid for each in claim.status.reserved_for):
                writes.append(_without(claim, key, uid))
        release, self._release = self._release, {}
        in_use = {key for plan in self._plans.values() for key in plan.keys} if release else set()
        for key, (version, uid) in release.items():
            claim = claims.get(key)
            if claim is None or claim.metadata.resource_version != version or key in in_use or not _idle(claim, uid):
                continue
            body = {"metadata": _as_seen(claim), "status": {"allocation": None, "reservedFor": None}}
            writes.append(Write(Verb.PATCH_STATUS, CLAIMS, key, merge_patch(body), repeat=False))
        return writes

    # Internals

    def _barred(self, spec: Claims, failure: Failure) -> list[int]:
        """Rows that take the pod as far as the filters before this one say, and that its claims' devices are not on."""
        text = self.reasons(spec)[0].text
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

    def _judge(self, spec: Claims, row: Row, uid: str) -> int:
        snapshot = self.handle.snapshot
        if not snapshot.live[row]:
            return 0
        if not all(self._reaches(selector, row) for selector in spec.allocated):
            return OUT_OF_REACH
        if not spec.open:
            return 0
        try:
            return 0 if self._given(spec, row, uid) is not None else NO_DEVICES
        except EvaluationError:
            return SELECTOR_FAILED

    def _given(self, spec: Claims, row: Row, uid: str) -> dict[Key, Given] | None:
        if not spec.open:
            return {}
        snapshot = self.handle.snapshot
        name = snapshot.names[row]
        wanted = any(demand.demands for demand in spec.open)
        if wanted and not self._inventory.may_serve(name):
            return None
        devices = self._inventory.on(name, snapshot.labels.of(row))
        taken = {device.id for device in devices if device.id in self._taken}
        for key, choice in self._chosen.items():
            if choice.uid != uid or key not in spec.keys:
                taken |= choice.devices
        return allocate(spec.open, devices, taken, self._selects)

    def _selects(self, expression: Expression, device: Device) -> bool:
        known = (expression.text, device.id)
        answer = self._answers.get(known)
        if answer is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            answer = self._answers[known] = expression.selects(device.seen)
        return answer


def _claim_keys(pod: Pod) -> tuple[list[Key | None], list[Key]]:
    """Claims of the pod as far as they are known (None: none is needed), and those of them that were made for it."""
    namespace = pod.metadata.namespace
    made = {status.get("name"): status for status in pod.status.resource_claim_statuses}
    found: list[Key | None] = []
    own: list[Key] = []
    for stated in pod.spec.resource_claims:
        if stated.get("resourceClaimName"):
            found.append(Key(namespace, stated["resourceClaimName"]))
        elif stated.get("name") in made:
            name = made[stated["name"]].get("resourceClaimName")
            found.append(Key(namespace, name) if name else None)
            own += [Key(namespace, name)] if name else []
    return found, own


def _writes(
    claim: ResourceClaim, key: Key, attempt: Attempt, demand: ClaimDemand | None, given: Given | None
) -> Iterable[Write]:
    """Status first: it holds only for the claim as it was looked at, and a finalizer would make that another.

    The finalizer is merged by the API server with those that were added meanwhile.
    """
    info = attempt.pod
    status: dict[str, object] = {}
    if demand is not None and given is not None:
        status["allocation"] = allocation_document(demand, given, attempt.now)
    if all(each.uid != info.uid for each in claim.status.reserved_for):
        consumer = {"resource": "pods", "name": info.pod.metadata.name, "uid": info.uid}
        status["reservedFor"] = [*_consumers(claim), consumer]
    if status:
        body = {"metadata": _as_seen(claim), "status": status}
        yield Write(Verb.PATCH_STATUS, CLAIMS, key, merge_patch(body), repeat=False)
    if FINALIZER not in claim.metadata.finalizers:
        meta = {"uid": claim.metadata.uid, "finalizers": [FINALIZER]}
        yield Write(Verb.PATCH, CLAIMS, key, strategic_patch({"metadata": meta}), repeat=False)


def _without(claim: ResourceClaim, key: Key, uid: str) -> Write:
    left = [each for each in _consumers(claim) if each["uid"] != uid]
    body: Mapping[str, object] = {"metadata": _as_seen(claim), "status": {"reservedFor": left or None}}
    return Write(Verb.PATCH_STATUS, CLAIMS, key, merge_patch(body), repeat=False)


def _consumers(claim: ResourceClaim) -> list[dict[str, str]]:
    return [
        {
            **({"apiGroup": each.api_group} if each.api_group else {}),
            "resource": each.resource,
            "name": each.name,
            "uid": each.uid,
        }
        for each in claim.status.reserved_for
    ]


def _idle(claim: ResourceClaim, uid: str) -> bool:
    """Return whether no other pod may use the claim."""
    return all(each.uid == uid for each in claim.status.reserved_for)


def _as_seen(claim: ResourceClaim) -> dict[str, str]:
    meta = claim.metadata
    seen = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {name: value for name, value in seen.items() if value}
