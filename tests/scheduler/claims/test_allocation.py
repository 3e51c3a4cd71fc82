"""Allocation of devices to claims: exact by brute force, constraints, and requests that are not served."""

import itertools
from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.kube.claims import DeviceClass, ResourceClaim
from api.kube.selectors import NodeSelector
from cluster.resources import Key
from scheduler.claims.allocation import (
    FREE_STEPS,
    MAX_STEPS,
    MAX_STEPS_OF_ATTEMPT,
    Effort,
    EffortEndedError,
    allocate,
    allocation_document,
)
from scheduler.claims.demand import ClaimDemand, UnsupportedClaimError, demand_of
from scheduler.claims.expression import Expression
from scheduler.claims.inventory import Device, DeviceId, DeviceTaint
from scheduler.claims.search import Offer, Share
from scheduler.claims.selectable import Selectable

CLASSES = {Key("", "any"): msgspec.convert({"metadata": {"name": "any"}}, DeviceClass)}


def selects(expression: Expression, device: Device) -> bool:
    return expression.selects(device.seen)


def device(name: str, node: str = "n0", selector: NodeSelector | None = None, **attributes: Any) -> Device:
    return Device(("d.io", "p", name), Selectable("d.io", {"d.io": attributes}, {}), node, selector)


def request(name: str, *expressions: str, **exactly: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return {"name": name, "exactly": {"deviceClassName": "any", "selectors": selectors, **exactly}}


def claim(name: str, *requests: dict[str, Any], **devices: Any) -> ClaimDemand:
    document = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }
    return demand_of(msgspec.convert(document, ResourceClaim), CLASSES)


def found(claims: list[ClaimDemand], devices: list[Device], taken: Collection[DeviceId] = ()) -> Any:
    given = allocate(claims, Offer(devices, taken), selects)
    if given is None:
        return None
    return {key.name: [(share.demand.request, share.device.id[2]) for share in each] for key, each in given.items()}


A, B, C = device("a", kind="x", numa=0), device("b", kind="x", numa=1), device("c", kind="y", numa=1)
X = 'device.attributes["d.io"].kind == "x"'


def test_requests_get_devices_of_their_own() -> None:
    assert found([claim("c", request("r", count=2))], [A, B]) == {"c": [("r", "a"), ("r", "b")]}
    assert found([claim("c", request("r", count=3))], [A, B]) is None
    assert found([claim("c", request("r"))], [A, B], {A.id}) == {"c": [("r", "b")]}
    assert found([claim("c")], []) == {"c": []}


def test_an_earlier_request_gives_way_to_one_that_is_harder_to_serve() -> None:
    only_a = 'device.attributes["d.io"].numa == 0'
    given = found([claim("c", request("any"), request("one", only_a))], [A, B])
    assert given == {"c": [("any", "b"), ("one", "a")]}


def test_all_takes_what_it_selects_or_nothing() -> None:
    everything = claim("c", request("r", X, allocationMode="All"))
    assert found([everything], [A, B, C]) == {"c": [("r", "a"), ("r", "b")]}
    assert found([everything], [A, B, C], {A.id}) is None
    assert found([everything], [C]) is None


def test_devices_of_a_constraint_are_alike() -> None:
    near = [{"matchAttribute": "d.io/numa"}]
    assert found([claim("c", request("r", count=2), constraints=near)], [A, B, C]) == {"c": [("r", "b"), ("r", "c")]}
    assert found([claim("c", request("r", count=3), constraints=near)], [A, B, C]) is None
    assert found([claim("c", request("r"), constraints=[{"matchAttribute": "d.io/none"}])], [A]) is None
    mixed = [device("i", id=1), device("t", id=True)]
    assert found([claim("c", request("r", count=2), constraints=[{"matchAttribute": "d.io/id"}])], mixed) is None
    part = [{"matchAttribute": "d.io/numa", "requests": ["r"]}]
    assert found([claim("c", request("r", count=2), request("s"), constraints=part)], [A, B, C]) == {
        "c": [("r", "b"), ("r", "c"), ("s", "a")]
    }


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2)), max_size=3),
    st.booleans(),
)
def test_what_brute_force_allocates_is_allocated(
    made: list[tuple[int, int]], wanted: list[tuple[int, int]], near: bool
) -> None:
    devices = [device(str(index), kind=kind, numa=numa) for index, (kind, numa) in enumerate(made)]
    rules = {"constraints": [{"matchAttribute": "d.io/numa"}]} if near and wanted else {}
    requests = [
        request(f"r{index}", *([f'device.attributes["d.io"].kind == {kind}'] if kind < 3 else []), count=count)
        for index, (kind, count) in enumerate(wanted)
    ]
    units = [kind for kind, count in wanted for _ in range(count)]
    possible = any(
        all(kind in (3, made[int(each.id[2])][0]) for kind, each in zip(units, chosen, strict=True))
        and (not rules or len({made[int(each.id[2])][1] for each in chosen}) <= 1)
        for chosen in itertools.permutations(devices, len(units))
    )
    given = allocate([claim("c", *requests, **rules)], Offer(devices), selects)
    assert (given is not None) is possible
    if given is not None:
        ids = [share.device.id for share in given[Key("ns", "c")]]
        assert len(ids) == len(set(ids)) == len(units)


UNSERVED = [
    (request("r", allocationMode="Some"), "allocationMode Some"),
    (request("r", capacity={"limits": {"memory": "1Gi"}}), "request r: limits"),
    ({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "any", "count": 33}]}, "more than 32 devices"),
    ({"name": "r", "oneOf": []}, "request r: oneOf"),
    (request("r", derivedAttributes=[{}]), "derivedAttributes"),
    (request("r", "[1].exists(x, true)"), "selector: "),
    (request("r", count=33), "more than 32 devices"),
]


@pytest.mark.parametrize("row", range(len(UNSERVED)))
def test_what_is_not_served_is_named(row: int) -> None:
    stated, named = UNSERVED[row]
    with pytest.raises(UnsupportedClaimError, match=named):
        claim("c", stated)
    with pytest.raises(UnsupportedClaimError, match="constraint: otherAttribute"):
        claim("c", request("r"), constraints=[{"otherAttribute": "d.io/x"}])
    with pytest.raises(LookupError, match="no device class none"):
        claim("c", request("r", deviceClassName="none"))


def test_the_allocation_says_devices_parameters_and_nodes() -> None:
    parameters = {"opaque": {"driver": "d.io", "parameters": {"x": 1}}}
    foreign = {"opaque": {"driver": "other.io", "parameters": {}}}
    made = claim("c", request("r"), config=[parameters, foreign])
    given = allocate([made], Offer([A]), selects)
    assert given is not None
    assert allocation_document(made, given[Key("ns", "c")], 0.0) == {
        "allocationTimestamp": "1970-01-01T00:00:00Z",
        "devices": {
            "results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "a"}],
            "config": [{**parameters, "source": "FromClaim"}, {**foreign, "source": "FromClaim"}],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]
        },
    }
    rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    selector = msgspec.convert({"nodeSelectorTerms": [{"matchExpressions": [rack]}]}, NodeSelector)
    ((demand,),) = made.requests
    shared = [Share(demand, device("s", "", selector)), Share(demand, device("t", ""))]
    assert allocation_document(made, shared, 0.0)["nodeSelector"] == {
        "nodeSelectorTerms": [{"matchExpressions": [rack]}]
    }
    assert "nodeSelector" not in allocation_document(made, [Share(demand, device("t", ""))], 0.0)


def test_a_constraint_may_ask_for_values_that_differ() -> None:
    apart = [{"distinctAttribute": "d.io/numa"}]
    assert found([claim("c", request("r", count=2), constraints=apart)], [B, C, A]) == {"c": [("r", "b"), ("r", "a")]}
    assert found([claim("c", request("r", count=3), constraints=apart)], [A, B, C]) is None


def test_a_search_that_takes_too_long_is_left_to_the_matching() -> None:
    many = [device(f"x{index}", numa=0) for index in range(40)] + [device("y", numa=1)]
    only = 'device.attributes["d.io"].numa == 1'
    given = found([claim("c", request("any", count=8), request("most", count=8), request("one", only, count=1))], many)
    assert given is not None
    assert [name for request, name in given["c"] if request == "one"] == ["y"]
    near = [{"matchAttribute": "d.io/numa"}]
    assert found([claim("c", request("any", count=9), request("one", only), constraints=near)], many) is None


def test_a_step_is_a_device_that_is_looked_at() -> None:
    many, wanted = [device(f"x{index}", numa=0) for index in range(FREE_STEPS + 1)], [claim("c", request("r", X))]
    effort = Effort()
    assert allocate(wanted, Offer(many, {each.id for each in many}), selects, effort) is None
    assert effort.steps < MAX_STEPS_OF_ATTEMPT
    with pytest.raises(EffortEndedError):
        allocate(wanted, Offer(many, {each.id for each in many}), selects, Effort(0))


def test_the_matching_takes_its_steps_from_the_attempt() -> None:
    many = [device(f"x{index}", numa=index % 4) for index in range(40)]
    wanted = [claim("c", request("r", count=11), constraints=[{"matchAttribute": "d.io/numa"}])]
    most, effort = MAX_STEPS + 11 * len(many), Effort()
    assert allocate(wanted, Offer(many), selects, effort) is None
    assert MAX_STEPS_OF_ATTEMPT - 2 * most <= effort.steps < MAX_STEPS_OF_ATTEMPT - most
    with pytest.raises(EffortEndedError):
        allocate(wanted, Offer(many), selects, Effort(most))


def test_taints_keep_requests_without_a_toleration_away() -> None:
    made = device("a")
    tainted = Device(made.id, made.seen, "n0", None, (DeviceTaint("broken", "yes", "NoSchedule"),))
    assert found([claim("c", request("r"))], [tainted]) is None
    assert found([claim("c", request("r", allocationMode="All"))], [tainted]) is None
    for toleration in (
        {"operator": "Exists"},
        {"key": "broken", "value": "yes"},
        {"key": "broken", "operator": "Exists", "effect": "NoSchedule"},
    ):
        assert found([claim("c", request("r", tolerations=[toleration]))], [tainted]) == {"c": [("r", "a")]}
    for toleration in ({"key": "broken", "value": "no"}, {"operator": "Exists", "effect": "NoExecute"}):
        assert found([claim("c", request("r", tolerations=[toleration]))], [tainted]) is None
