"""Every controller on odd objects: no plan raises, and none writes what the API server would refuse."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import controllers.plans
from api.crds import DEFINITIONS
from api.crds.definition import object_schema
from api.plugin import discover
from cluster import Key
from controllers.capacity.interference import InterferenceSettings
from controllers.kinds import (
    CONFIG_MAP,
    DEVICE,
    ELASTIC_QUOTA,
    ELASTIC_QUOTA_PROFILE,
    NODE,
    NODE_METRIC,
    NODE_RESOURCE_TOPOLOGY,
    NODE_SLO,
    POD,
)
from controllers.runtime.controller import Controller
from controllers.runtime.writes import Verb, Write, kind_name, metadata_of
from controllers.slo.config import PARTS
from tests.capacity import NOW
from tests.managed import CONFIG, built, view_of

PLANS = discover(controllers.plans, Controller)  # type: ignore[type-abstract]
MODELS = {definition.kind: definition.model for definition in DEFINITIONS}

names = st.sampled_from(["n1", "n2"])
numbers = st.sampled_from(["1", "0", "-3", "1e30", "x", "", "100m", "9" * 40, "64", "nan", 3, -1, 1.5])
resources = st.dictionaries(
    st.sampled_from(
        ["cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/mid-memory", "koordinator.sh/gpu-core"]
    ),
    numbers,
    max_size=4,
)
texts = st.sampled_from(
    ["", "{", "[]", "null", "1.2", "nan", "-1", "inf", '{"a":1}', '{"cpu":"x"}', '{"allocations":[{"resources":null}]}',
     '{"cpu":1e999}', '{"resources":{"cpu":"-9"},"reservedCPUs":"0-99999999"}', '{"usageThresholds":{"memory":"x"}}',
     '{"numaNodeResources":[{"node":-7}]}', '{"cpuModel":"m","turboEnabled":true}', '{"cpu":0.0001,"at":"x"}']
)  # fmt: skip
keys = st.sampled_from(
    ["node.koordinator.sh/colocation-strategy", "node.koordinator.sh/thirdPartyAllocations",
     "node.koordinator.sh/originExtendedAllocatable", "node.koordinator.sh/reservation",
     "node.koordinator.sh/cpu-normalization-ratio", "node.koordinator.sh/resource-amplification-ratio",
     "node.koordinator.sh/cpu-basic-info", "node.koordinator.sh/interference-factor",
     "node.koordinator.sh/managed-taints", "node.koordinator.sh/network-bandwidth",
     "scheduling.koordinator.sh/usage-thresholds", "scheduling.koordinator.sh/resource-status",
     "quota.scheduling.koordinator.sh/resource-keys", "slo.koordinator.sh/managed-extensions"]
)  # fmt: skip
labels = st.dictionaries(
    st.sampled_from(["pool", "koordinator.sh/qosClass", "koordinator.sh/priority-class",
                     "node.koordinator.sh/cpu-reclaim-ratio", "quota.scheduling.koordinator.sh/tree-id",
                     "node.koordinator.sh/cpu-normalization-enabled"]),
    st.sampled_from(["x", "BE", "LSE", "koord-batch", "1e9", "true", ""]),
    max_size=3,
)  # fmt: skip
times = st.sampled_from([None, "", "x", "2027-01-15T08:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
usages = st.fixed_dictionaries({"resources": resources})


def meta(*, namespaced: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "name": names,
            "namespace": st.just("d" if namespaced else ""),
            "resourceVersion": st.just("1"),
            "labels": labels,
            "annotations": st.dictionaries(keys, texts, max_size=4),
        }
    )


END = "9999-01-01T00:00:00Z"
verdicts = st.fixed_dictionaries(
    {
        "interference": st.sampled_from(
            [
                {},
                {"verdicts": [{"resource": "cpu", "lostSecondsPerSecond": 1e9, "until": END}]},
                {"verdicts": 3},
                None,
            ]
        )
    }
)
wishes = st.sampled_from(
    [None, {"wantedTaints": 3}, {"wantedTaints": [{"key": "node.koordinator.sh/a", "until": "9999-01-01T00:00:00Z"}]},
     {"wantedTaints": [{"key": "x" * 500, "effect": "y" * 500}]}]
)  # fmt: skip

OBJECTS = {
    NODE: st.fixed_dictionaries(
        {"metadata": meta(), "status": st.fixed_dictionaries({"capacity": resources, "allocatable": resources})}
    ),
    POD: st.fixed_dictionaries(
        {
            "metadata": meta(namespaced=True),
            "spec": st.fixed_dictionaries(
                {
                    "nodeName": names,
                    "priority": st.sampled_from([None, 5500, 7500, 9500, -1]),
                    "containers": st.lists(
                        st.fixed_dictionaries(
                            {"resources": st.fixed_dictionaries({"requests": resources, "limits": resources})}
                        ),
                        max_size=2,
                    ),
                }
            ),
            "status": st.fixed_dictionaries({"phase": st.sampled_from(["Running", "Pending", "Failed"])}),
        }
    ),
    NODE_METRIC: st.fixed_dictionaries(
        {
            "metadata": meta(),
            "status": st.fixed_dictionaries(
                {
                    "updateTime": times,
                    "nodeMetric": st.none() | st.fixed_dictionaries({"nodeUsage": usages, "systemUsage": usages}),
                    "podsMetric": st.lists(
                        st.fixed_dictionaries(
                            {
                                "name": names,
                                "namespace": st.just("d"),
                                "podUsage": usages,
                                "qos": st.sampled_from(["", "BE", "LS", "odd"]),
                                "priority": st.sampled_from(["", "koord-batch", "odd"]),
                                "extensions": st.none() | verdicts,
                            }
                        ),
                        max_size=2,
                    ),
                    "extensions": wishes,
                }
            ),
        }
    ),
    NODE_SLO: st.fixed_dictionaries({"metadata": meta()}),
    NODE_RESOURCE_TOPOLOGY: st.fixed_dictionaries(
        {
            "metadata": meta(),
            "zones": st.lists(
                st.fixed_dictionaries(
                    {
                        "name": st.sampled_from(["node-0", "node-1", "node-99999", "x", ""]),
                        "type": st.sampled_from(["Node", "Die", ""]),
                        "resources": st.lists(
                            st.fixed_dictionaries({"name": st.sampled_from(["cpu", "memory"]), "capacity": numbers}),
                            max_size=2,
                        ),
                    }
                ),
                max_size=2,
            ),
        }
    ),
    DEVICE: st.fixed_dictionaries(
        {
            "metadata": meta(),
            "spec": st.fixed_dictionaries(
                {
                    "devices": st.lists(
                        st.fixed_dictionaries(
                            {
                                "type": st.sampled_from(["gpu", "rdma", "x"]),
                                "health": st.booleans(),
                                "resources": resources,
                            }
                        ),
                        max_size=2,
                    )
                }
            ),
        }
    ),
    ELASTIC_QUOTA: st.fixed_dictionaries(
        {"metadata": meta(namespaced=True), "spec": st.fixed_dictionaries({"min": resources, "max": resources})}
    ),
    ELASTIC_QUOTA_PROFILE: st.fixed_dictionaries(
        {
            "metadata": meta(namespaced=True),
            "spec": st.fixed_dictionaries(
                {
                    "quotaName": names,
                    "nodeSelector": st.sampled_from([{}, {"matchLabels": {"pool": "x"}}]),
                    "resourceRatio": st.sampled_from([None, "x", "nan", "0.5"]),
                }
            ),
        }
    ),
}
CONFIGS = st.dictionaries(
    st.sampled_from(PARTS),
    st.sampled_from(
        ['{"enable":true}', "{", "[]", '{"clusterStrategy":{"enable":true}}', '{"enable":true,"defaultRatio":2}',
         '{"enable":true,"resourceAmplificationRatio":{"cpu":1.5}}', '{"a":{"clusterStrategy":{"b":1}}}',
         '{"resourcePools":{"clusterStrategy":{"pools":[{"name":"b","priorityClasses":["koord-batch"]}]}}}',
         '{"resourcePools":{"clusterStrategy":{"pools":[{"name":"a","labels":{"a":"b"},"leastSensitivity":0}]}}}',
         '{"resourcePools":{"clusterStrategy":{"pools":[{"name":7},"x"]}}}',
         '{"enable":true,"midReclaimMode":"static","midStaticCPUReservedPercent":50}']
    ),
    max_size=4,
)  # fmt: skip


@st.composite
def clusters(draw: st.DrawFn) -> dict[Any, list[Any]]:
    """Draw objects of all kinds; documents that do not decode to their kind are what informers pass over."""
    found: dict[Any, list[Any]] = {}
    for resource, documents in OBJECTS.items():
        found[resource] = []
        for document in draw(st.lists(documents, max_size=2)):
            try:
                found[resource].append(msgspec.convert(document, resource.model))
            except msgspec.ValidationError:
                continue
    name = {"name": CONFIG.name, "namespace": CONFIG.namespace}
    found[CONFIG_MAP] = [msgspec.convert({"metadata": name, "data": draw(CONFIGS)}, CONFIG_MAP.model)]
    return found


def allowed(write: Write) -> None:
    """Check what the server would refuse: odd names, values that are no texts, objects beside their schema."""
    json.dumps(msgspec.to_builtins(write.body), allow_nan=False)
    assert write.reason
    if write.verb is not Verb.CREATE:
        assert write.version == "1"
    metadata = write.body.get("metadata", {}) if isinstance(write.body, Mapping) else {}
    if isinstance(metadata, Mapping):
        for part in ("labels", "annotations"):
            assert all(isinstance(text, str | None) for text in metadata.get(part, {}).values())
    status = write.body.get("status", {}) if isinstance(write.body, Mapping) else {}
    for part in ("capacity", "allocatable"):
        for text in (status.get(part) or {}).values():
            assert text is None or (text.isdigit() and int(text) < 2**63)
    if write.resource.kind in MODELS and write.verb is Verb.CREATE:
        object_schema(MODELS[write.resource.kind])
        msgspec.convert(msgspec.to_builtins(write.body), MODELS[write.resource.kind])


@pytest.mark.parametrize("name", sorted(PLANS))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cluster=clusters())
def test_any_objects_give_writes_that_may_be_made(name: str, cluster: dict[Any, list[Any]]) -> None:
    kind = PLANS[name]
    options: dict[str, Any] = {}
    if name == "overcommit":
        options["interference"] = InterferenceSettings(enabled=True)
    if name == "node_slo":
        options["pool_outlook"] = True
    controller = built(kind, **options)
    writes = controller.plan(view_of(controller, cluster), NOW)
    for write in writes.writes:
        allowed(write)
    for warning in writes.warnings:
        assert warning.note
        assert warning.regarding.name
    view = view_of(controller, cluster)
    for resource, objects in cluster.items():
        for each in objects:
            meta_of = metadata_of(each)
            controller.explain(view, kind_name(resource), Key(meta_of.namespace, meta_of.name), NOW)


def test_every_plan_says_what_it_does_and_has_a_test_of_its_own() -> None:
    for name, kind in PLANS.items():
        assert kind.__doc__, name
        assert kind.explain is not Controller.explain, f"controller {name} explains nothing"
        assert Path(__file__).with_name(f"test_{name}.py").exists(), f"controller {name} has no test"
