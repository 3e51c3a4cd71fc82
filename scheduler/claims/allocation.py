"""Devices for claims: which devices of a node serve them, and how that is written.

The search gives the devices that kube-scheduler would give. Where it ends without an answer, requests of one form for
whole devices are still decided (a matching of requests with devices for each choice of values of constraints).
"""

import itertools
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from api.kube.times import rfc3339
from cluster.resources import Key
from scheduler.claims.capacity import amount_text
from scheduler.claims.demand import MAX_DEVICES, ClaimDemand, Constraint, Demand
from scheduler.claims.inventory import Device, DeviceId
from scheduler.claims.search import Offer, Search, SearchEndedError, Selects, Share, Steps, value_of

MAX_STEPS = 8192
"""Steps of the search on a node, beside a look at every device for each device that is asked for, and as many of the
matching; a claim that takes more of both is not served there."""
FREE_STEPS = 512
"""Steps on every node, which most claims do not exceed."""
MAX_STEPS_OF_ATTEMPT = 200_000
"""Steps beyond these on all nodes of one attempt together."""
MAX_CHOICES = 256
"""Choices of values for constraints that the matching tries on a node."""

Given = list[Share]
"""The devices of a claim."""


class EffortEndedError(Exception):
    """The steps of the attempt did not suffice for the node; another attempt may find devices there."""


@dataclass(slots=True)
class Effort:
    """Steps beyond the free ones that are left to one attempt."""

    steps: int = MAX_STEPS_OF_ATTEMPT

    @contextmanager
    def lent(self, most: int, free: int = 0) -> Iterator[Steps]:
        """Steps for one node, at most so many beside free ones.

        Raises SearchEndedError when they do not suffice, EffortEndedError when that is for want of what is left here.
        """
        more = min(most, self.steps)
        steps = Steps(free + more)
        try:
            yield steps
        except SearchEndedError as error:
            if more < most:
                raise EffortEndedError from error
            raise
        finally:
            self.steps -= more - min(max(steps.left, 0), more)


def allocate(
    claims: Sequence[ClaimDemand], offer: Offer, selects: Selects, effort: Effort | None = None
) -> dict[Key, Given] | None:
    """Return devices for every claim out of those that are offered; None when they do not suffice.

    Raises EvaluationError where a selector fails on a device, EffortEndedError when the attempt has too few steps left.
    """
    effort = effort or Effort()
    asked = sum(
        max((option.count for option in options), default=0) or 1 for each in claims for options in each.requests
    )
    most = min(MAX_STEPS + asked * len(offer.devices), MAX_STEPS_OF_ATTEMPT // 2)
    try:
        with effort.lent(most, FREE_STEPS) as steps:
            found = Search(claims, offer, selects).run(steps)
    except SearchEndedError:
        plain = all(claim.plain for claim in claims)
        if not plain or any(device.consumes or device.capacities for device in offer.devices):
            return None
        try:
            with effort.lent(most) as steps:
                return _by_matching(claims, offer, selects, steps)
        except SearchEndedError:
            return None
    return None if found is None else {claim.key: given for claim, given in zip(claims, found, strict=True)}


Slot = tuple[ClaimDemand, Demand, list[Device]]
"""A request with the devices that it may be given."""


def _by_matching(
    claims: Sequence[ClaimDemand], offer: Offer, selects: Selects, steps: Steps
) -> dict[Key, Given] | None:
    given: dict[Key, Given] = {}
    used = set(offer.taken)
    slots: list[Slot] = []
    for claim in claims:
        given[claim.key] = []
        for (demand,) in claim.requests:
            steps.take(len(offer.devices))
            meant = [device for device in offer.devices if all(selects(each, device) for each in demand.selectors)]
            if demand.count == 0:
                barred = any(device.id in used or not demand.tolerates(device) for device in meant)
                if not offer.settled or not meant or barred or len(meant) > MAX_DEVICES:
                    return None
                given[claim.key] += [Share(demand, device) for device in meant]
                used |= {device.id for device in meant}
            slots.append((claim, demand, [device for device in meant if demand.tolerates(device)]))
    choices = [_values(claim, rule, slots) for claim in claims for rule in claim.constraints]
    rules = [(claim, rule) for claim in claims for rule in claim.constraints]
    for values in itertools.islice(itertools.product(*choices), MAX_CHOICES):
        chosen = _matched(slots, used, list(zip(rules, values, strict=True)), steps)
        if chosen is not None:
            for claim, share in chosen:
                given[claim.key].append(share)
            return given
    return None


def _values(claim: ClaimDemand, rule: Constraint, slots: Sequence[Slot]) -> list[Any]:
    """Values of the attribute among the devices that its requests select, in the devices' order."""
    found = [
        value_of(device, rule)
        for owner, demand, meant in slots
        if owner is claim and rule.concerns(demand)
        for device in meant
    ]
    return [value for value in dict.fromkeys(found) if value is not None]


def _matched(
    slots: Sequence[Slot],
    used: Collection[DeviceId],
    rules: Sequence[tuple[tuple[ClaimDemand, Constraint], Any]],
    steps: Steps,
) -> list[tuple[ClaimDemand, Share]] | None:
    """A device for each unit of the requests that keep the rules, by augmenting paths."""
    units: list[Slot] = []
    for claim, demand, meant in slots:
        steps.take(len(meant))
        bound = [(rule, value) for (owner, rule), value in rules if owner is claim and rule.concerns(demand)]
        fitting = [device for device in meant if all(value_of(device, rule) == value for rule, value in bound)]
        if demand.count == 0:
            if len(fitting) != len(meant):
                return None
            continue
        free = [device for device in fitting if device.id not in used]
        units += [(claim, demand, free)] * demand.count
    holder: dict[DeviceId, int] = {}
    held: dict[int, Device] = {}

    def place(unit: int, tried: set[DeviceId]) -> bool:
        steps.take(len(units[unit][2]))
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
    return [(claim, Share(demand, held[unit])) for unit, (claim, demand, _) in enumerate(units)]


def allocation_document(demand: ClaimDemand, given: Given, now: float) -> dict[str, Any]:
    """Return `status.allocation`: devices, parameters, time, and the nodes that reach all of the devices.

    `now` is in seconds since the epoch. Without a time kube-scheduler cannot add pods to the claim: it writes one, and
    an allocation does not change.
    """
    devices: dict[str, Any] = {"results": [_result(share) for share in given]}
    config = list(_config(demand, given))
    if config:
        devices["config"] = config
    document: dict[str, Any] = {"devices": devices, "allocationTimestamp": rfc3339(now)}
    term = _reaching([share.device for share in given])
    if term:
        document["nodeSelector"] = {"nodeSelectorTerms": [term]}
    return document


def _result(share: Share) -> dict[str, Any]:
    driver, pool, name = share.device.id
    result: dict[str, Any] = {"request": share.demand.request, "driver": driver, "pool": pool, "device": name}
    if share.demand.admin:
        result["adminAccess"] = True
    if share.demand.tolerations:
        result["tolerations"] = [dict(each) for each in share.demand.tolerations]
    if share.consumed is not None:
        result["shareID"] = str(uuid.uuid4())
        if share.consumed:
            result["consumedCapacity"] = {name: amount_text(amount) for name, amount in share.consumed.items()}
    return result


def _config(demand: ClaimDemand, given: Given) -> Iterable[dict[str, Any]]:
    """Parameters of the classes, each once with all its requests, then those of the claim that concern a request."""
    served = {share.demand.request for share in given}
    chosen = [
        next((option for option in options if option.request in served), options[0]) for options in demand.requests
    ]
    for class_name in dict.fromkeys(option.class_name for option in chosen):
        names = [option.request for option in chosen if option.class_name == class_name]
        for entry in demand.class_config.get(class_name, ()):
            yield {"source": "FromClass", "requests": names, **entry}
    for entry in demand.claim.spec.devices.config:
        named = entry.get("requests") or ()
        if not named or any(option.request in named or option.parent in named for option in chosen):
            yield {"source": "FromClaim", **entry}


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
