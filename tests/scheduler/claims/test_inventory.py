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


def test_a_device_that_is_shared_tainted_or_unreadable_is_given_to_nobody() -> None:
    made = Inventory()
    devices = [
        {"name": "parts", "consumesCounters": [{"counterSet": "c"}]},
        {"name": "several", "allowMultipleAllocations": True},
        {"name": "tainted", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"name": "list", "attributes": {"x": {"strings": ["a"]}}},
        {"name": "two", "attributes": {"x": {"int": 1, "bool": True}}},
        {"name": "amount", "capacity": {"memory": {"value": "much"}}},
        {"name": "none", "capacity": {"memory": None}},
        {"name": "noted", "taints": [{"key": "k", "effect": "None"}]},
        {"name": "plain", "attributes": {"x": {"int": 1}, "y.io/x": {"version": "1.2.3"}}},
    ]
    put(made, "s", devices, nodeName="n0")
    assert names(made) == ["noted", "plain"]
    plain = made.on("n0", {})[1].seen
    assert plain.attributes["d.io"]["x"] == 1
    assert set(plain.attributes) == {"d.io", "y.io"}
