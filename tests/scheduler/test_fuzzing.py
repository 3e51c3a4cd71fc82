"""Every annotation and label that the scheduler reads, and every body of its HTTP API, fed with hostile text.

An object is taken in or refused with a sentence; nothing raises, no plugin is left half informed, and what a pod held
is given back. Each test ends after KOORD_FUZZ_SECONDS (1 by default) of its examples.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast
from unittest import SkipTest

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import api.protocol
from api.crds import ClusterNetworkTopology, Device, ElasticQuota, NodeMetric, PodGroup, Reservation
from api.kube.claims import DeviceClass, ResourceClaim, ResourceSlice
from api.kube.numa import NodeResourceTopology
from api.kube.objects import Pod
from api.kube.resources import QuantityError
from api.kube.storage import BETA_CLASS, BIND_COMPLETED, Claim, CsiNode, PersistentVolume, StorageClass
from cluster.resources import Key
from cluster.serving import Request
from scheduler.engine import Engine
from scheduler.extender import BindingArgs, start_binding
from scheduler.framework import Action, ObjectEvent
from scheduler.gang.spec import GANG, LIGHT_MINIMUM_LABEL, LIGHT_NAME_LABEL, MATCH_POLICY_LABEL, POD_GROUP_LABEL
from scheduler.loop import Loop
from scheduler.matching.attachments import MIGRATED
from scheduler.matching.volumes import SELECTED_NODE, ZONE_LABELS
from scheduler.outcome import AttemptOutcome
from scheduler.plugins.networktopology import TOPOLOGIES
from scheduler.profile import SchedulerSettings
from scheduler.quota.spec import QUOTA
from scheduler.serving.http_api import HttpApi
from tests.hostile_text import damaged
from tests.schedobjects import node, pod

SECONDS = float(os.environ.get("KOORD_FUZZ_SECONDS", "1"))
FUZZ = settings(
    max_examples=100_000 if "KOORD_FUZZ_SECONDS" in os.environ else 60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

PREFIXED = ("name", "min-available", "total-number", "mode", "groups", "match-policy", "waiting-time")
OF_QUOTAS = (
    "name", "parent", "is-parent", "tree-id", "namespaces", "shared-weight", "total-resource", "admission",
    "allow-lent-resource", "preemptible", "is-root", "ignore-default-tree",
)  # fmt: skip
KEYS = sorted(
    {text for name, text in vars(api.protocol).items() if name.startswith(("ANNOTATION_", "LABEL_"))}
    | {GANG + name for name in PREFIXED}
    | {QUOTA + name for name in OF_QUOTAS}
    | {POD_GROUP_LABEL, LIGHT_NAME_LABEL, LIGHT_MINIMUM_LABEL, MATCH_POLICY_LABEL}
    | {BIND_COMPLETED, BETA_CLASS, SELECTED_NODE, MIGRATED, *ZONE_LABELS}
)
SEEDS = (
    "g", "3", "100m", "1Gi", "true", "Strict", "30s", "0-3,8", "LSR", "koord-prod", "Restricted",
    json.dumps(["default/g", "default/h"]),
    json.dumps({"cpu": "4", "memory": "1Gi"}),
    json.dumps({"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}]}),
    json.dumps({"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}, "extension": {"vfs": [1]}}]}),
    json.dumps({"preferredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}),
    json.dumps({"uid": "r", "name": "r"}),
    json.dumps({"reservationSelector": {"a": "b"}, "requiredDuringSchedulingIgnoredDuringExecution": {}}),
    json.dumps({"nodeNames": ["n0"], "preferredNodeNames": ["n1"]}),
    json.dumps({"usageThresholds": {"cpu": 65}, "aggregated": {"usageThresholds": {"cpu": 60}}}),
    json.dumps({"resources": {"cpu": "1"}, "reservedCPUs": "0-1", "applyPolicy": "Default"}),
    json.dumps([{"minors": [0, 1], "gpuLinkType": "NVLink", "allocationScore": "1"}]),
    json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}),
    json.dumps({"cpu": 1.5}),
    json.dumps({"gatherStrategy": [{"layer": "NodeTopologyLayer", "strategy": "MustGather", "podCountMultiple": 1}]}),
)  # fmt: skip

texts = damaged(SEEDS).map(lambda text: text.encode(errors="replace").decode())
"""JSON carries no lone surrogates: the decoder refuses them."""
marks = st.dictionaries(st.sampled_from(KEYS), texts, max_size=6)


class TimeIsUp(SkipTest):
    """Ends the generation of examples: Hypothesis lets a skipped test's exception through."""


def fuzz(*strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Decorate a check: calling it runs it on examples until the time is over."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def run() -> None:
            end = time.monotonic() + SECONDS
            failed = False

            @FUZZ
            @given(st.tuples(*strategies))
            def example(values: tuple[Any, ...]) -> None:
                nonlocal failed
                # An example that failed is run once more to be shown, however late it is.
                if not failed and time.monotonic() > end:
                    raise TimeIsUp
                failed = True
                check(*values)
                failed = False

            with suppress(TimeIsUp):
                example()

        return run

    return decorate


def test_no_example_is_generated_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.0)
    drawn: list[int] = []

    @fuzz(st.integers().map(drawn.append))
    def run(_: None) -> None:
        raise AssertionError

    run()
    assert len(drawn) == 1


def test_an_example_that_fails_late_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.05)

    @fuzz(st.integers())
    def run(_: int) -> None:
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass
        raise LookupError

    with pytest.raises(LookupError):
        run()


NETWORK = msgspec.convert(
    {"spec": {"networkTopologySpec": [{"topologyLayer": "NodeTopologyLayer"}]}}, ClusterNetworkTopology
)


def whole_engine() -> Engine:
    """Every plugin, two nodes in a network of one layer."""
    made = Engine(SchedulerSettings(extender_scheduler_names=("default-scheduler",)))
    for index in range(2):
        made.on_node(Action.ADD, node(f"n{index}"), 0.0)
    made.on_object(ObjectEvent(TOPOLOGIES, Action.ADD, Key("", "default"), None, NETWORK), 0.0)
    return made


def in_order(made: Engine) -> None:
    """No plugin faulted."""
    made.tick(1.0)
    assert not made.snapshot.faults, made.snapshot.faults


def test_annotations_and_labels_of_pods() -> None:
    made = whole_engine()

    @fuzz(marks, marks)
    def run(annotations: dict[str, str], labels: dict[str, str]) -> None:
        said: dict[str, Any] = {"annotations": annotations, "labels": labels}
        requests = {"cpu": "1", "koordinator.sh/gpu": "100"} if "3" in annotations.values() else {"cpu": "1"}
        for each in (
            pod("pending", requests, **said),
            pod("bound", requests, nodeName="n0", **said),
            pod("outside", requests, schedulerName="default-scheduler", **said),
        ):
            made.on_pod(Action.ADD, each, 0.0)
            made.schedule_one(0.0)
            in_order(made)
        for name in ("pending", "bound", "outside"):
            made.on_pod(Action.DELETE, pod(name, **said), 2.0)
        in_order(made)
        assert not made.snapshot.pods
        assert not made.snapshot.requested.any()

    run()


def test_annotations_and_labels_of_nodes() -> None:

    @fuzz(marks, marks)
    def run(annotations: dict[str, str], labels: dict[str, str]) -> None:
        made = whole_engine()
        made.on_node(Action.UPDATE, node("n0", annotations=annotations, labels=labels), 0.0)
        made.on_pod(Action.ADD, pod("p", {"cpu": "1"}), 0.0)
        outcome = made.schedule_one(0.0)
        assert outcome is not None
        assert outcome.node
        in_order(made)

    run()


KINDS = {
    "podgroups": PodGroup,
    "elasticquotas": ElasticQuota,
    "reservations": Reservation,
    "devices": Device,
    "nodemetrics": NodeMetric,
    "noderesourcetopologies": NodeResourceTopology,
    "persistentvolumeclaims": Claim,
    "persistentvolumes": PersistentVolume,
    "csinodes": CsiNode,
    "storageclasses": StorageClass,
    "resourceclaims": ResourceClaim,
}
RESERVED = {"template": {"spec": {"containers": [{"name": "c"}]}}, "owners": [{"labelSelector": {"matchLabels": {}}}]}


@pytest.mark.parametrize("plural", sorted(KINDS))
def test_annotations_and_labels_of_watched_objects(plural: str) -> None:
    made = whole_engine()
    resource = next(kind for kind in made.watched_kinds().values() if kind.plural == plural)
    namespace = "default" if resource.namespaced else ""
    fields = {"spec": RESERVED} if plural == "reservations" else {}

    @fuzz(marks, marks)
    def run(annotations: dict[str, str], labels: dict[str, str]) -> None:
        metadata = {"name": "n0", "namespace": namespace, "uid": "u", "annotations": annotations, "labels": labels}
        value = msgspec.convert({"metadata": metadata, **fields}, KINDS[plural])
        key = Key(namespace, "n0")
        try:
            made.on_object(ObjectEvent(resource, Action.ADD, key, None, value), 0.0)
        except QuantityError:
            return
        in_order(made)
        made.on_object(ObjectEvent(resource, Action.DELETE, key, value, None), 1.0)
        in_order(made)

    run()


CLAIM = {
    "metadata": {"name": "c", "namespace": "default", "uid": "c", "resourceVersion": "1"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "any",
                        "count": 2,
                        "selectors": [{"cel": {"expression": 'device.attributes["d"].x == 1'}}],
                        "tolerations": [{"operator": "Exists"}],
                        "capacity": {"requests": {"memory": "1Gi"}},
                    },
                },
                {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "any", "allocationMode": "All"}]},
            ],
            "constraints": [{"matchAttribute": "d/x"}, {"distinctAttribute": "d/y", "requests": ["s/t"]}],
            "config": [{"opaque": {"driver": "d", "parameters": {}}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {"results": [{"device": "a", "shareID": "s", "consumedCapacity": {"memory": "1"}}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": []}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    },
}
SLICE = {
    "metadata": {"name": "s"},
    "spec": {
        "driver": "d",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n0",
        "perDeviceNodeSelection": False,
        "devices": [
            {
                "name": "a",
                "attributes": {"x": {"int": 1}, "y": {"version": "1.0.0"}},
                "capacity": {"memory": {"value": "4", "requestPolicy": {"default": "2", "validValues": ["1", "2"]}}},
                "taints": [{"key": "k", "effect": "NoSchedule"}],
                "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}],
                "allowMultipleAllocations": True,
            },
            {"name": "b", "nodeName": "n1"},
        ],
        "sharedCounters": [{"name": "c", "counters": {"m": {"value": "2"}}}],
    },
}


@pytest.mark.parametrize("kind", ["resourceclaims", "resourceslices"])
def test_claims_and_slices(kind: str) -> None:
    models: dict[str, Any] = {"resourceclaims": ResourceClaim, "resourceslices": ResourceSlice}
    seeds = {"resourceclaims": CLAIM, "resourceslices": SLICE}
    made = whole_engine()
    kinds = {each.plural: each for each in made.watched_kinds().values()}
    any_class = msgspec.convert({"metadata": {"name": "any"}}, DeviceClass)
    made.on_object(ObjectEvent(kinds["deviceclasses"], Action.ADD, Key("", "any"), None, any_class), 0.0)
    plain = {**CLAIM, "status": {}}
    shown = {"resourceclaims": (plain, SLICE), "resourceslices": (SLICE, plain)}[kind]
    other = "resourceslices" if kind == "resourceclaims" else "resourceclaims"
    stated = msgspec.convert(shown[1], models[other])
    key = Key("default", "c") if other == "resourceclaims" else Key("", "s")
    made.on_object(ObjectEvent(kinds[other], Action.ADD, key, None, stated), 0.0)

    @fuzz(damaged((json.dumps(seeds[kind]), json.dumps(shown[0]))))
    def run(text: str) -> None:
        try:
            value = msgspec.json.decode(text.encode(errors="replace"), type=models[kind])
        except (msgspec.DecodeError, RecursionError):
            return
        key = Key("default", "c") if kind == "resourceclaims" else Key("", "s")
        made.on_object(ObjectEvent(kinds[kind], Action.UPDATE, key, None, value), 0.0)
        asking = pod("asks", {"cpu": "1"}, resourceClaims=[{"name": "x", "resourceClaimName": "c"}])
        made.on_pod(Action.ADD, asking, 0.0)
        made.schedule_one(0.0)
        made.on_pod(Action.DELETE, asking, 1.0)
        made.bindings.clear()
        in_order(made)

    run()


class LoopInPlace:
    """What the HTTP API asks of a loop, answered in the caller's thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def call(self, question: Callable[[], Any]) -> Any:
        return question()

    def now(self) -> float:
        return 0.0

    def bind_for_extender(self, request: BindingArgs, timeout_seconds: float) -> AttemptOutcome:
        return start_binding(self.engine, request, outside_pod(), 0.0)


def outside_pod() -> Pod:
    return pod("p", {"cpu": "1"}, schedulerName="default-scheduler")


POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "uid-p", "annotations": {"a": "b"}},
    "spec": {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "tolerations": [{"operator": "Exists"}],
    },
}
BODIES = (
    json.dumps({"Pod": POD, "NodeNames": ["n0", "n1", "gone"]}),
    json.dumps({"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "n0"}}]}}),
    json.dumps({"Pod": POD, "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}}),
    json.dumps({"Pod": POD, "NodeNameToVictims": {"n0": {"Pods": [POD], "NumPDBViolations": 1}}}),
    json.dumps({"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n0"}),
    json.dumps({"pods": [{"pod": POD}], "gone_pods": ["u"], "excluded_nodes": ["n1"]}),
)
PATHS = ("/extender/filter", "/extender/prioritize", "/extender/preempt", "/extender/bind", "/v1/placements:simulate")


@pytest.mark.parametrize("path", PATHS)
def test_bodies_of_requests(path: str) -> None:
    made = whole_engine()
    found = HttpApi(cast(Loop, LoopInPlace(made)))

    @fuzz(damaged(BODIES))
    def run(text: str) -> None:
        reply = found.answer(Request("POST", path, text.encode(errors="surrogatepass")))
        assert reply.status in (200, 400, 403, 404), (reply, text[:2000])
        in_order(made)

    run()
