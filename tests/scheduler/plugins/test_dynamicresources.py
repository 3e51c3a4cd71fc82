"""DynamicResources: devices are chosen once, written with the binding, and given back when that fails."""

from queue import Queue
from typing import Any

import msgspec
import pytest

from api.kube.claims import DeviceClass, ResourceClaim, ResourceSlice
from api.kube.objects import Pod
from cluster.resources import PODS, RESOURCE_CLAIMS, Key, Patch, merge_patch
from cluster.twin import Twin
from scheduler.claim_writes import CLAIMS, FINALIZER
from scheduler.claims import allocation, rowanswers
from scheduler.claims.allocation import Effort, allocate
from scheduler.claims.inventory import DeviceId
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Write
from scheduler.outcome import BindingPlan
from scheduler.plugins import dynamicresources
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.dynamicresources import CLASSES, SLICES, DynamicResources
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.writer import BindAnswer, WriteFailure, Writer
from tests.schedobjects import Cellars, drain, engine, node, pod

KINDS = {"claims": DynamicResources, "fit": NodeResourcesFit, "gangs": Coscheduling}


def show(made: Engine, resource: Any, document: dict[str, Any], now: float = 0.0) -> None:
    models = {CLAIMS: ResourceClaim, SLICES: ResourceSlice, CLASSES: DeviceClass}
    item = msgspec.convert(document, models[resource])
    key = Key(item.metadata.namespace, item.metadata.name)
    made.on_object(ObjectEvent(resource, Action.UPDATE, key, None, item), now)


def slice_of(made: Engine, name: str, *devices: str) -> None:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": each, "attributes": {"kind": {"string": each[:-1]}}} for each in devices]
    document = {
        "metadata": {"name": name},
        "spec": {"driver": "d.io", "pool": pool, "nodeName": name, "devices": listed},
    }
    show(made, SLICES, document)


def claim(
    made: Engine, name: str, count: int = 1, kind: str = "gpu", status: Any = None, **meta: Any
) -> dict[str, Any]:
    selector = {"cel": {"expression": f'device.attributes["d.io"].kind == "{kind}"'}}
    exactly = {"deviceClassName": "any", "count": count, "selectors": [selector]}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1", **meta},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": status or {},
    }
    show(made, CLAIMS, document)
    return document


def asking(name: str, *claims: str, **fields: Any) -> Pod:
    stated = [{"name": each, "resourceClaimName": each} for each in claims]
    return pod(name, resourceClaims=stated, **fields)


def cluster(**nodes: tuple[str, ...]) -> Engine:
    """Nodes with their devices; one named `cellar` is avoided."""
    labels = {name: {"cellar": ""} if name == "cellar" else {} for name in nodes}
    made = engine([node(name, labels=labels[name]) for name in nodes], kinds={**KINDS, "cellars": Cellars})
    show(made, CLASSES, {"metadata": {"name": "any"}})
    for name, devices in nodes.items():
        if devices:
            slice_of(made, name, *devices)
    return made


def attempt(made: Engine, item: Pod, now: float = 0.0) -> BindingPlan | str:
    made.on_pod(Action.ADD, item, now)
    outcome = made.schedule_one(now)
    assert outcome is not None
    return made.bindings.popleft() if made.bindings else outcome.message


def bodies(writes: tuple[Write, ...]) -> list[Any]:
    return [write.body.body for write in writes if isinstance(write.body, Patch)]


def test_a_pod_goes_to_the_devices_and_the_claim_is_written_with_the_binding() -> None:
    made = cluster(n0=(), n1=("gpu0", "nic0"))
    claim(made, "c")
    plan = attempt(made, asking("p", "c"))
    assert isinstance(plan, BindingPlan)
    assert plan.placed.node == "n1"
    meta, status = bodies(plan.writes)
    assert status["metadata"] == {"uid": "uid-c", "resourceVersion": "1"}
    assert [write.continues for write in plan.writes] == [False, True, False]
    assert status["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    results = status["status"]["allocation"]["devices"]["results"]
    assert results == [{"request": "r", "driver": "d.io", "pool": "n1", "device": "gpu0"}]
    assert meta["metadata"] == {"uid": "uid-c", "resourceVersion": "1", "finalizers": [FINALIZER]}
    assert [write.verb.value for write in plan.writes] == ["patch", "patch-status", "bind"]


def test_a_node_is_asked_for_its_own_devices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster(n0=("gpu0", "gpu1"), n1=("gpu0", "gpu1", "nic0"))
    for name in ("n0", "n1"):
        results = [{"request": "r", "driver": "d.io", "pool": name, "device": "gpu0"}]
        claim(made, f"on-{name}", status={"allocation": {"devices": {"results": results}}})
    asked: list[set[DeviceId]] = []

    def noted(claims: Any, offer: Any, selects: Any, effort: Any) -> Any:
        asked.append(set(offer.taken))
        return allocate(claims, offer, selects, effort)

    monkeypatch.setattr(dynamicresources, "allocate", noted)
    claim(made, "c")
    assert isinstance(attempt(made, asking("p", "c")), BindingPlan)
    assert asked[:2] == [{("d.io", "n0", "gpu0")}, {("d.io", "n1", "gpu0")}]


def test_a_refusal_for_want_of_steps_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster(n0=("gpu0", "gpu1"))
    claim(made, "c", count=2)
    monkeypatch.setattr(allocation, "FREE_STEPS", 0)
    with monkeypatch.context() as patched:
        patched.setattr(dynamicresources, "Effort", lambda: Effort(1))
        assert "will be searched in another attempt" in str(attempt(made, asking("p", "c")))
    made.tick(400.0)
    outcome = made.schedule_one(400.0)
    assert outcome is not None
    assert outcome.node == "n0"


def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pools of the nodes that are searched from here on."""
    asked: list[str] = []

    def noted(claims: Any, offer: Any, selects: Any, effort: Any) -> Any:
        asked.extend(dict.fromkeys(device.pool[1] for device in offer.devices))
        return allocate(claims, offer, selects, effort)

    monkeypatch.setattr(dynamicresources, "allocate", noted)
    return asked


def test_of_nodes_that_are_alike_one_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = {f"n{number}": ("gpu0", "gpu1") for number in range(6)}
    made = cluster(**alike, nic=("nic0",), none=())
    claim(made, "c")
    asked = searches(monkeypatch)
    plan = attempt(made, asking("p", "c"))
    assert isinstance(plan, BindingPlan)
    assert sorted(asked[:2]) == ["n0", "nic"]
    assert asked[2:] == [plan.placed.node], "its devices are chosen"


def test_nodes_that_cannot_take_the_pod_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0", "gpu1"))
    made.on_pod(Action.ADD, pod("old", {"cpu": "4"}, nodeName="n0"), 0.0)
    claim(made, "c")
    asked = searches(monkeypatch)
    assert isinstance(attempt(made, asking("p", "c", requests={"cpu": "1"})), BindingPlan)
    assert set(asked) == {"n1"}
    made.on_pod(Action.DELETE, pod("old", {"cpu": "4"}, nodeName="n0"), 1.0)
    claim(made, "d")
    assert isinstance(attempt(made, asking("q", "d", requests={"cpu": "1"}), 1.0), BindingPlan)
    assert "n0" in asked


def test_a_large_cluster_is_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowanswers, "ENOUGH_ROWS", 2)
    monkeypatch.setattr(rowanswers, "MAX_ROWS", 4)
    kinds = {f"n{number}": (f"{chr(97 + number)}0", "gpu0") for number in range(6)}
    made = cluster(**kinds, n6=("g0", "nic0"))
    claim(made, "c")
    asked = searches(monkeypatch)
    assert isinstance(attempt(made, asking("p", "c")), BindingPlan)
    assert len(set(asked)) == 2
    claim(made, "d", kind="nic")
    message = attempt(made, asking("q", "d"), 1.0)
    assert "7 node(s) whose devices will be searched in another attempt" in str(message)
    assert made.schedule_one(1.5) is None
    made.tick(2.0)
    outcome = made.schedule_one(2.0)
    assert outcome is not None
    assert outcome.node == "n6"


@pytest.mark.parametrize("last", ["nic", "h"])
def test_nodes_that_were_not_searched_yet_go_before_a_last_resort(monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    monkeypatch.setattr(rowanswers, "ENOUGH_ROWS", 2)
    monkeypatch.setattr(rowanswers, "MAX_ROWS", 4)
    kinds = {f"n{number}": (f"{chr(97 + number)}0",) for number in range(7)}
    made = cluster(**kinds, cellar=("nic0",), n7=(f"{last}0",))
    claim(made, "c", kind="nic")
    message = attempt(made, asking("p", "c"))
    assert isinstance(message, str)
    assert "8 node(s) whose devices will be searched in another attempt" in message
    bound: dict[str, str] = {}
    for now in (1.0, 2.0):
        made.tick(now)
        bound |= drain(made, now)
    assert bound == {"p": "n7" if last == "nic" else "cellar"}


def gang(*names: str, claims: tuple[str, ...] = ("c",)) -> list[Pod]:
    prefix = "gang.scheduling.koordinator.sh/"
    annotations = {f"{prefix}name": "g", f"{prefix}min-available": str(len(names))}
    return [asking(name, *claims, annotations=annotations) for name in names]


def shown(made: Engine, name: str, node: str, *pods: str, now: float = 1.0) -> None:
    results = [{"request": "r", "driver": "d.io", "pool": node, "device": "gpu0"}]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    consumers = [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in pods]
    status = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}, "reservedFor": consumers}
    claim(made, name, status=status, finalizers=[FINALIZER], resourceVersion="3")


def test_a_gang_shares_a_claim_without_devices() -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0",))
    claim(made, "c")
    for each in gang("p", "q"):
        made.on_pod(Action.ADD, each, 0.0)
    while made.schedule_one(0.0) is not None:
        pass
    (first,) = made.bindings
    assert first.placed.info.pod.metadata.name == "p"
    consumers = bodies(first.writes)[1]["status"]["reservedFor"]
    assert [each["name"] for each in consumers] == ["p", "q"]
    made.bound(made.bindings.popleft(), 1.0)
    assert not made.bindings, "q waits until the claim shows its devices"
    shown(made, "c", first.placed.node, "p", "q")
    (second,) = made.bindings
    assert second.placed.node == first.placed.node
    assert [write.verb.value for write in second.writes] == ["bind"]


def test_a_gang_whose_claim_is_not_written_lets_go() -> None:
    made = cluster(n0=("gpu0",))
    for name in ("c", "d"):
        claim(made, name)
    for each in gang("p", "q"):
        made.on_pod(Action.ADD, each, 0.0)
    while made.schedule_one(0.0) is not None:
        pass
    made.bind_failed(made.bindings.popleft(), "conflict", 1.0)
    made.on_pod(Action.DELETE, gang("p", "q")[0], 2.0)
    made.tick(70.0)
    assert not made.snapshot.pods
    assert isinstance(attempt(made, asking("r", "d"), 140.0), BindingPlan)


def gone(made: Engine, document: dict[str, Any], now: float = 0.0) -> None:
    item = msgspec.convert(document, ResourceClaim)
    key = Key(item.metadata.namespace, item.metadata.name)
    made.on_object(ObjectEvent(CLAIMS, Action.DELETE, key, item, None), now)


def hold_p(made: Engine) -> str:
    """Hold pod p, of a gang of two and with claim c, and return its node; the next attempt is for q."""
    for item in (gang("p", "q")[0], gang("p", "q", claims=())[1]):
        made.on_pod(Action.ADD, item, 0.0)
    made.schedule_one(0.0)
    ((info, row),) = made.waiting().values()
    assert info.uid == "uid-p"
    return made.snapshot.names[row]


@pytest.mark.parametrize("seen", [pytest.param(True, id="deletion seen"), pytest.param(False, id="replaced at once")])
def test_devices_are_not_written_into_a_claim_that_was_made_again(seen: bool) -> None:
    made = cluster(n0=("gpu0",))
    before = claim(made, "c")
    hold_p(made)
    if seen:
        gone(made, before)
    claim(made, "c", uid="another")
    assert not made.waiting()
    claim(made, "d")
    made.place_on(asking("other", "d"), "n0", 1.0)
    while made.schedule_one(1.0) is not None:
        pass
    (plan,) = made.bindings
    assert plan.placed.info.uid == "uid-other"


def test_a_held_pod_is_not_bound_once_its_claim_has_other_devices() -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0",))
    claim(made, "c")
    node = hold_p(made)
    shown(made, "c", {"n0": "n1", "n1": "n0"}[node])
    made.schedule_one(1.0)
    assert "uid-p" not in [plan.placed.info.uid for plan in made.bindings]
    assert "changed while the pod was held" in str([each.message for each in made.outcomes])


def test_a_consumer_of_a_claim_that_does_not_come_is_taken_out() -> None:
    made = cluster(n0=("gpu0",))
    claim(made, "c")
    pods = gang("p", "q")
    for each in pods:
        made.on_pod(Action.ADD, each, 0.0)
    while made.schedule_one(0.0) is not None:
        pass
    made.bound(made.bindings.popleft(), 1.0)
    made.on_pod(Action.DELETE, pods[1], 2.0)
    shown(made, "c", "n0", "p", "q")
    made.tick(3.0)
    (write,) = [write for write in made.writes if write.resource is CLAIMS]
    assert [each["name"] for each in bodies((write,))[0]["status"]["reservedFor"]] == ["p"]


def test_pods_that_did_not_come_are_taken_out_of_a_claim_together_and_then_forgotten() -> None:
    made = cluster(n0=("gpu0",))
    claim(made, "c")
    pods = gang("p", "q", "r")
    for each in pods:
        made.on_pod(Action.ADD, each, 0.0)
    while made.schedule_one(0.0) is not None:
        pass
    made.tick(600.0)
    made.bind_failed(made.bindings.popleft(), "in doubt", 600.0)
    for each in pods:
        made.on_pod(Action.DELETE, each, 601.0)
    shown(made, "c", "n0", "p", "q", "r")
    made.tick(602.0)
    (write,) = [write for write in made.writes if write.resource is CLAIMS]
    assert bodies((write,))[0]["status"] == {"reservedFor": None}
    plugin = made.plugins["DynamicResources"]
    assert isinstance(plugin, DynamicResources)
    shown(made, "c", "n0")
    made.tick(603.0)
    assert plugin._leaving, "a late write may still reserve the claim"
    made.tick(661.0)
    assert not plugin._leaving


@pytest.mark.parametrize("meanwhile", [False, True])
def test_finalizer_devices_and_consumer_are_written_in_this_order(meanwhile: bool) -> None:
    made = cluster(n0=("gpu0",))
    answers: Queue[BindAnswer | WriteFailure] = Queue()
    with Twin() as twin:
        meta = {"name": "c", "namespace": "default", "finalizers": ["a.io/seen"]}
        twin.load(RESOURCE_CLAIMS, [{"metadata": meta, "spec": {}}])
        twin.load(PODS, [{"metadata": {"name": "p", "namespace": "default", "uid": "uid-p"}, "spec": {}}])
        (item,) = twin.objects(RESOURCE_CLAIMS).values()
        seen = item["metadata"]
        claim(made, "c", finalizers=["a.io/seen"], uid=seen["uid"], resourceVersion=seen["resourceVersion"])
        plan = attempt(made, asking("p", "c"))
        assert isinstance(plan, BindingPlan)
        if meanwhile:
            twin.client().patch(CLAIMS, Key("default", "c"), merge_patch({"metadata": {"labels": {"a": "b"}}}))
        writer = Writer(twin.client(), 1, answers.put)
        writer.bind(plan)
        answer = answers.get(timeout=20)
        writer.stop()
        (item,) = twin.objects(RESOURCE_CLAIMS).values()
    assert isinstance(answer, BindAnswer)
    assert ("409" in answer.error) is meanwhile
    assert item["metadata"]["finalizers"] == ["a.io/seen"] + [FINALIZER] * (not meanwhile)
    assert ("allocation" in item.get("status", {})) is not meanwhile


def test_a_device_is_taken_from_the_choice_until_the_claim_is_gone() -> None:
    made = cluster(n0=("gpu0",))
    for name in ("c", "d"):
        claim(made, name)
    plan = attempt(made, asking("p", "c"))
    assert isinstance(plan, BindingPlan)
    no_room = "0/1 nodes are available: 1 node(s) could not allocate all resource claims."
    assert attempt(made, asking("q", "d")) == no_room
    made.bound(plan, 1.0)
    assert attempt(made, asking("r", "d")) == no_room
    results = [{"request": "r", "driver": "d.io", "pool": "n0", "device": "gpu0"}]
    shown = claim(made, "c", status={"allocation": {"devices": {"results": results}}})
    assert attempt(made, asking("s", "d")) == no_room
    gone(made, shown, 2.0)
    assert isinstance(attempt(made, asking("t", "d"), 20.0), BindingPlan)


def test_a_shared_claim_keeps_its_pods_on_the_nodes_that_reach_its_devices() -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0",))
    claim(made, "c")
    assert isinstance(attempt(made, asking("p", "c")), BindingPlan)
    assert "is being allocated for another pod" in str(attempt(made, asking("q", "c")))
    results = [{"request": "r", "driver": "d.io", "pool": "n1", "device": "gpu0"}]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    status = {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    }
    claim(made, "c", status=status, finalizers=[FINALIZER])
    plan = attempt(made, asking("r", "c"), 10.0)
    assert isinstance(plan, BindingPlan)
    assert plan.placed.node == "n1"
    (body,) = bodies(plan.writes)
    assert not any(write.continues for write in plan.writes)
    assert [each["name"] for each in body["status"]["reservedFor"]] == ["p", plan.placed.info.pod.metadata.name]
    assert "allocation" not in body["status"]


def test_what_was_written_for_a_binding_that_failed_is_taken_back() -> None:
    made = cluster(n0=("gpu0",))
    claim(made, "c")
    claim(made, "d")
    plan = attempt(made, asking("p", "c"))
    assert isinstance(plan, BindingPlan)
    made.bind_failed(plan, "the pod is gone", 1.0)
    assert "could not allocate" in str(attempt(made, asking("q", "d"), 1.0)), "it is unknown what was written"
    claim(made, "c", status={"reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]})
    made.on_pod(Action.DELETE, asking("p", "c"), 2.0)
    made.tick(2.0)
    (write,) = [write for write in made.writes if write.resource is CLAIMS]
    assert bodies((write,))[0]["status"] == {"reservedFor": None}
    claim(made, "c")
    made.tick(70.0)
    assert isinstance(attempt(made, asking("r", "d"), 70.0), BindingPlan)


def on_n0() -> dict[str, Any]:
    results = [{"request": "r", "driver": "d.io", "pool": "n0", "device": "gpu0"}]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}


def with_a_cpu(name: str) -> Pod:
    return asking(name, "c", container={"resources": {"requests": {"cpu": "1"}}})


def test_devices_on_a_node_without_room_are_given_back() -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0",))
    made.on_pod(Action.ADD, pod("old", {"cpu": "4"}, nodeName="n0"), 0.0)
    claim(made, "c", status={"allocation": on_n0()})
    refused = attempt(made, with_a_cpu("p"))
    assert "did not reach the devices" in str(refused)
    made.tick(1.0)
    (write,) = [write for write in made.writes if write.resource is CLAIMS]
    assert bodies((write,))[0]["status"] == {"allocation": None, "reservedFor": None}
    claim(made, "c")
    outcome = made.schedule_one(10.0)
    assert outcome is not None
    assert outcome.node == "n1"


def test_devices_stay_with_a_claim_that_another_pod_began_to_use() -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0",))
    made.on_pod(Action.ADD, pod("old", {"cpu": "4"}, nodeName="n0"), 0.0)
    claim(made, "c", status={"allocation": on_n0()})
    assert isinstance(attempt(made, with_a_cpu("a")), str)
    plan = attempt(made, asking("b", "c"))
    assert isinstance(plan, BindingPlan)
    made.tick(1.0)
    assert [write for write in made.writes if write.resource is CLAIMS] == [], "b is being bound"
    made.bound(plan, 1.0)

    assert isinstance(attempt(made, with_a_cpu("d"), 2.0), str)
    consumers = [{"resource": "pods", "name": "b", "uid": "uid-b"}]
    claim(made, "c", status={"allocation": on_n0(), "reservedFor": consumers}, resourceVersion="2")
    made.tick(3.0)
    assert [write for write in made.writes if write.resource is CLAIMS] == []


def test_a_claim_that_changed_since_keeps_its_devices() -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0",))
    made.on_pod(Action.ADD, pod("old", {"cpu": "4"}, nodeName="n0"), 0.0)
    claim(made, "c", status={"allocation": on_n0()})
    assert isinstance(attempt(made, with_a_cpu("a")), str)
    claim(made, "c", status={"allocation": on_n0()}, resourceVersion="2")
    made.tick(1.0)
    assert [write for write in made.writes if write.resource is CLAIMS] == []


def test_devices_are_not_given_back_for_want_of_cpus_on_every_node() -> None:
    made = cluster(n0=("gpu0",), n1=("gpu0",))
    for name in ("n0", "n1"):
        made.on_pod(Action.ADD, pod(f"on-{name}", {"cpu": "4"}, nodeName=name), 0.0)
    claim(made, "c", status={"allocation": on_n0()})
    assert "Insufficient cpu" in str(attempt(made, with_a_cpu("a")))
    made.tick(1.0)
    assert [write for write in made.writes if write.resource is CLAIMS] == []


def test_claims_of_a_template_are_the_pods_own() -> None:
    made = cluster(n0=("gpu0",))
    stated = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    waiting = pod("p", resourceClaims=stated)
    assert "waiting for the pod's resource claims" in str(attempt(made, waiting))
    named = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}
    claim(made, "p-gpu-x", ownerReferences=[{"controller": True, "kind": "Pod", "name": "p", "uid": "uid-p"}])
    assert isinstance(attempt(made, pod("p", resourceClaims=stated, status=named), 5.0), BindingPlan)
    assert "was not created for the pod" in str(attempt(made, pod("q", resourceClaims=stated, status=named), 6.0))
    none = {"resourceClaimStatuses": [{"name": "gpu"}]}
    assert isinstance(attempt(made, pod("r", resourceClaims=stated, status=none), 7.0), BindingPlan)


def test_a_reservation_takes_no_devices() -> None:
    made = cluster(n0=("gpu0",))
    claim(made, "c")
    info = made.classes.info(asking("p", "c"))
    info.stand_in = True
    made.enqueue(info)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    assert "a reservation whose template has resource claims is not supported" in outcome.message
    assert not made.bindings


def test_what_is_not_served_is_refused_with_its_name() -> None:
    made = cluster(n0=("gpu0",))
    document = claim(made, "c")
    document["spec"]["devices"]["requests"] = [{"name": "r", "oneOf": [{"name": "s"}]}]
    show(made, CLAIMS, document)
    assert "claim c, request r: oneOf: not supported by this scheduler" in str(attempt(made, asking("p", "c")))
    exactly = {"deviceClassName": "none"}
    document["metadata"]["name"] = "e"
    document["spec"]["devices"]["requests"] = [{"name": "r", "exactly": exactly}]
    show(made, CLAIMS, document)
    assert "no device class none" in str(attempt(made, asking("q", "e")))
    document["spec"]["devices"]["requests"] = [{"name": "r", "exactly": {"deviceClassName": "any", "count": "x"}}]
    show(made, CLAIMS, document)
    assert "nodes are available" in str(attempt(made, asking("s", "e")))
    claim(made, "f", kind='gpu" && device.attributes["d.io"].none == "x')
    assert "on which a claim's selector fails" in str(attempt(made, asking("t", "f")))
