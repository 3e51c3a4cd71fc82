"""What resource claims ask for: requests, alternatives in order of preference, and constraints on their devices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.kube.claims import DeviceClass, ResourceClaim
from api.kube.objects import Pod
from cluster.resources import Key
from scheduler.claims.capacity import amount
from scheduler.claims.expression import Expression, compiled
from scheduler.claims.inventory import Device, DeviceTaint
from scheduler.claims.tokens import ExpressionError

MAX_DEVICES = 32
"""Devices of a claim; the API server takes no more."""


class UnsupportedClaimError(Exception):
    """A claim that is not served here; the message says what it asks for."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A request of a claim, or one alternative of it; `count` 0 asks for every device that it selects."""

    request: str
    """`request`, or `request/alternative`."""
    count: int
    selectors: tuple[Expression, ...]
    class_name: str = ""
    admin: bool = False
    """The devices may be in use, and stay free for others."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    """Amounts, in thousandths, of devices that several claims may use."""

    @property
    def parent(self) -> str:
        """The request that it is an alternative of, or itself."""
        return self.request.partition("/")[0]

    def tolerates(self, device: Device) -> bool:
        """Return whether no taint keeps the request away from the device."""
        return not device.taints or all(
            any(_tolerates(each, taint) for each in self.tolerations) for taint in device.taints
        )


@dataclass(frozen=True, slots=True)
class Constraint:
    """Devices of these requests have one value of the attribute `domain`/`name`, or each another one."""

    domain: str
    name: str
    requests: frozenset[str]
    """Requests or alternatives; empty are all."""
    distinct: bool = False

    def concerns(self, demand: Demand) -> bool:
        """Return whether devices of the request must keep it."""
        return not self.requests or demand.request in self.requests or demand.parent in self.requests


@dataclass(frozen=True, slots=True, eq=False)
class ClaimDemand:
    """What a claim that is not allocated asks for."""

    key: Key
    claim: ResourceClaim
    requests: tuple[tuple[Demand, ...], ...]
    """For each request its alternatives, the preferred first."""
    constraints: tuple[Constraint, ...] = ()
    class_config: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    """Parameters for the drivers that classes of the requests state."""

    @property
    def plain(self) -> bool:
        """Every request has one form and devices of its own, and constraints ask for what is alike."""
        only = all(len(options) == 1 and not options[0].admin for options in self.requests)
        return only and not any(constraint.distinct for constraint in self.constraints)


def demand_of(claim: ResourceClaim, classes: Mapping[Key, DeviceClass]) -> ClaimDemand:
    """Return what the claim asks for.

    Raises UnsupportedClaimError for what is not served, LookupError for a class that is not there, and AttributeError,
    TypeError or ValueError for what is no claim.
    """
    name, spec = claim.metadata.name, claim.spec.devices
    requests = tuple(tuple(_options(name, request, classes)) for request in spec.requests)
    least = sum(min((option.count for option in options), default=0) for options in requests)
    if least > MAX_DEVICES:
        raise UnsupportedClaimError(f"claim {name} asks for more than {MAX_DEVICES} devices")
    config = {
        option.class_name: tuple(classes[Key("", option.class_name)].spec.config)
        for options in requests
        for option in options
    }
    constraints = tuple(_constraint(name, constraint) for constraint in spec.constraints)
    return ClaimDemand(Key(claim.metadata.namespace, name), claim, requests, constraints, config)


def claim_keys(pod: Pod) -> tuple[list[Key | None], list[Key]]:
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


def _options(name: str, request: Mapping[str, Any], classes: Mapping[Key, DeviceClass]) -> Iterable[Demand]:
    label = str(request.get("name"))
    where = f"claim {name}, request {label}"
    _only(request, {"name", "exactly", "firstAvailable"}, where)
    alternatives = request.get("firstAvailable") or ()
    for each in alternatives:
        stated = {key: value for key, value in each.items() if key != "name"}
        yield _demand(f"{label}/{each['name']}", stated, classes, f"{where}/{each['name']}")
    if not alternatives:
        yield _demand(label, request.get("exactly") or {}, classes, where)


def _demand(label: str, request: Mapping[str, Any], classes: Mapping[Key, DeviceClass], where: str) -> Demand:
    stated = {key: value for key, value in request.items() if value not in (None, False, [], {})}
    known = {"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"}
    _only(stated, known, where)
    class_name = str(stated.get("deviceClassName", ""))
    chosen = classes.get(Key("", class_name))
    if chosen is None:
        raise LookupError(f"{where}: no device class {class_name}")
    mode = stated.get("allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        raise UnsupportedClaimError(f"{where}: allocationMode {mode}")
    try:
        selectors = tuple(_selectors([*chosen.spec.selectors, *stated.get("selectors", [])], where))
    except ExpressionError as error:
        raise UnsupportedClaimError(f"{where}: selector: {error}") from error
    capacity = stated.get("capacity", {})
    _only(capacity, {"requests"}, where)
    return Demand(
        label,
        0 if mode == "All" else max(int(stated.get("count", 1)), 1),
        selectors,
        class_name,
        stated.get("adminAccess") is True,
        tuple(dict(each) for each in stated.get("tolerations", ())),
        {key: amount(value) for key, value in (capacity.get("requests") or {}).items()},
    )


def _selectors(stated: Iterable[Mapping[str, Any]], where: str) -> Iterable[Expression]:
    for selector in stated:
        _only(selector, {"cel"}, where)
        if not selector:
            raise UnsupportedClaimError(f"{where}: a selector without an expression")
        yield compiled(str(selector["cel"].get("expression", "")))


def _constraint(name: str, constraint: Mapping[str, Any]) -> Constraint:
    _only(constraint, {"requests", "matchAttribute", "distinctAttribute"}, f"claim {name}, constraint")
    distinct = "distinctAttribute" in constraint
    attribute = constraint.get("distinctAttribute" if distinct else "matchAttribute")
    if not attribute:
        raise UnsupportedClaimError(f"claim {name}: a constraint without an attribute")
    domain, _, plain = str(attribute).partition("/")
    return Constraint(domain, plain, frozenset(constraint.get("requests") or ()), distinct)


def _only(document: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(document.keys() - known)
    if unknown:
        raise UnsupportedClaimError(f"{where}: {', '.join(unknown)}")


def _tolerates(toleration: Mapping[str, Any], taint: DeviceTaint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (operator == "Equal" and (toleration.get("value") or "") == taint.value)
