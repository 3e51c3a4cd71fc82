"""Nodes, pods, workloads and sessions for the tests of the descheduler."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.kube.objects import Node, Pod, PodDisruptionBudget
from api.kube.times import rfc3339
from cluster import DeltaType, Key, Resource, StoreDelta
from controllers.descheduler.cluster_view import Cluster, node_ready
from controllers.descheduler.eviction_filter import EvictionFilter, FilterArgs, Refusal
from controllers.descheduler.kinds import (
    BUDGET,
    EVERYTHING,
    MIGRATION,
    NODE,
    NODE_METRIC,
    POD,
    RESERVATION,
    WORKLOADS,
    WorkloadObject,
)
from controllers.descheduler.plugin import AnyPlugin, Plugin, Session, Wanted
from controllers.runtime.view import ClusterCopy, View
from controllers.runtime.writes import metadata_of

NOW = 1_800_000_000.0
Objects = Mapping[Resource[Any], Sequence[Any]]
DEPLOYMENT = WORKLOADS[1]


def a_node(name: str, cpu: object = 10, memory: object = "100G", pods: int = 110, **more: Any) -> Node:
    """Return a Ready node."""
    resources = {"cpu": str(cpu), "memory": str(memory), "pods": str(pods)}
    labels = {"kubernetes.io/hostname": name, **more.get("labels", {})}
    document = {
        "metadata": {"name": name, "labels": labels, "resourceVersion": "1"},
        "spec": more.get("spec", {}),
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
        },
    }
    return msgspec.convert(document, Node)


def pod_document(
    name: str,
    node: str = "a",
    *,
    cpu: object = 1,
    memory: object = "1G",
    owner: str = "web",
    kind: str = "ReplicaSet",
    ready: bool = True,
    phase: str = "Running",
    age_seconds: float = 3600.0,
    priority: int | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **meta: Any,
) -> dict[str, Any]:
    """Return a pod with a controller (`owner` empty: a bare one)."""
    owners = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}]
    return {
        "metadata": {
            "name": name,
            "namespace": meta.pop("namespace", "shop"),
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": rfc3339(NOW - age_seconds),
            "ownerReferences": owners if owner else [],
            **meta,
        },
        "spec": {
            "nodeName": node,
            "priority": priority,
            "schedulerName": "koord-scheduler",
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu), "memory": str(memory)}}}
            ],
            **(spec or {}),
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **(status or {}),
        },
    }


def a_pod(name: str, node: str = "a", **more: Any) -> Pod:
    """Return a pod, as `pod_document`."""
    return msgspec.convert(pod_document(name, node, **more), Pod)


def a_workload(name: str = "web", replicas: int = 5, **more: Any) -> WorkloadObject:
    """Return a workload at rest, with the uid that `a_pod` names."""
    document = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": more.pop("generation", 1),
            **more.pop("metadata", {}),
        },
        "spec": {"replicas": replicas, **more.pop("spec", {})},
        "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas, **more},
    }
    return msgspec.convert(document, WorkloadObject)


def a_report(
    node: str,
    pods: Mapping[str, object] | None = None,
    *,
    system: object = 0,
    memory: object = "1G",
    updated: float = NOW,
    extensions: Mapping[str, Mapping[str, Any]] | None = None,
) -> NodeMetric:
    """Return a node's report; `pods` maps names to the cpus that they use."""
    reported = [
        {
            "name": name,
            "namespace": "shop",
            "podUsage": {"resources": {"cpu": str(cpu), "memory": str(memory)}},
            **({"extensions": extensions[name]} if name in (extensions or {}) else {}),  # type: ignore[index]
        }
        for name, cpu in (pods or {}).items()
    ]
    usage = {"resources": {"cpu": str(system), "memory": "0"}}
    document = {
        "metadata": {"name": node, "resourceVersion": "1"},
        "status": {
            "updateTime": rfc3339(updated),
            "nodeMetric": {"systemUsage": usage, "nodeUsage": usage},
            "podsMetric": reported,
        },
    }
    return msgspec.convert(document, NodeMetric)


def a_budget(allowed: int, **labels: str) -> PodDisruptionBudget:
    """Return a disruption budget."""
    document = {
        "metadata": {"name": f"budget-{allowed}", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(document, PodDisruptionBudget)


def a_view(objects: Objects, *, full: bool = True) -> View:
    """Return the view of a cluster that has these objects."""
    copy = ClusterCopy(EVERYTHING, ())
    copy.register("it")
    for resource, listed in objects.items():
        deltas = []
        for each in listed:
            meta = metadata_of(each)
            deltas.append(StoreDelta(DeltaType.ADDED, Key(meta.namespace, meta.name), None, each))
        copy.apply(resource, deltas)
    return copy.view("it", full=full)


def a_cluster(nodes: Sequence[Node] = (), pods: Sequence[Pod] = (), **more: Sequence[Any]) -> Cluster:
    """Return a cluster; more: reports, budgets, workloads (ReplicaSets), deployments, jobs, reservations."""
    kinds = {
        "reports": NODE_METRIC,
        "budgets": BUDGET,
        "workloads": WORKLOADS[0],
        "deployments": DEPLOYMENT,
        "jobs": MIGRATION,
        "reservations": RESERVATION,
    }
    return Cluster(a_view({NODE: nodes, POD: pods, **{kinds[name]: listed for name, listed in more.items()}}))


def a_plugin(kind: type[Plugin[Any]], **args: Any) -> AnyPlugin:
    """Return a plugin with arguments by their names in configurations."""
    return kind(msgspec.convert(args, kind.args_type))


def ran(
    plugin: AnyPlugin,
    cluster: Cluster,
    now: float = NOW,
    *,
    admit: Callable[[Wanted], Refusal | None] = lambda _: None,
    **filter_args: Any,
) -> Session:
    """Run a plugin once; limits of nodes and workloads are off unless given."""
    loose = {
        "max_migrating_per_node": None,
        "max_migrating_per_workload": "100%",
        "max_unavailable_per_workload": "100%",
    }
    args = FilterArgs(**{**loose, "skip_check_expected_replicas": True, **filter_args})
    nodes = [node for node in cluster.nodes.values() if node_ready(node)]
    session = Session(cluster, now, nodes, EvictionFilter(cluster, args), plugin.args, plugin.name, admit)
    plugin.run(session)
    return session


def moved(session: Session) -> list[str]:
    """Return the names of the pods that a session moves, in order."""
    return [each.pod.metadata.name for each in session.wanted]
