"""Devices in use: shown by claims, chosen here, whole or in part."""

from typing import Any

import msgspec

from api.kube.claims import ResourceClaim, ResourceSlice
from cluster.resources import Key
from scheduler.claims.demand import Demand
from scheduler.claims.holdings import Choice, Holdings
from scheduler.claims.inventory import Inventory
from scheduler.claims.search import Share

DEMAND = Demand("r", 1, ())
Listed = list[dict[str, Any]]


def inventory() -> Inventory:
    made = Inventory()
    devices: list[dict[str, Any]] = [
        {"name": "whole"},
        {"name": "part", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}},
    ]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    document = {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": pool, "nodeName": "n0", "devices": devices}}
    made.put(Key("", "s"), msgspec.convert(document, ResourceSlice))
    return made


def shown(*results: dict[str, Any]) -> ResourceClaim:
    listed = [{"request": "r", "driver": "d", "pool": "p", **each} for each in results]
    return msgspec.convert({"status": {"allocation": {"devices": {"results": listed}}}}, ResourceClaim)


def test_what_claims_show_is_taken_until_they_are_gone() -> None:
    made, devices = Holdings(), inventory()
    part = {"device": "part", "shareID": "a", "consumedCapacity": {"memory": "3", "odd": "much"}}
    changed = made.show(Key("ns", "c"), shown({"device": "whole"}, part, {"device": "part", "adminAccess": True}))
    assert changed == {("d", "p", "whole"), ("d", "p", "part")}
    made.show(Key("ns", "d"), shown({**part, "shareID": "b"}))
    offer = made.offer(devices, "n0", {}, uid="u", own=())
    assert offer.taken == {("d", "p", "whole")}
    assert offer.shares == {("d", "p", "part"): {"memory": 6000}}
    made.show(Key("ns", "c"), None)
    made.show(Key("ns", "d"), ResourceClaim())
    offer = made.offer(devices, "n0", {}, uid="u", own=())
    assert (offer.taken, offer.shares) == (set(), {})


def test_what_was_chosen_is_free_to_its_own_pod_alone() -> None:
    made, devices = Holdings(), inventory()
    whole, part = devices.on("n0", {})
    key = Key("ns", "c")
    made.choose(key, Choice("u", [Share(DEMAND, whole), Share(DEMAND, part, {"memory": 3000})]))
    other = made.offer(devices, "n0", {}, uid="v", own=(key,))
    assert other.taken == {whole.id}
    assert other.shares == {part.id: {"memory": 3000}}
    own = made.offer(devices, "n0", {}, uid="u", own=(key,))
    assert (own.taken, own.shares) == (set(), {})
    made.show(key, shown({"device": "whole"}))
    assert not made.chosen
    assert made.offer(devices, "n0", {}, uid="u", own=(key,)).taken == {whole.id}


def test_admin_access_takes_nothing() -> None:
    made, devices = Holdings(), inventory()
    whole, part = devices.on("n0", {})
    admin = Demand("r", 1, (), admin=True)
    assert not made.choose(Key("ns", "c"), Choice("u", [Share(admin, whole), Share(admin, part, {"memory": 3000})]))
    offer = made.offer(devices, "n0", {}, uid="v", own=())
    assert (offer.taken, offer.shares) == (set(), {})
    assert not made.drop(Key("ns", "c"))
    result = {"device": "part", "shareID": "a", "consumedCapacity": {"memory": "3"}, "adminAccess": True}
    assert not made.show(Key("ns", "c"), shown(result))
    assert made.offer(devices, "n0", {}, uid="v", own=()).shares == {}


def listed(made: Inventory, node: str, devices: Listed, *, slices: int = 1, **more: Any) -> None:
    pool = {"name": f"of-{node}", "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": "d", "pool": pool, "nodeName": node, "devices": devices, **more}
    made.put(Key("", node), msgspec.convert({"metadata": {"name": node}, "spec": spec}, ResourceSlice))


def gpu(name: str, **attributes: str) -> dict[str, Any]:
    stated = {key: {"string": value} for key, value in attributes.items()}
    return {"name": name, "attributes": stated, "capacity": {"memory": {"value": "8"}}}


def on(node: str, device: str, **more: Any) -> ResourceClaim:
    return shown({"pool": f"of-{node}", "device": device, **more})


def test_nodes_are_alike_whose_devices_say_the_same_and_are_taken_alike() -> None:
    made, devices = Holdings(), Inventory()
    listed(devices, "n0", [gpu("x", model="a"), gpu("y", model="a")])
    listed(devices, "n1", [gpu("other", model="a"), gpu("names", model="a")])
    listed(devices, "n2", [gpu("x", model="a"), gpu("y", model="b")])
    first, second, third = (made.likeness(devices, node) for node in ("n0", "n1", "n2"))
    assert first is not None
    assert first == second != third
    assert made.likeness(devices, "without") == made.likeness(devices, "devices")
    made.show(Key("ns", "c"), on("n0", "x"))
    assert made.likeness(devices, "n0") != first
    made.show(Key("ns", "d"), on("n1", "names"))
    assert made.likeness(devices, "n0") != made.likeness(devices, "n1")
    made.show(Key("ns", "d"), on("n1", "other"))
    assert made.likeness(devices, "n0") == made.likeness(devices, "n1")
    key = Key("ns", "e")
    made.choose(key, Choice("u", [Share(DEMAND, devices.on("n0", {})[1])]))
    assert made.likeness(devices, "n0") != made.likeness(devices, "n1")
    made.drop(key)
    assert made.likeness(devices, "n0") == made.likeness(devices, "n1")
    for claim in ("c", "d"):
        made.show(Key("ns", claim), None)
    assert first == made.likeness(devices, "n0") == made.likeness(devices, "n1")


def test_a_node_is_like_no_other_where_more_than_its_own_devices_decides() -> None:
    made, devices = Holdings(), Inventory()
    counters = [{"name": "set", "counters": {"memory": {"value": "8"}}}]
    consumes = [{"counterSet": "set", "counters": {"memory": {"value": "4"}}}]
    listed(devices, "counted", [{"name": "x", "consumesCounters": consumes}], sharedCounters=counters)
    listed(devices, "incomplete", [gpu("x")], slices=2)
    listed(devices, "shared", [{**gpu("x"), "allowMultipleAllocations": True}])
    assert made.likeness(devices, "shared") is not None
    made.show(Key("ns", "c"), on("shared", "x", shareID="a", consumedCapacity={"memory": "3"}))
    assert [made.likeness(devices, node) for node in ("counted", "incomplete", "shared")] == [None] * 3
    assert made.likeness(devices, "none") is not None
    assert devices.unsettled("incomplete", {})
    assert not devices.unsettled("none", {})
    listed(devices, "incomplete", [gpu("x")])
    assert made.likeness(devices, "incomplete") is not None
    assert not devices.unsettled("incomplete", {})
    pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "allNodes": True, "devices": [gpu("far")]}
    devices.put(Key("", "net"), msgspec.convert({"metadata": {"name": "net"}, "spec": spec}, ResourceSlice))
    assert made.likeness(devices, "none") is None
