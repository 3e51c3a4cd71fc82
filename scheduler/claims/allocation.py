"""Devices for claims: what a claim asks for, which devices serve it, and how that is written.

Each request asks for a number of whole devices of one class, or for all that it selects; constraints ask for devices
with one value of an attribute. Whether a node can serve all claims of a pod is decided exactly (a matching of requests
with devices for each choice of those values).
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.kube.claims import DeviceClass, ResourceClaim
from api.kube.times import rfc3339
from cluster.resources import Key
from scheduler.claims.expression import Expression, ExpressionError, Version, compiled
from scheduler.claims.inventory import Device, DeviceId

MAX_DEVICES = 32
"""Devices of a claim; the API server takes no more."""
MAX_CHOICES = 256
"""Choices of values for constraints that are tried on a node; a claim with more is not served there."""


class UnsupportedClaimError(Exception):
    """A claim that is not served here; the message says what it asks for."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A request of a claim; `count` 0 asks for every device that it selects."""

    request: str
    count: int
    selectors: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alike:
    """Devices of these requests have one value of the attribute `domain`/`name`."""

    domain: str
    name: str
    requests: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class ClaimDemand:
    """What a claim that is not allocated asks for."""

    key: Key
    claim: ResourceClaim
    demands: tuple[Demand, ...]
    alike: tuple[Alike, ...]
    config: tuple[dict[str, Any], ...]
    """Parameters for the drivers, as the allocation repeats them."""


Given = list[tuple[str, Device]]
"""Request and device, for each device of a claim."""

Selects = Callable[[Expression, Device], bool]


def demand_of(claim: ResourceClaim, classes: Mapping[Key, DeviceClass]) -> ClaimDemand:
    """Return what the claim asks for.

    Raises UnsupportedClaimError for what is not served, LookupError for a class that is not there.
    """
    name, spec = claim.metadata.name, claim.spec.devices
    demands: list[Demand] = []
    config: list[dict[str, Any]] = []
    for request in spec.requests:
        demand, chosen = _demand(name, request, classes)
        demands.append(demand)
        config += [{**entry, "source": "FromClass", "requests": [demand.request]} for entry in chosen.spec.config]
    config += [{**entry, "source": "FromClaim"} for entry in spec.config]
    if sum(demand.count for demand in demands) > MAX_DEVICES:
        raise UnsupportedClaimError(f"claim {name} asks for more than {MAX_DEVICES} devices")
    names = frozenset(demand.request for demand in demands)
    alike = tuple(_alike(name, constraint, names) for constraint in spec.constraints)
    return ClaimDemand(Key(claim.metadata.namespace, name), claim, tuple(demands), alike, tuple(config))


def _demand(name: str, request: Mapping[str, Any], classes: Mapping[Key, DeviceClass]) -> tuple[Demand, DeviceClass]:
    where = f"claim {name}, request {request.get('name')}"
    _only(request, {"name", "exactly"}, where)
    exactly = request.get("exactly") or {}
    stated = {key: value for key, value in exactly.items() if value not in (None, False, [], {})}
    _only(stated, {"deviceClassName", "selectors", "allocationMode", "count"}, where)
    chosen = classes.get(Key("", str(stated.get("deviceClassName", ""))))
    if chosen is None:
        raise LookupError(f"{where}: no device class {stated.get('deviceClassName')}")
    mode = stated.get("allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        raise UnsupportedClaimError(f"{where}: allocationMode {mode}")
    try:
        selectors = tuple(_selectors([*chosen.spec.selectors, *stated.get("selectors", [])], where))
    except ExpressionError as error:
        raise UnsupportedClaimError(f"{where}: selector: {error}") from error
    count = 0 if mode == "All" else int(stated.get("count", 1))
    return Demand(str(request.get("name")), count, selectors), chosen


def _selectors(stated: Iterable[Mapping[str, Any]], where: str) -> Iterable[Expression]:
    for selector in stated:
        _only(selector, {"cel"}, where)
        yield compiled(str(selector["cel"].get("expression", "")))


def _alike(name: str, constraint: Mapping[str, Any], names: frozenset[str]) -> Alike:
    _only(constraint, {"requests", "matchAttribute"}, f"claim {name}, constraint")
    domain, _, plain = str(constraint.get("matchAttribute", "")).partition("/")
    return Alike(domain, plain, frozenset(constraint.get("requests") or names))


def _only(document: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(document.keys() - known)
    if unknown:
        raise UnsupportedClaimError(f"{where}: {', '.join(unknown)}")


def allocate(
    claims: Sequence[ClaimDemand], devices: Sequence[Device], taken: Collection[DeviceId], selects: Selects
) -> dict[Key, Given] | None:
    """Return devices for every claim out of those that are not taken; None when they do not suffice.

    Raises EvaluationError where a selector fails on a device.
    """
    given: dict[Key, Given] = {}
    used = set(taken)
    slots: list[tuple[ClaimDemand, Demand, list[Device]]] = []
    for claim in claims:
        given[claim.key] = []
        for demand in claim.demands:
            meant = [device for device in devices if all(selects(each, device) for each in demand.selectors)]
            if demand.count == 0:
                if not meant or any(device.id in used for device in meant) or len(meant) > MAX_DEVICES:
                    return None
                given[claim.key] += [(demand.request, device) for device in meant]
                used |= {device.id for device in meant}
            slots.append((claim, demand, meant))
    choices = [_values(claim, alike, slots) for claim in claims for alike in claim.alike]
    rules = [(claim, alike) for claim in claims for alike in claim.alike]
    for values in itertools.islice(itertools.product(*choices), MAX_CHOICES):
        chosen = _matched(slots, used, list(zip(rules, values, strict=True)))
        if chosen is not None:
            for claim, request, device in chosen:
                given[claim.key].append((request, device))
            return given
    return None


def _values(claim: ClaimDemand, alike: Alike, slots: Sequence[tuple[ClaimDemand, Demand, list[Device]]]) -> list[Any]:
    """Values of the attribute among the devices that its requests select, in the devices' order."""
    found = [
        _value(device, alike)
        for owner, demand, meant in slots
        if owner is claim and demand.request in alike.requests
        for device in meant
    ]
    return [value for value in dict.fromkeys(found) if value is not None]


def _value(device: Device, alike: Alike) -> tuple[str, Any] | None:
    """The attribute's value and kind: 1 and true are not alike."""
    value = device.seen.attributes.get(alike.domain, {}).get(alike.name)
    return None if value is None else (type(value).__name__, value.order if isinstance(value, Version) else value)


def _matched(
    slots: Sequence[tuple[ClaimDemand, Demand, list[Device]]],
    used: Collection[DeviceId],
    rules: Sequence[tuple[tuple[ClaimDemand, Alike], Any]],
) -> list[tuple[ClaimDemand, str, Device]] | None:
    """A device for each unit of the requests that keep the rules, by augmenting paths."""
    units: list[tuple[ClaimDemand, Demand, list[Device]]] = []
    for claim, demand, meant in slots:
        bound = [
            (alike, value) for (owner, alike), value in rules if owner is claim and demand.request in alike.requests
        ]
        fitting = [device for device in meant if all(_value(device, alike) == value for alike, value in bound)]
        if demand.count == 0:
            if len(fitting) != len(meant):
                return None
            continue
        free = [device for device in fitting if device.id not in used]
        units += [(claim, demand, free)] * demand.count
    holder: dict[DeviceId, int] = {}
    held: dict[int, Device] = {}

    def place(unit: int, tried: set[DeviceId]) -> bool:
        # One that is not held goes before moving others.
        for device in sorted(units[unit][2], key=lambda device: device.id in holder):
            if device.id in tried:
                continue
            tried.add(device.id)
            if device.id not in holder or place(holder[device.id], tried):
                holder[device.id], held[unit] = unit, device
                return True
        return False

    if not all(place(unit, set()) for unit in range(len(units))):
        return None
    return [(claim, demand.request, held[unit]) for unit, (claim, demand, _) in enumerate(units)]


def allocation_document(demand: ClaimDemand, given: Given, now: float) -> dict[str, Any]:
    """Return `status.allocation`: devices, parameters, time, and the nodes that reach all of the devices.

    `now` is in seconds since the epoch. Without a time kube-scheduler cannot add pods to the claim: it writes one, and
    an allocation does not change.
    """
    results = [
        {"request": request, "driver": device.id[0], "pool": device.id[1], "device": device.id[2]}
        for request, device in given
    ]
    document: dict[str, Any] = {"devices": {"results": results}, "allocationTimestamp": rfc3339(now)}
    drivers = {device.id[0] for _, device in given}
    config = [entry for entry in demand.config if (entry.get("opaque") or {}).get("driver") in drivers]
    if config:
        document["devices"]["config"] = config
    term = _reaching([device for _, device in given])
    if term:
        document["nodeSelector"] = {"nodeSelectorTerms": [term]}
    return document


def _reaching(devices: Iterable[Device]) -> dict[str, Any]:
    """The node of a device that is on one; otherwise what the devices' selectors, of one term each, ask together."""
    term: dict[str, list[Any]] = {}
    for device in devices:
        if device.node_name:
            return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [device.node_name]}]}
        for each in device.node_selector.node_selector_terms if device.node_selector is not None else ():
            for key, requirements in (("matchExpressions", each.match_expressions), ("matchFields", each.match_fields)):
                for requirement in msgspec.to_builtins(requirements):
                    if requirement not in term.setdefault(key, []):
                        term[key].append(requirement)
    return {key: requirements for key, requirements in term.items() if requirements}
