"""Devices of slices: complete pools only, by the nodes that reach them, and only such as may be given whole."""

from typing import Any

import msgspec

from api.kube.claims import ResourceSlice
from cluster.resources import Key
from scheduler.claims.inventory import Inventory


def put(made: Inventory, name: str, devices: list[dict[str, Any]], **spec: Any) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    document = {"metadata": {"name": name}, "spec": {"driver": "d.io", "pool": pool, "devices": devices, **spec}}
    made.put(Key("", name), msgspec.convert(document, ResourceSlice))


def names(made: Inventory, node: str = "n0", **labels: str) -> list[str]:
    return [device.id[2] for device in made.on(node, labels)]


def test_devices_are_on_their_node() -> None:
    made = Inventory()
    put(made, "s", [{"name": "a"}, {"name": "b"}], nodeName="n0")
    assert (names(made), names(made, "n1")) == (["a", "b"], [])
    assert made.may_serve("n0")
    assert not made.may_serve("n1")
    made.drop(Key("", "s"))
    assert names(made) == []
    assert not made.may_serve("n0")


def test_a_pool_counts_when_all_slices_of_its_newest_generation_are_there() -> None:
    made = Inventory()
    two = {"resourceSliceCount": 2}
    put(made, "s0", [{"name": "a"}], nodeName="n0", pool=two)
    assert names(made) == []
    put(made, "s1", [{"name": "b"}], nodeName="n0", pool=two)
    assert names(made) == ["a", "b"]
    put(made, "s2", [{"name": "c"}], nodeName="n0", pool={"generation": 2})
    assert names(made) == ["c"]
    made.drop(Key("", "s2"))
    assert names(made) == ["a", "b"]


def test_devices_on_no_node_are_reached_by_selector_or_by_all() -> None:
    made = Inventory()
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    put(made, "s0", [{"name": "a"}], nodeSelector={"nodeSelectorTerms": [term]})
    put(made, "s1", [{"name": "b"}], allNodes=True, pool={"name": "q"})
    assert names(made, rack="r1") == ["a", "b"]
    assert names(made, rack="r2") == ["b"]


def test_a_device_that_is_not_understood_stays_unallocated() -> None:
    made = Inventory()
    devices = [
        {"name": "waits", "bindingConditions": ["ready"]},
        {"name": "list", "attributes": {"x": {"strings": ["a"]}}},
        {"name": "two", "attributes": {"x": {"int": 1, "bool": True}}},
        {"name": "amount", "capacity": {"memory": {"value": "much"}}},
        {"name": "none", "capacity": {"memory": None}},
        {"name": "tainted", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"name": "noted", "taints": [{"key": "k", "effect": "None"}]},
        {"name": "plain", "attributes": {"x": {"int": 1}, "y.io/x": {"version": "1.2.3"}}},
    ]
    put(made, "s", devices, nodeName="n0")
    assert names(made) == ["tainted", "noted", "plain"]
    tainted, noted, plain = made.on("n0", {})
    assert tainted.taints
    assert not noted.taints
    assert plain.seen.attributes["d.io"]["x"] == 1
    assert set(plain.seen.attributes) == {"d.io", "y.io"}


def test_a_pool_that_contradicts_itself_is_unsettled() -> None:
    made = Inventory()
    put(made, "s0", [{"name": "a"}, {"name": "a"}], nodeName="n0")
    assert (names(made), made.unsettled("n0", {}), made.unsettled("n1", {})) == ([], True, False)
    put(made, "s0", [{"name": "a", "consumesCounters": [{"counterSet": "c", "counters": {}}]}], nodeName="n0")
    assert made.unsettled("n0", {})
    put(made, "s0", [{"name": "a"}], nodeName="n0")
    assert (names(made), made.unsettled("n0", {})) == (["a"], False)


def test_devices_that_are_taken_leave_less_of_their_counters() -> None:
    made = Inventory()
    two = {"resourceSliceCount": 2}
    part = {"consumesCounters": [{"counterSet": "c", "counters": {"memory": {"value": "3"}}}]}
    put(made, "s0", [{"name": "a", **part}, {"name": "b", **part}], nodeName="n0", pool=two)
    put(made, "s1", [], nodeName="n0", sharedCounters=[{"name": "c", "counters": {"memory": {"value": "8"}}}], pool=two)
    assert made.has_counters
    taken = {("d.io", "p", "a")}
    assert made.counters_left(made.on("n0", {}), taken) == {("d.io", "p"): {("c", "memory"): 5000}}
    made.drop(Key("", "s1"))
    assert not made.has_counters


def test_each_device_may_say_its_own_nodes() -> None:
    made = Inventory()
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    devices = [
        {"name": "a", "nodeName": "n0"},
        {"name": "b", "nodeSelector": {"nodeSelectorTerms": [term]}},
        {"name": "c", "allNodes": True},
        {"name": "d"},
    ]
    put(made, "s", devices, perDeviceNodeSelection=True)
    assert names(made) == ["a", "c"]
    assert names(made, "n1", rack="r1") == ["b", "c"]
