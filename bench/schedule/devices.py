"""Cost of resource claims in the scheduling thread: attempts of pods beside as many without, in one engine.

CPU time of the thread, as in `scale`. Each attempt follows what a running cluster shows of the one before: its claim
has its devices.
"""

from typing import Any

import click

from api.crds import NODE_METRIC, NodeMetric
from api.kube.claims import DeviceClass, ResourceClaim, ResourceSlice
from api.kube.objects import Node, Pod
from bench.schedule.decisions import feed
from bench.schedule.scale import EPOCH, Steps, decoded, pods_of
from bench.schedule.scene import Scene, metric_documents, node_documents
from cluster import Key, Patch
from cluster.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource, custom
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.loop import settle_collector
from scheduler.outcome import BindingPlan

DRIVER = "gpu.example.com"
KINDS: dict[type[Any], Resource[Any]] = {
    ResourceClaim: RESOURCE_CLAIMS.of(ResourceClaim),
    ResourceSlice: RESOURCE_SLICES.of(ResourceSlice),
    DeviceClass: DEVICE_CLASSES.of(DeviceClass),
}


def devices(scene: Scene, per_node: int, attempts: int, count: int, *, named: bool = False) -> dict[str, Any]:
    """Measure attempts of pods that ask for `count` devices of one NUMA node each, and of pods without claims.

    Devices that are `named` have an attribute that no other has, as GPUs their UUID.
    """
    engine, steps = Engine(), Steps()
    for document in node_documents(scene):
        engine.on_node(Action.ADD, decoded(document, Node), EPOCH)
    feed(engine, custom(NODE_METRIC), metric_documents(scene, EPOCH), NodeMetric, EPOCH)
    names = [document["metadata"]["name"] for document in node_documents(scene)]
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    _show(engine, DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
    with steps.step("slices"):
        for name in names:
            _show(engine, ResourceSlice, _slice(name, per_node, named=named))
    wanted = [_claim(index, count) for index in range(attempts)]
    for document in wanted:
        _show(engine, ResourceClaim, document)
    asking, plain = [], [decoded(document, Pod) for document in pods_of(scene, attempts, "plain")]
    for index, document in enumerate(pods_of(scene, attempts, "claimant")):
        document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"claim-{index}"}]
        asking.append(decoded(document, Pod))
    settle_collector()
    for index, (pod, other) in enumerate(zip(asking, plain, strict=True)):
        binding = _placed(engine, steps, "attempt" if index else "first attempt", pod)
        with steps.step("change"):
            _show(engine, ResourceClaim, {**wanted[index], "status": _status(binding)})
        _placed(engine, steps, "attempt without claims" if index else "first attempt without claims", other)
    return {
        "nodes": scene.nodes,
        "devices": scene.nodes * per_node,
        "count": count,
        "named": named,
        "steps": steps.summary(),
    }


def _placed(engine: Engine, steps: Steps, kind: str, pod: Pod) -> BindingPlan:
    engine.on_pod(Action.ADD, pod, EPOCH)
    with steps.step(kind):
        outcome = engine.schedule_one(EPOCH)
    if outcome is None or not engine.bindings:
        raise click.ClickException(outcome.message if outcome else "the queue is empty")
    binding = engine.bindings.popleft()
    engine.bound(binding, EPOCH)
    return binding


def _show(engine: Engine, model: type[Any], document: dict[str, Any]) -> None:
    item = decoded(document, model)
    kind, key = KINDS[model], Key(item.metadata.namespace, item.metadata.name)
    known = engine.objects(kind).get(key)
    engine.on_object(ObjectEvent(kind, Action.ADD if known is None else Action.UPDATE, key, known, item), EPOCH)


def _slice(node: str, devices: int, *, named: bool) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [
        {
            "name": f"gpu-{index}",
            "attributes": {"model": {"string": "a"}, "numa": {"int": index * 2 // devices}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(devices)
    ]
    for index, device in enumerate(listed if named else ()):
        device["attributes"] |= {"uuid": {"string": f"{node}-{index}"}}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": node}, "spec": {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": listed}}


def _claim(index: int, count: int) -> dict[str, Any]:
    enough = {"cel": {"expression": f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))'}}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count, "selectors": [enough]}}
    spec = {"devices": {"requests": [request], "constraints": [{"matchAttribute": f"{DRIVER}/numa"}]}}
    metadata = {"name": f"claim-{index}", "namespace": "default", "uid": f"claim-{index}", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec}


def _status(binding: BindingPlan) -> Any:
    (patch,) = [write.body for write in binding.writes if write.verb is Verb.PATCH_STATUS]
    assert isinstance(patch, Patch)
    return dict(patch.body)["status"]
