"""Sums over nodes, pods and reports: by class and owner, the same after any order of changes."""

import random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cluster.resources import Key, Resource
from cluster.store import DeltaType, StoreDelta
from controllers.capacity.cluster_use import Cell, ClusterUseTable, worst_owners
from controllers.kinds import NODE, NODE_METRIC, POD
from controllers.runtime.cluster_use_metrics import ClusterUseMetrics
from tests.capacity import G, a_node, a_pod, a_report, a_usage

BATCH = {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "1G"}


def change(table: ClusterUseTable, resource: Resource[Any], name: str, new: Any) -> None:
    kind = DeltaType.DELETED if new is None else DeltaType.ADDED
    table.apply(resource, [StoreDelta(kind, Key("", name), None, new)])


def a_cluster() -> list[tuple[Resource[Any], str, Any]]:
    published = {"kubernetes.io/batch-cpu": 40_000, "kubernetes.io/batch-memory": "50G", "kubernetes.io/mid-cpu": 3000}
    used = [
        a_usage("web", 2, "3G", priority="koord-prod", qos="LS"),
        a_usage("spark", "300m", "1G", priority="koord-batch", qos="BE"),
        a_usage("odd", 1, "1G", priority="nonsense", qos="?"),
    ]
    return [
        (NODE, "n1", a_node(published=published)),
        (POD, "web", a_pod("web", 4, "8G", qos="LS")),
        (POD, "spark", a_pod("spark", qos="BE", requests=BATCH)),
        (POD, "waits", a_pod("waits", qos="BE", requests=BATCH, node="", phase="Pending")),
        (POD, "plain", a_pod("plain", 1, "1G", qos="BE", namespace="e")),
        (POD, "done", a_pod("done", 9, "9G", phase="Succeeded")),
        (NODE_METRIC, "n1", a_report(pods=used, system=(1, "2G"))),
    ]


EXPECTED = {
    Cell("allocatable", "prod"): (100_000, 120 * G),
    Cell("allocatable", "batch"): (40_000, 50 * G),
    Cell("allocatable", "mid"): (3000, 0),
    Cell("requested", "prod"): (4000, 8 * G),
    Cell("requested", "batch"): (1500, 2 * G),
    Cell("requested", "batch", "d"): (500, 1 * G),
    Cell("requested", "batch", "e"): (1000, 1 * G),
    Cell("pending", "batch"): (500, 1 * G),
    Cell("pending", "batch", "d"): (500, 1 * G),
    Cell("used", "prod"): (3000, 4 * G),
    Cell("used", "batch"): (300, 1 * G),
    Cell("used", "batch", "d"): (300, 1 * G),
    Cell("used", "system"): (1000, 2 * G),
}


def test_sums_by_class_and_owner() -> None:
    table = ClusterUseTable()
    for resource, name, obj in a_cluster():
        change(table, resource, name, obj)
    assert table.value().sums == EXPECTED


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_changes_leads_to_the_same_sums(seed: int) -> None:
    draw, table = random.Random(seed), ClusterUseTable()
    objects = a_cluster()
    for _ in range(60):
        resource, name, obj = draw.choice(objects)
        change(table, resource, name, draw.choice([obj, None]))
    for resource, name, obj in draw.sample(objects, len(objects)):
        change(table, resource, name, obj)
    assert table.value().sums == EXPECTED
    for resource, name, _ in objects:
        change(table, resource, name, None)
    assert table.value().sums == {}


def test_only_the_largest_owners_have_series_of_their_own() -> None:
    sums = {Cell("used", "batch", f"ns{number}"): (number, number) for number in range(1, 6)}
    assert worst_owners(sums, 2) == {
        Cell("used", "batch", "ns5"): (5, 5),
        Cell("used", "batch", "ns4"): (4, 4),
        Cell("used", "batch", "[other]"): (6, 6),
    }


def test_an_owner_called_other_is_one_of_its_own() -> None:
    sums = {Cell("used", "batch", name): (cpu, cpu) for name, cpu in (("other", 5), ("web", 2), ("db", 1))}
    assert worst_owners(sums, 1) == {Cell("used", "batch", "other"): (5, 5), Cell("used", "batch", "[other]"): (3, 3)}


def test_series_are_cores_and_bytes() -> None:
    table, registry = ClusterUseTable(), CollectorRegistry()
    registry.register(ClusterUseMetrics(table.value()))
    for resource, name, obj in a_cluster():
        change(table, resource, name, obj)
    text = generate_latest(registry).decode()
    assert 'koord_manager_cluster_cpu_cores{priority="batch",state="allocatable"} 40.0' in text
    assert 'koord_manager_cluster_memory_bytes{priority="system",state="used"} 2e+09' in text
    assert 'koord_manager_owner_cpu_cores{namespace="e",priority="batch",state="requested"} 1.0' in text
