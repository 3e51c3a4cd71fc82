"""The custom kinds: manifests, schemas and structs agree, and objects of the protocol survive a round trip."""

import importlib.util
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from api.crds import (
    DEFINITIONS,
    INTERFERENCE_DETECTION_RULE,
    NODE_METRIC,
    NODE_SLO,
    POD_MIGRATION_JOB,
    RESERVATION,
    WORKLOAD_PROFILE,
    Definition,
    NodeSLO,
    definition_document,
)

MANIFESTS = Path(__file__).parents[2] / "deploy" / "crds"

SAMPLES: dict[str, dict[str, Any]] = {
    "NodeMetric": {
        "spec": {
            "metricCollectPolicy": {
                "aggregateDurationSeconds": 300,
                "reportIntervalSeconds": 60,
                "nodeAggregatePolicy": {"durations": ["5m", "10m"]},
                "nodeMemoryCollectPolicy": "usageWithoutPageCache",
            }
        },
        "status": {
            "updateTime": "2026-01-02T03:04:05Z",
            "nodeMetric": {
                "nodeUsage": {
                    "resources": {"cpu": "3200m", "memory": "8Gi"},
                    "devices": [{"type": "gpu", "id": "GPU-1", "minor": 1, "health": True}],
                },
                "aggregatedNodeUsages": [
                    {"usage": {"p95": {"resources": {"cpu": "5"}}}, "duration": "5m0s"},
                ],
                "numaUsages": [{"numaNodeID": 0, "nodeUsage": {"resources": {"cpu": "1"}}}],
            },
            "podsMetric": [
                {
                    "name": "a",
                    "namespace": "b",
                    "podUsage": {"resources": {"cpu": "1"}},
                    "priority": "koord-prod",
                    "qos": "LS",
                    "extensions": {"free": {"form": 1}},
                }
            ],
            "hostApplicationMetric": [{"name": "yarn", "usage": {"resources": {"cpu": "1"}}, "qos": "BE"}],
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "2"}}},
            "prodPeakMetric": {"resource": {"resources": {"cpu": "4"}}},
        },
    },
    "NodeSLO": {
        "spec": {
            "resourceUsedThresholdWithBE": {
                "enable": True,
                "cpuSuppressThresholdPercent": 65,
                "cpuSuppressPolicy": "cfsQuota",
                "cpuEvictBESatisfactionUpperPercent": 40,
                "cpuEvictBESatisfactionLowerPercent": 20,
                "cpuEvictBEUsageThresholdPercent": 90,
                "cpuEvictTimeWindowSeconds": 60,
                "allocatableEvictPriorityThreshold": 5999,
            },
            "resourceQOSStrategy": {
                "policies": {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"},
                "beClass": {
                    "cpuQOS": {"enable": True, "groupIdentity": -1, "schedIdle": 1},
                    "memoryQOS": {"enable": True, "wmarkRatio": 95, "wmarkMinAdj": 50, "oomKillGroup": 1},
                    "blkioQOS": {
                        "enable": True,
                        "blocks": [{"name": "sda", "type": "device", "ioCfg": {"readIOPS": 9, "modelReadBPS": 1}}],
                    },
                    "resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 30},
                    "networkQOS": {"enable": True, "ingressLimit": 30, "egressLimit": "50M"},
                },
            },
            "cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": -1},
            "systemStrategy": {"memcgReapBackGround": 1, "schedFeatures": {"ID_BOOK_CPU": True}},
            "extensions": {"anything": {"at": ["all"]}},
            "hostApplications": [
                {"name": "nginx", "qos": "LS", "cgroupPath": {"base": "CgroupRoot", "relativePath": "nginx"}}
            ],
        }
    },
    "Device": {
        "spec": {
            "devices": [
                {
                    "type": "gpu",
                    "id": "GPU-0",
                    "minor": 0,
                    "moduleID": 3,
                    "health": True,
                    "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"},
                    "topology": {"socketID": 0, "nodeID": 1, "pcieID": "p0", "busID": "0000:00:08.0"},
                    "vfGroups": [{"labels": {"type": "a"}, "vfs": [{"minor": 0, "busID": "0000:01:00.2"}]}],
                }
            ]
        }
    },
    "Reservation": {
        "spec": {
            "template": {"spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": {"periodSeconds": 9}}]}},
            "owners": [
                {"object": {"namespace": "a", "name": "b"}},
                {"controller": {"namespace": "a", "kind": "ReplicaSet", "name": "r", "controller": True}},
                {"labelSelector": {"matchLabels": {"app": "web"}}},
            ],
            "ttl": "1h",
            "allocateOnce": False,
            "allocatePolicy": "Restricted",
            "taints": [{"key": "k", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Available",
            "nodeName": "n1",
            "allocatable": {"cpu": "4"},
            "allocated": {"cpu": "1"},
            "currentOwners": [{"namespace": "a", "name": "b", "uid": "u"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Available", "lastProbeTime": "t"}],
        },
    },
    "PodMigrationJob": {
        "spec": {
            "podRef": {"namespace": "a", "name": "b", "uid": "u"},
            "mode": "ReservationFirst",
            "ttl": "5m",
            "reservationOptions": {"reservationRef": {"name": "r"}, "template": {"spec": {"ttl": "1m"}}},
            "deleteOptions": {"gracePeriodSeconds": 5},
        },
        "status": {"phase": "Running", "preemptedPodsReservation": [{"name": "x", "podsRef": [{"name": "y"}]}]},
    },
    "ClusterNetworkTopology": {
        "spec": {"networkTopologySpec": [{"topologyLayer": "SpineLayer", "labelKey": ["net/spine"]}]},
        "status": {"detailStatus": [{"topologyInfo": {"topologyLayer": "SpineLayer"}, "nodeNum": 4}]},
    },
    "ScheduleExplanation": {
        "spec": {"questionObjectKey": "a/b", "ttl": "24h"},
        "status": {
            "schedulable": True,
            "detailedExplanation": [
                {
                    "topologyDomain": "s0",
                    "scheduleExplanation": {
                        "nodeFailedDetails": [{"failedPlugin": "NodeResourcesFit", "failedNodes": ["n1"]}]
                    },
                    "nodePossibleVictims": [{"nodeName": "n1", "possibleVictims": [{"name": "v"}]}],
                }
            ],
        },
    },
    "NodeResourceTopology": {
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-1", "value": 20}],
                "attributes": [{"name": "k", "value": "v"}],
                "resources": [{"name": "cpu", "capacity": "32", "allocatable": "30", "available": "30"}],
            }
        ],
    },
    "PodGroup": {
        "spec": {"minMember": 3, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 10},
        "status": {"phase": "Scheduling", "scheduled": 1},
    },
    "ElasticQuota": {
        "spec": {"min": {"cpu": "10"}, "max": {"cpu": "20", "memory": "40Gi"}},
        "status": {"used": {"cpu": "1"}},
    },
    "ElasticQuotaProfile": {
        "spec": {
            "quotaName": "root",
            "resourceRatio": "0.9",
            "quotaLabels": {"a": "b"},
            "nodeSelector": {"matchLabels": {"pool": "x"}},
        }
    },
    "ClusterColocationProfile": {
        "spec": {
            "namespaceSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
            "selector": {"matchLabels": {"a": "b"}},
            "probability": "50%",
            "qosClass": "BE",
            "koordinatorPriority": 1000,
            "labelSuffixes": {"a": "-x"},
            "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
        }
    },
    "InterferenceDetectionRule": {
        "spec": {
            "allOf": ["cpu_contention"],
            "anyOf": ["reclaim", "compaction"],
            "unlessMeasured": ["pressure"],
            "threshold": 0.1,
            "qosThresholds": {"BE": 1.0, "LS": 0.05},
            "selector": {"paths": ["/kubepods*"], "qos": ["LS", "LSR"]},
            "ticks": 3,
            "ofTicks": 5,
            "progressRatio": 0.1,
            "leastRatio": 0.5,
            "atOnceRatio": 4.0,
            "closeRatio": 0.25,
            "holdSeconds": 20.0,
            "cooldownSeconds": 30.0,
        }
    },
    "Recommendation": {
        "spec": {"target": {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}},
        "status": {
            "podStatus": {"containerStatuses": [{"containerName": "c", "resources": {"cpu": "1"}}]},
            "conditions": [{"type": "LowConfidence", "status": "True"}],
        },
    },
    "WorkloadProfile": {
        "spec": {
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "container": "nginx",
            "nodeType": "large",
        },
        "status": {
            "resources": [
                {
                    "name": "memory-bandwidth",
                    "sensitivity": [
                        {"loadFrom": 0.0, "loadTo": 0.5, "lostSecondsPerPressure": 0.1, "samples": 40},
                        {"loadFrom": 0.5, "loadTo": 1.0, "lostSecondsPerPressure": 0.6, "error": 0.05},
                    ],
                    "aggressiveness": 0.2,
                    "aggressivenessP95": 0.4,
                }
            ],
            "usage": [
                {
                    "container": "nginx",
                    "days": 1.5,
                    "cpu": {"first": 60, "shares": [900, 0, 100]},
                    "memory": {"first": 50, "shares": [1000]},
                }
            ],
            "samples": 90,
            "replicas": 3,
            "updateTime": "2026-01-02T03:04:05Z",
        },
    },
}

ids = [definition.kind for definition in DEFINITIONS]


def sample(definition: Definition[Any]) -> dict[str, Any]:
    head = {"apiVersion": definition.api_version, "kind": definition.kind, "metadata": {"name": "x"}}
    return head | SAMPLES[definition.kind]


def schema(definition: Definition[Any]) -> dict[str, Any]:
    document = yaml.safe_load((MANIFESTS / f"{definition.name}.yaml").read_text())
    version: dict[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return version


@pytest.mark.parametrize("definition", DEFINITIONS, ids=ids)
def test_the_manifest_is_what_the_struct_says(definition: Definition[Any]) -> None:
    manifest = yaml.safe_load((MANIFESTS / f"{definition.name}.yaml").read_text())
    assert manifest == definition_document(definition), "run python deploy/crds/generate.py"


@pytest.mark.parametrize("definition", DEFINITIONS, ids=ids)
def test_kinds_of_protected_groups_name_their_approval(definition: Definition[Any]) -> None:
    # The API server refuses them otherwise.
    assert bool(definition.approval) == definition.group.endswith(("k8s.io", "kubernetes.io"))


def test_there_is_no_manifest_without_a_struct() -> None:
    assert {file.stem for file in MANIFESTS.glob("*.yaml")} == {definition.name for definition in DEFINITIONS}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=ids)
def test_a_protocol_object_fits_the_manifest_and_survives_the_struct(definition: Definition[Any]) -> None:
    document = sample(definition)
    jsonschema.validate(document, schema(definition))
    decoded = msgspec.json.decode(msgspec.json.encode(document), type=definition.model)
    again = msgspec.to_builtins(decoded)
    for part in ("spec", "status", "zones", "topologyPolicies"):
        # Fields that hold their default are left out on the wire; the object is the same.
        assert msgspec.convert(again, definition.model) == decoded
        assert _without_defaults(document.get(part, {})) == _without_defaults(again.get(part, {}))


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _without_defaults(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (False, 0, 0.0, "", [], {})}
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("definition", "change"),
    [
        pytest.param(
            NODE_SLO,
            {"spec": {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}}},
            id="suppress-over-100-percent",
        ),
        pytest.param(NODE_SLO, {"spec": {"cpuBurstStrategy": {"policy": "sometimes"}}}, id="unknown-burst-policy"),
        pytest.param(NODE_METRIC, {"status": {"nodeMetric": {"numaUsages": [{}]}}}, id="numa-usage-without-node"),
        pytest.param(RESERVATION, {"spec": {"owners": []}}, id="no-owners"),
        pytest.param(RESERVATION, {"spec": {}}, id="reservation-without-spec"),
        pytest.param(POD_MIGRATION_JOB, {"spec": {"mode": "Directly"}}, id="unknown-migration-mode"),
        pytest.param(WORKLOAD_PROFILE, {"spec": {"container": "c"}}, id="profile-without-workload"),
        pytest.param(INTERFERENCE_DETECTION_RULE, {"spec": {"anyOf": "reclaim"}}, id="any-of-a-string"),
        pytest.param(
            INTERFERENCE_DETECTION_RULE, {"spec": {"anyOf": ["reclaim"], "threshold": -0.1}}, id="negative-threshold"
        ),
        pytest.param(
            INTERFERENCE_DETECTION_RULE, {"spec": {"anyOf": ["reclaim"], "ofTicks": 61}}, id="of-ticks-over-60"
        ),
        pytest.param(
            INTERFERENCE_DETECTION_RULE, {"spec": {"anyOf": ["reclaim"], "closeRatio": 1.5}}, id="close-ratio-over-1"
        ),
        pytest.param(
            INTERFERENCE_DETECTION_RULE, {"spec": {"anyOf": ["reclaim"], "selector": {"qos": ["XL"]}}}, id="unknown-qos"
        ),
        pytest.param(
            WORKLOAD_PROFILE,
            {
                "spec": SAMPLES["WorkloadProfile"]["spec"],
                "status": {"usage": [{"container": "c", "cpu": {"shares": [1001]}}]},
            },
            id="share-over-the-whole",
        ),
        pytest.param(
            WORKLOAD_PROFILE,
            {"spec": SAMPLES["WorkloadProfile"]["spec"], "status": {"samples": -1}},
            id="negative-samples",
        ),
    ],
)
def test_the_schema_refuses_what_the_protocol_forbids(definition: Definition[Any], change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(sample(definition) | change, schema(definition))


def test_an_object_written_under_other_rules_is_still_readable() -> None:
    text = b'{"metadata":{"name":"n"},"spec":{"resourceUsedThresholdWithBE":{"cpuSuppressThresholdPercent":150,"x":1}}}'
    strategy = msgspec.json.decode(text, type=NodeSLO).spec.resource_used_threshold_with_be
    assert strategy is not None
    assert strategy.cpu_suppress_threshold_percent == 150


def _nodes(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, dict):
        return []
    children = [*(value.get("properties") or {}).values(), value.get("items"), value.get("additionalProperties")]
    return [value, *(node for child in children for node in _nodes(child))]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=ids)
def test_the_schema_is_structural(definition: Definition[Any]) -> None:
    for node in _nodes(schema(definition)):
        assert (
            node.get("type")
            or node.get("x-kubernetes-int-or-string")
            or node.get("x-kubernetes-preserve-unknown-fields")
        ), node
        # The API server refuses a definition that says both.
        assert not ("properties" in node and "additionalProperties" in node)


def test_the_generator_writes_what_is_committed() -> None:
    spec = importlib.util.spec_from_file_location("generate", MANIFESTS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for definition in DEFINITIONS:
        assert generate.path(definition).read_text() == generate.manifest(definition)
