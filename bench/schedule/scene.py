"""The cluster and the pods of a measurement, as documents."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

NAMESPACE = "default"
PRIORITY_CLASS = "koord-prod"
PRIORITY = 9500
RESOURCES = ("cpu", "cache", "memory-bandwidth")


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster and the pods to place on it. Pods arrive in the order of their workloads, `burst` of one at a time."""

    nodes: int
    pods: int
    workloads: int
    burst: int
    seed: int


def node_documents(scene: Scene) -> Iterator[dict[str, Any]]:
    """Nodes of three sizes in three zones."""
    for index in range(scene.nodes):
        cores = (32, 48, 64)[index % 3]
        name = f"node-{index:05d}"
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{index % 3}"}
        amounts = {"cpu": str(cores), "memory": f"{cores * 4}Gi", "pods": "250"}
        yield {
            "metadata": {"name": name, "labels": labels},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def metric_documents(scene: Scene, now: float) -> Iterator[dict[str, Any]]:
    """One report per node: between 5 and 50 percent of it in use."""
    draw = Random(scene.seed)
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for index in range(scene.nodes):
        cores = (32, 48, 64)[index % 3] * draw.uniform(0.05, 0.5)
        usage = {"cpu": f"{int(cores * 1000)}m", "memory": f"{int(cores * 4096)}Mi"}
        yield {
            "metadata": {"name": f"node-{index:05d}"},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
            "status": {"updateTime": stamp, "nodeMetric": {"nodeUsage": {"resources": usage}}},
        }


def profile_documents(scene: Scene) -> Iterator[dict[str, Any]]:
    """One profile per workload, with its own sensitivity and aggressiveness."""
    draw = Random(scene.seed + 1)
    for index in range(scene.workloads):
        resources = [
            {
                "name": name,
                "aggressiveness": draw.random(),
                "sensitivity": [
                    {"loadFrom": 0.0, "loadTo": 10.0, "lostSecondsPerPressure": draw.random() / 100, "samples": 100}
                ],
            }
            for name in RESOURCES
        ]
        yield {
            "metadata": {"name": f"app-{index}", "namespace": NAMESPACE},
            "spec": {"workload": {"kind": "ReplicaSet", "name": f"app-{index}"}, "container": "main"},
            "status": {"resources": resources, "samples": 1000},
        }


def pod_documents(scene: Scene, scheduler: str = "koord-scheduler", prefix: str = "pod") -> Iterator[dict[str, Any]]:
    """Pods of small requests, `burst` of one workload after the other; every fourth workload spreads by zone.

    They name a priority class, whose value the API server fills in; `with_priority` does so without one.
    """
    draw = Random(scene.seed + 2)
    sizes = [draw.choice((50, 100, 200, 400)) for _ in range(scene.workloads)]
    for index in range(scene.pods):
        app = index // scene.burst % scene.workloads
        name, cpu = f"app-{app}", sizes[app]
        spec: dict[str, Any] = {
            "schedulerName": scheduler,
            "priorityClassName": PRIORITY_CLASS,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": f"registry/{name}:1",
                    "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{cpu * 3}Mi"}},
                }
            ],
        }
        if app % 4 == 0:
            spec["topologySpreadConstraints"] = [
                {
                    "topologyKey": "topology.kubernetes.io/zone",
                    "maxSkew": 5,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        yield {
            "metadata": {
                "name": f"{prefix}-{index:06d}",
                "namespace": NAMESPACE,
                "labels": {"app": name, "koordinator.sh/qosClass": "LS"},
                "ownerReferences": [owner],
            },
            "spec": spec,
        }


def with_priority(document: dict[str, Any]) -> dict[str, Any]:
    """The document as the API server would show it to a scheduler: with a UID and a priority."""
    document["metadata"]["uid"] = document["metadata"]["name"]
    document["spec"]["priority"] = PRIORITY
    return document
