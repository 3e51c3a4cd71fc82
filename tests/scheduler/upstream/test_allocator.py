"""The stock allocator's own table of claims and devices, row by row: each passes, or says why it differs."""

from typing import Any

import msgspec
import pytest

from api.kube.claims import DeviceClass, ResourceClaim, ResourceSlice
from cluster.resources import Key
from scheduler.claims.allocation import allocate, allocation_document
from scheduler.claims.capacity import amount
from scheduler.claims.demand import UnsupportedClaimError, demand_of
from scheduler.claims.holdings import Holdings
from scheduler.claims.inventory import Inventory
from scheduler.claims.selectable import EvaluationError
from tests.scheduler.upstream.reading import table

ROWS = table("allocator")


def exactly(request: dict[str, Any]) -> dict[str, Any]:
    stated = {key: value for key, value in request.items() if key not in ("name", "class", "mode", "firstAvailable")}
    found: dict[str, Any] = {**stated, "deviceClassName": request.get("class", "")}
    found["allocationMode"] = request.get("mode", "ExactCount")
    found["selectors"] = [{"cel": {"expression": text}} if text else {} for text in request.get("selectors", ())]
    if "capacity" in request:
        found["capacity"] = {"requests": request["capacity"]}
    return found


def request_of(request: dict[str, Any]) -> dict[str, Any]:
    if "firstAvailable" in request:
        options = [{"name": each["name"], **exactly(each)} for each in request["firstAvailable"]]
        return {"name": request["name"], "firstAvailable": options}
    return {"name": request["name"], "exactly": exactly(request)}


def parameters(entry: dict[str, Any]) -> dict[str, Any]:
    opaque = {"opaque": {"driver": entry["driver"], "parameters": entry["parameters"]}}
    return {key: entry[key] for key in ("requests", "source") if key in entry} | opaque


def claim_of(case: dict[str, Any], index: int) -> ResourceClaim:
    devices = {
        "requests": [request_of(each) for each in case.get("requests", ())],
        "constraints": case.get("constraints", []),
        "config": [parameters(each) for each in case.get("config", ())],
    }
    meta = {"name": case["name"], "namespace": f"of-{index}"}
    return msgspec.convert({"metadata": meta, "spec": {"devices": devices}}, ResourceClaim)


def selector(case: dict[str, Any]) -> dict[str, Any]:
    term: dict[str, Any] = {}
    if case.get("labels"):
        term["matchExpressions"] = [{"key": k, "operator": "In", "values": values} for k, *values in case["labels"]]
    if case.get("names"):
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": case["names"]}]
    return {"nodeSelectorTerms": [term]}


def amounts(case: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, dict) else {"value": value} for name, value in case.items()}


def counters(case: dict[str, Any]) -> dict[str, Any]:
    return amounts({name: value for name, value in case.items() if name != "set"})


def device(case: Any) -> dict[str, Any]:
    if isinstance(case, str):
        return {"name": case}
    found = dict(case)
    if "capacity" in case:
        found["capacity"] = amounts(case["capacity"])
    if "consumesCounters" in case:
        found["consumesCounters"] = [
            {"counterSet": each["set"], "counters": counters(each)} for each in case["consumesCounters"]
        ]
    if "selector" in case:
        found["nodeSelector"] = selector(found.pop("selector"))
    return found


def slice_of(case: dict[str, Any]) -> ResourceSlice:
    pool = {"name": case["pool"], "generation": case.get("generation", 1), "resourceSliceCount": case.get("count", 1)}
    spec: dict[str, Any] = {"driver": case["driver"], "pool": pool}
    spec["devices"] = [device(each) for each in case.get("devices", ())]
    spec["sharedCounters"] = [{"name": each["set"], "counters": counters(each)} for each in case.get("counters", ())]
    spec |= {"nodeName": case["node"]} if "node" in case else {}
    spec |= {"allNodes": True} if "all" in case else {}
    spec |= {"perDeviceNodeSelection": True} if "each" in case else {}
    spec |= {"nodeSelector": selector(case["selector"])} if "selector" in case else {}
    return msgspec.convert({"metadata": {"name": case["name"]}, "spec": spec}, ResourceSlice)


def class_of(name: str, case: Any) -> DeviceClass:
    stated = {"selectors": [f'device.driver == "{case}"']} if isinstance(case, str) else case
    spec = {
        "selectors": [{"cel": {"expression": text}} for text in stated.get("selectors", ())],
        "config": [parameters(each) for each in stated.get("config", ())],
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def holdings_of(case: dict[str, Any]) -> Holdings:
    """What is in use: each device, and each part of one, by a claim of its own."""
    found = Holdings()
    results = [{"driver": driver, "pool": pool, "device": name} for driver, pool, name in case.get("taken", ())]
    for driver, pool, name, used in case.get("used", ()):
        results.append({"driver": driver, "pool": pool, "device": name, "shareID": "s", "consumedCapacity": used})
    for index, result in enumerate(results):
        status = {"allocation": {"devices": {"results": [result]}}}
        shown = msgspec.convert({"metadata": {"name": f"c{index}"}, "status": status}, ResourceClaim)
        found.show(Key("in-use", f"c{index}"), shown)
    return found


def answer(case: dict[str, Any]) -> list[dict[str, Any]] | None:
    inventory = Inventory()
    for index, item in enumerate(case.get("slices", ())):
        inventory.put(Key("", str(index)), slice_of(item))
    classes = {Key("", name): class_of(name, each) for name, each in case["classes"].items()}
    try:
        claims = [demand_of(claim_of(each, index), classes) for index, each in enumerate(case["claims"])]
    except (UnsupportedClaimError, LookupError):
        return None
    node, region = case.get("node", ("node-1", "region-1"))
    labels = {"region": region, "planet": "earth"}
    offer = holdings_of(case).offer(inventory, node, labels, uid="", own=())
    try:
        given = allocate(claims, offer, lambda expression, item: expression.selects(item.seen))
    except EvaluationError:
        return None
    return None if given is None else [allocation_document(each, given[each.key], 0.0) for each in claims]


def in_any_order(results: list[list[Any]]) -> list[bytes]:
    for *_, last in results:
        for name, used in last.get("consumedCapacity", {}).items() if isinstance(last, dict) else ():
            last["consumedCapacity"][name] = amount(used)
    return sorted(msgspec.json.encode(each, order="deterministic") for each in results)


def shortly(result: dict[str, Any]) -> list[Any]:
    found = [result["request"], result["driver"], result["pool"], result["device"]]
    more = {key: result[key] for key in ("adminAccess", "tolerations", "consumedCapacity") if key in result}
    return [*found, more] if more else found


@pytest.mark.parametrize("row", [pytest.param(each, id=each["row"]) for each in ROWS if "differs" not in each])
def test_the_table_of_the_allocator(row: dict[str, Any]) -> None:
    found = answer(row)
    if row["given"] is None:
        assert found is None
        return
    assert found is not None
    assert len(found) == len(row["given"])
    own = {"names": [row.get("node", ("node-1",))[0]]}
    for document, case in zip(found, row["given"], strict=True):
        expected = case if isinstance(case, dict) else {"devices": case}
        assert in_any_order([shortly(each) for each in document["devices"]["results"]]) == in_any_order(
            expected["devices"]
        )
        nodes = selector(expected.get("nodes", own)) if expected.get("nodes", own) else None
        assert document.get("nodeSelector") == nodes
        assert document["devices"].get("config", []) == [parameters(each) for each in expected.get("config", ())]
