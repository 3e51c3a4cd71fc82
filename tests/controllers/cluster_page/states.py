"""Clusters for the tests of the cluster page: nodes, reports and profiles."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.kube.times import rfc3339
from controllers.cluster_page.summary import summary
from controllers.cluster_page.values import ClusterState
from controllers.kinds import Node, ShownProfile
from tests.capacity import a_node

NOW = 1_800_000_000.0
WEB, DB, BATCH = "Deployment/shop/web", "StatefulSet/shop/db", "Job/jobs/train"
HOSTILE = '<script>window.broken=1</script>"onmouseover="window.broken=1\u202egnp.'


def a_verdict(lost: float, culprits: Mapping[str, float], resource: str = "cpu", **more: Any) -> dict[str, Any]:
    return {
        "resource": resource,
        "lostSecondsPerSecond": lost,
        "culprits": list(culprits),
        "shares": list(culprits.values()),
        "until": rfc3339(NOW + 60),
        **more,
    }


def a_pod(workload: str, number: int = 0, verdicts: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    namespace, name = (*workload.split("/"), "", "")[1:3]
    extensions: dict[str, Any] = {"workload": workload}
    if verdicts:
        extensions["interference"] = {"verdicts": list(verdicts)}
    return {"name": f"{name}-{number}", "namespace": namespace, "extensions": extensions}


def a_metric(node: str, pods: Sequence[Mapping[str, Any]], *, age: float = 20.0, cpu: str = "6") -> NodeMetric:
    status = {
        "updateTime": rfc3339(NOW - age),
        "podsMetric": list(pods),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu}}},
    }
    return msgspec.convert({"metadata": {"name": node}, "status": status}, NodeMetric)


def a_profile(workload: str, **resources: tuple[float, float, float]) -> ShownProfile:
    """A profile of sensitivity, its error and aggressiveness by resource."""
    kind, namespace, name = workload.split("/")
    listed = [
        {
            "name": resource.replace("_", "-"),
            "sensitivity": [
                {"loadFrom": 0, "loadTo": 100, "lostSecondsPerPressure": sensitivity, "error": error, "samples": 60}
            ],
            "aggressiveness": aggressiveness,
        }
        for resource, (sensitivity, error, aggressiveness) in resources.items()
    ]
    document = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"workload": {"kind": kind, "name": name}, "container": ""},
        "status": {"resources": listed},
    }
    return msgspec.convert(document, ShownProfile)


def cluster(
    nodes: Sequence[Node], metrics: Sequence[NodeMetric] = (), profiles: Sequence[ShownProfile] = ()
) -> ClusterState:
    return summary(nodes, metrics, profiles, NOW, version="0.1.0", leading=True)


def quiet() -> ClusterState:
    """Return a cluster in which nothing is wrong."""
    return cluster([a_node("n1", 8)], [a_metric("n1", [a_pod(WEB)])])


def busy() -> ClusterState:
    """Return a cluster with losses, profiles, a slow node and one that is silent."""
    slow = {"annotations": {"node.koordinator.sh/slow-ratio": "1.32"}}
    nodes = [a_node(f"node-{number}", 8, **(slow if number == 3 else {})) for number in range(1, 8)]
    web_loses = a_pod(WEB, 1, [a_verdict(0.38, {BATCH: 0.8, "kernel": 0.1})])
    db_loses = a_pod(DB, 0, [a_verdict(0.07, {BATCH: 0.5, WEB: 0.2}, "block-io")])
    metrics = [
        a_metric("node-1", [a_pod(WEB, 0), a_pod(DB, 1)]),
        a_metric("node-2", [web_loses, a_pod(BATCH, 0), a_pod(BATCH, 1)], cpu="7800m"),
        a_metric("node-3", [db_loses, a_pod(BATCH, 2), a_pod(WEB, 3)]),
        a_metric("node-4", [a_pod("Deployment/shop/cache", 0)], age=900),
        a_metric("node-5", [a_pod(WEB, 4)]),
        a_metric("node-6", [a_pod("DaemonSet/logs/shipper", 6)]),
    ]
    profiles = [
        a_profile(WEB, cpu=(1.9, 0.2, 0.05), cache=(0.4, 0.1, 0.02)),
        a_profile(DB, block_io=(0.9, 0.3, 0.3), cpu=(0.3, 0.1, 0.1)),
        a_profile(BATCH, cpu=(0.0, 0.0, 0.22), cache=(0.0, 0.0, 0.4), block_io=(0.0, 0.0, 0.06)),
        a_profile("Deployment/shop/cache", memory_bandwidth=(0.5, 0.2, 0.1)),
    ]
    return cluster(nodes, metrics, profiles)


def hostile() -> ClusterState:
    """Return a cluster whose reports name what would break the page."""
    metrics = [
        a_metric(HOSTILE, [a_pod(WEB, 0, [a_verdict(0.4, {HOSTILE: 0.5, f"Job/a/{HOSTILE[:7]}": 0.4}, HOSTILE)])])
    ]
    return cluster([a_node(HOSTILE, 8)], metrics, [a_profile(WEB, cpu=(1.0, 0.1, 0.1))])
