"""Pods, nodes, bindings and evictions, the same against every server."""

import pytest

from cluster import (
    CONFIG_MAPS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    Binding,
    BindOutcome,
    Conflict,
    DeleteOptions,
    EvictionOutcome,
    Key,
    bind,
    evict,
    merge_patch,
    strategic_patch,
)
from tests.cluster.conftest import Site, config_map


def test_strategic_patch_merges_lists_by_name(site: Site) -> None:
    site.client.create(PODS, site.pod("a"))
    body = {"spec": {"containers": [{"name": "main", "image": "registry.invalid/other"}]}}
    pod = site.client.patch(PODS, site.key("a"), strategic_patch(body))
    assert [item["image"] for item in pod["spec"]["containers"]] == ["registry.invalid/other"]
    conditions = [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]
    for condition in conditions:
        body = {"status": {"conditions": [condition]}}
        pod = site.client.patch(PODS, site.key("a"), strategic_patch(body), subresource="status")
    assert {item["type"]: item["status"] for item in pod["status"]["conditions"]} == {"A": "True", "B": "False"}


def test_spec_and_status_are_written_apart(site: Site) -> None:
    site.client.create(PODS, site.pod("a") | {"status": {"phase": "Running"}})
    assert site.client.get(PODS, site.key("a"))["status"]["phase"] == "Pending"
    both = {"metadata": {"labels": {"l": "1"}}, "status": {"phase": "Running", "message": "m"}}
    pod = site.client.patch(PODS, site.key("a"), merge_patch(both))
    assert (pod["metadata"]["labels"], pod["status"]["phase"]) == ({"l": "1"}, "Pending")
    both = {"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"}}
    pod = site.client.patch(PODS, site.key("a"), merge_patch(both), subresource="status")
    assert pod["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in pod["spec"]


def test_a_pod_is_bound_once(site: Site) -> None:
    created = site.client.create(PODS, site.pod("a"))
    uid = created["metadata"]["uid"]
    placed = Binding(site.key("a"), uid, "n1", {"koordinator.sh/x": "1"})
    assert bind(site.client, Binding(site.key("a"), "another-uid", "n1")) is BindOutcome.REPLACED
    assert bind(site.client, placed) is BindOutcome.BOUND
    # Asking again for the same node is no second binding.
    assert bind(site.client, placed) is BindOutcome.BOUND
    assert bind(site.client, Binding(site.key("a"), uid, "n2")) is BindOutcome.ELSEWHERE
    assert bind(site.client, Binding(site.key("b"), "", "n1")) is BindOutcome.GONE
    pod = site.client.get(PODS, site.key("a"))
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"]["koordinator.sh/x"] == "1"
    assert {"PodScheduled": "True"}.items() <= {c["type"]: c["status"] for c in pod["status"]["conditions"]}.items()


def test_a_gated_pod_is_not_bound(site: Site) -> None:
    site.client.create(PODS, site.pod("a", schedulingGates=[{"name": "wait.example/here"}]))
    with pytest.raises(Conflict):
        bind(site.client, Binding(site.key("a"), "", "n1"))


def test_a_bound_pod_ends_gracefully_and_an_unbound_one_at_once(site: Site) -> None:
    for name in ("bound", "free"):
        site.client.create(PODS, site.pod(name))
    bind(site.client, Binding(site.key("bound"), "", "n1"))
    assert site.client.delete(PODS, site.key("free"))
    assert site.client.find(PODS, site.key("free")) is None
    assert site.client.delete(PODS, site.key("bound"), DeleteOptions(grace_period_seconds=20))
    terminating = site.client.get(PODS, site.key("bound"))
    assert terminating["metadata"]["deletionGracePeriodSeconds"] == 20
    assert bind(site.client, Binding(site.key("bound"), "", "n2")) is BindOutcome.ELSEWHERE
    site.client.delete(PODS, site.key("bound"), DeleteOptions(grace_period_seconds=0))
    assert site.client.find(PODS, site.key("bound")) is None


def test_deletion_heeds_preconditions_and_finalizers(site: Site) -> None:
    created = config_map(site, "a")
    created["metadata"]["finalizers"] = ["koordinator.sh/wait"]
    created = site.client.create(CONFIG_MAPS, created)
    with pytest.raises(Conflict):
        site.client.delete(CONFIG_MAPS, site.key("a"), DeleteOptions(uid="another"))
    site.client.delete(CONFIG_MAPS, site.key("a"), DeleteOptions(uid=created["metadata"]["uid"]))
    assert site.client.get(CONFIG_MAPS, site.key("a"))["metadata"]["deletionTimestamp"]
    site.client.patch(CONFIG_MAPS, site.key("a"), merge_patch({"metadata": {"finalizers": None}}))
    assert site.client.find(CONFIG_MAPS, site.key("a")) is None


def budget(site: Site, name: str, *, allowed: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    metadata = {"name": name, "namespace": site.namespace}
    created = site.client.create(POD_DISRUPTION_BUDGETS, {"metadata": metadata, "spec": spec})
    status = {
        "observedGeneration": created["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
        "expectedPods": 1 + allowed,
    }
    key = site.key(name)
    site.client.patch(POD_DISRUPTION_BUDGETS, key, merge_patch({"status": status}), subresource="status")


def running(site: Site, name: str) -> str:
    created = site.client.create(PODS, site.pod(name, labels={"app": "web"}))
    assert bind(site.client, Binding(site.key(name), "", "n1")) is BindOutcome.BOUND
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    site.client.patch(PODS, site.key(name), strategic_patch({"status": status}), subresource="status")
    uid: str = created["metadata"]["uid"]
    return uid


def test_eviction_charges_the_budget_and_stops_at_it(site: Site) -> None:
    uids = [running(site, name) for name in ("a", "b")]
    budget(site, "web", allowed=1)
    options = DeleteOptions(uid=uids[0], grace_period_seconds=0)
    assert evict(site.client, site.key("a"), options, dry_run=True).outcome is EvictionOutcome.EVICTED
    assert site.client.find(PODS, site.key("a")) is not None
    assert evict(site.client, site.key("a"), options).outcome is EvictionOutcome.EVICTED
    status = site.client.get(POD_DISRUPTION_BUDGETS, site.key("web"))["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]
    refused = evict(site.client, site.key("b"), DeleteOptions(uid=uids[1]))
    assert refused.outcome is EvictionOutcome.BUDGET
    assert not refused.accepted
    assert "web" in refused.message
    assert evict(site.client, site.key("a"), options).outcome is EvictionOutcome.GONE


def test_an_eviction_meant_for_another_pod_of_the_name_does_nothing(site: Site) -> None:
    running(site, "a")
    assert evict(site.client, site.key("a"), DeleteOptions(uid="another")).outcome is EvictionOutcome.GONE
    assert "deletionTimestamp" not in site.client.get(PODS, site.key("a"))["metadata"]


def test_two_budgets_over_one_pod_are_reported(site: Site) -> None:
    running(site, "a")
    for name in ("one", "two"):
        budget(site, name, allowed=1)
    assert evict(site.client, site.key("a")).outcome is EvictionOutcome.AMBIGUOUS_BUDGETS


def test_nodes_register_with_their_status(site: Site) -> None:
    name = f"{site.namespace}-n1"
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    created = site.client.create(NODES, {"metadata": {"name": name}, "status": {"capacity": capacity}})
    assert created["status"]["capacity"] == capacity
    patch = strategic_patch({"status": {"allocatable": {"koordinator.sh/x": "1"}}})
    patched = site.client.patch(NODES, Key("", name), patch, subresource="status")
    assert patched["status"]["allocatable"]["koordinator.sh/x"] == "1"
