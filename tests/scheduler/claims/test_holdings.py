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
