"""The first devices, in the order of claims, requests, alternatives and devices, that serve all claims of a pod.

A search with backtracking, as kube-scheduler's: claim after claim, request after request, device after device, and back
where there is none. Devices of one request are tried in their order alone. The search ends after a number of steps.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.claims.capacity import consumption
from scheduler.claims.demand import MAX_DEVICES, ClaimDemand, Constraint, Demand
from scheduler.claims.expression import Expression
from scheduler.claims.inventory import CounterId, Device, DeviceId, PoolId
from scheduler.claims.selectable import Version

Selects = Callable[[Expression, Device], bool]


class SearchEndedError(Exception):
    """The search took too many steps; whether there is an answer is not known."""


@dataclass(slots=True)
class Steps:
    """Steps that are left: one for each device that is looked at, and one for each place that is reached."""

    left: int

    def take(self, count: int = 1) -> None:
        """Take steps. Raises SearchEndedError when they do not suffice."""
        self.left -= count
        if self.left < 0:
            raise SearchEndedError


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A device for a request: whole, or the part of it that is consumed."""

    demand: Demand
    device: Device
    consumed: Mapping[str, int] | None = None
    """Amounts, in thousandths, of a device that several claims may use; None for one that is given whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """Devices that a node reaches, and what of them is left."""

    devices: Sequence[Device]
    taken: Collection[DeviceId] = ()
    """Devices that are given whole."""
    counters: Mapping[PoolId, Mapping[CounterId, int]] = field(default_factory=dict)
    """Amounts of counters that are left."""
    shares: Mapping[DeviceId, Mapping[str, int]] = field(default_factory=dict)
    """Amounts that claims consume of devices that several may use."""
    settled: bool = True
    """False while a pool is incomplete: it is not known what "all" devices are."""


@dataclass(frozen=True, slots=True)
class _At:
    """A place in the search."""

    claim: int
    request: int = 0
    option: int = -1
    """Alternative of the request; -1 before it is chosen."""
    unit: int = 0
    """Device of the request."""
    start: int = 0
    """First device to try."""


class Search:
    """One search on one node."""

    def __init__(self, claims: Sequence[ClaimDemand], offer: Offer, selects: Selects) -> None:
        self._claims = claims
        self._offer = offer
        self._selects = selects
        self._given: list[list[Share]] = [[] for _ in claims]
        self._whole: dict[DeviceId, list[int]] = {}
        """Claims of this search that a device is given to whole."""
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._counters: dict[PoolId, dict[CounterId, int]] = {}
        self._meant: dict[tuple[int, int], bool] = {}
        self._all: dict[int, list[Device]] = {}
        self._least: list[list[int]] = []
        """Devices that the requests of each claim from one on need at least."""

    def run(self, steps: Steps) -> list[list[Share]] | None:
        """Return each claim's devices, None where there are none that serve all.

        Raises EvaluationError where a selector fails, SearchEndedError when the steps do not suffice.
        """
        for claim in self._claims:
            for demand in (demand for options in claim.requests for demand in options if demand.count == 0):
                if not self._offer.settled:
                    return None
                steps.take(len(self._offer.devices))
                self._all[id(demand)] = [
                    device
                    for device in self._offer.devices
                    if self._means(demand, device) and self._consumption(demand, device) is not None
                ]
        if not self._claims:
            return []
        self._least = [self._least_from(claim) for claim in self._claims]
        path = [self._moves(_At(0), steps)]
        while path:
            reached = next(path[-1], None)
            if reached is None:
                path.pop()
                continue
            if reached.claim == len(self._claims):
                return self._given
            steps.take()
            path.append(self._moves(reached, steps))
        return None

    def _moves(self, at: _At, steps: Steps) -> Iterator[_At]:
        """The places that can be reached from one, each undone before the next."""
        claim = self._claims[at.claim]
        if at.request == len(claim.requests):
            yield _At(at.claim + 1)
            return
        if at.option < 0:
            for option in range(len(claim.requests[at.request])):
                yield _At(at.claim, at.request, option)
            return
        demand = claim.requests[at.request][at.option]
        every, count = self._all.get(id(demand)), self._count(demand)
        if count == 0:
            return
        if at.unit == count:
            yield _At(at.claim, at.request + 1)
            return
        given = self._given[at.claim]
        if len(given) + count - at.unit + self._least[at.claim][at.request + 1] > MAX_DEVICES:
            return
        devices = self._offer.devices if every is None else every[: at.unit + 1]
        for place in range(at.start if every is None else at.unit, len(devices)):
            steps.take()
            device = devices[place]
            if not self._is_free(at.claim, demand, device) or not self._means(demand, device):
                continue
            consumed = self._consumption(demand, device)
            if consumed is None or not self._may_be_given(claim, given, demand, device):
                continue
            given.append(Share(demand, device, consumed if device.shareable else None))
            self._take(at.claim, device, consumed, 1)
            yield _At(at.claim, at.request, at.option, at.unit + 1, place + 1)
            self._take(at.claim, device, consumed, -1)
            given.pop()

    def _count(self, demand: Demand) -> int:
        every = self._all.get(id(demand))
        return demand.count if every is None else len(every)

    def _least_from(self, claim: ClaimDemand) -> list[int]:
        found = [0]
        for options in reversed(claim.requests):
            found.append(found[-1] + min((self._count(option) for option in options), default=0))
        return found[::-1]

    def _is_free(self, claim: int, demand: Demand, device: Device) -> bool:
        users = self._whole.get(device.id)
        if demand.admin:
            return device.shareable or not users or claim not in users
        return device.id not in self._offer.taken and not users

    def _means(self, demand: Demand, device: Device) -> bool:
        known = (id(demand), id(device))
        answer = self._meant.get(known)
        if answer is None:
            answer = self._meant[known] = all(self._selects(each, device) for each in demand.selectors)
        return answer

    def _consumption(self, demand: Demand, device: Device) -> Mapping[str, int] | None:
        """What the request consumes of the device's capacity; None when that is not left."""
        if not device.capacities:
            return None if demand.capacity else {}
        used = dict(self._offer.shares.get(device.id, ()))
        for name, consumed in self._consumed.get(device.id, {}).items():
            used[name] = used.get(name, 0) + consumed
        return consumption(device.capacities, demand.capacity, used)

    def _may_be_given(self, claim: ClaimDemand, given: Sequence[Share], demand: Demand, device: Device) -> bool:
        return (
            demand.tolerates(device)
            and self._has_counters(device)
            and all(_keeps(rule, given, device) for rule in claim.constraints if rule.concerns(demand))
        )

    def _has_counters(self, device: Device) -> bool:
        """Return whether no counter of the pool is exceeded with the device, also those that it does not consume.

        kube-scheduler asks them all: a pool that is overdrawn, its driver having taken back amounts, gives nothing.
        """
        if not device.consumes or self._is_shared_already(device):
            return True
        used = dict(self._counters.get(device.pool, {}))
        for counter, consumed in device.consumes:
            used[counter] = used.get(counter, 0) + consumed
        left = self._offer.counters.get(device.pool, {})
        return all(used.get(counter, 0) <= amount for counter, amount in left.items())

    def _is_shared_already(self, device: Device) -> bool:
        return device.shareable and (device.id in self._offer.shares or device.id in self._consumed)

    def _take(self, claim: int, device: Device, consumed: Mapping[str, int], sign: int) -> None:
        """Take the device for the claim, or give it back."""
        if device.shareable:
            if sign > 0:
                counted = not self._is_shared_already(device)
                used = self._consumed.setdefault(device.id, {})
            else:
                used = self._consumed[device.id]
                counted = False
            for name, share in consumed.items():
                used[name] = used.get(name, 0) + sign * share
            users = self._uses(device, sign)
            if sign < 0 and not users:
                del self._consumed[device.id]
                counted = device.id not in self._offer.shares
        else:
            claims = self._whole.setdefault(device.id, [])
            if sign > 0:
                claims.append(claim)
            else:
                claims.remove(claim)
            counted = True
        if counted:
            counters = self._counters.setdefault(device.pool, {})
            for counter, amount in device.consumes:
                counters[counter] = counters.get(counter, 0) + sign * amount

    def _uses(self, device: Device, sign: int) -> int:
        """Uses of a shared device that are left in this search, `sign` of them just begun or ended."""
        total = sum(share.device is device for shares in self._given for share in shares)
        return total if sign > 0 else total - 1


def value_of(device: Device, constraint: Constraint) -> tuple[str, Any] | None:
    """The attribute's value and kind: 1 and true are not alike. None where the device has none."""
    value = device.seen.attributes.get(constraint.domain, {}).get(constraint.name)
    return None if value is None else (type(value).__name__, value.order if isinstance(value, Version) else value)


def _keeps(constraint: Constraint, given: Sequence[Share], device: Device) -> bool:
    value = value_of(device, constraint)
    if value is None:
        return False
    others = (value_of(share.device, constraint) for share in given if constraint.concerns(share.demand))
    if constraint.distinct:
        return all(other != value for other in others)
    return next((other == value for other in others), True)
