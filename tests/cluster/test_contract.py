"""What the client relies on, shown to hold for every server: the twin and, where given, a real one."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from api.crds import NODE_METRIC, POD_GROUP, WORKLOAD_PROFILE, WorkloadProfile, WorkloadProfileSpec, WorkloadReference
from api.crds import WorkloadProfileStatus as ProfileStatus
from api.meta import ObjectMeta
from cluster import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    AlreadyExists,
    Binding,
    BindOutcome,
    Conflict,
    DeleteOptions,
    Delta,
    DeltaType,
    Document,
    EvictionOutcome,
    Informer,
    Invalid,
    Key,
    NotFound,
    Patch,
    PatchType,
    Query,
    apply_patch,
    bind,
    custom,
    evict,
    merge_patch,
    strategic_patch,
)
from cluster.transport import Request
from cluster.twin import UNLIMITED
from tests.cluster.conftest import REAL, Site, eventually

MANIFESTS = Path(__file__).parents[2] / "deploy" / "crds"


@pytest.mark.parametrize("variable", REAL)
def test_a_real_server_is_tested_too(variable: str) -> None:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: this contract is shown for the twin only")


def config_map(site: Site, name: str, **data: str) -> Document:
    return {"metadata": {"name": name, "namespace": site.namespace}, "data": data}


def version(document: Document) -> str:
    text: str = document["metadata"]["resourceVersion"]
    return text


def test_created_objects_are_read_back_with_an_identity(site: Site) -> None:
    created = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    assert site.client.get(CONFIG_MAPS, site.key("a")) == created
    assert created["metadata"]["uid"]
    assert created["metadata"]["creationTimestamp"]
    assert created["data"] == {"key": "1"}


def test_a_taken_name_and_a_missing_object_are_told_apart(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a"))
    with pytest.raises(AlreadyExists):
        site.client.create(CONFIG_MAPS, config_map(site, "a"))
    with pytest.raises(NotFound):
        site.client.get(CONFIG_MAPS, site.key("b"))
    assert site.client.find(CONFIG_MAPS, site.key("b")) is None
    assert not site.client.delete(CONFIG_MAPS, site.key("b"))


def test_generated_names_differ(site: Site) -> None:
    wanted = {"metadata": {"generateName": "g-", "namespace": site.namespace}}
    names = {site.client.create(CONFIG_MAPS, wanted)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("g-") for name in names)


def test_a_malformed_name_is_invalid(site: Site) -> None:
    with pytest.raises(Invalid):
        site.client.create(CONFIG_MAPS, config_map(site, "Not_A_Name"))


@pytest.mark.parametrize("labels", [{"a": "no spaces"}, {"a": "x" * 64}, {"a": "-"}, {"a": 1}, {"not a key": "x"}])
def test_malformed_labels_are_invalid(site: Site, labels: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        site.client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": site.namespace, "labels": labels}})
    site.client.create(CONFIG_MAPS, config_map(site, "a"))
    with pytest.raises(Invalid):
        site.client.patch(CONFIG_MAPS, site.key("a"), merge_patch({"metadata": {"labels": labels}}))


def test_writing_over_a_newer_version_conflicts(site: Site) -> None:
    old = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    site.client.update(CONFIG_MAPS, {**old, "data": {"key": "2"}})
    with pytest.raises(Conflict):
        site.client.update(CONFIG_MAPS, {**old, "data": {"key": "3"}})
    assert site.client.get(CONFIG_MAPS, site.key("a"))["data"] == {"key": "2"}


def test_a_write_that_changes_nothing_makes_no_version(site: Site) -> None:
    first = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    assert version(site.client.update(CONFIG_MAPS, first)) == version(first)
    patched = site.client.patch(CONFIG_MAPS, site.key("a"), merge_patch({"data": {"key": "1"}}))
    assert version(patched) == version(first)


def test_leases_are_only_written_with_a_version(site: Site) -> None:
    lease: Document = {"metadata": {"name": "l", "namespace": site.namespace}, "spec": {"holderIdentity": "a"}}
    site.client.create(LEASES, lease)
    with pytest.raises(Invalid):
        site.client.update(LEASES, lease)


def test_merge_patch_merges_and_removes(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a", keep="1", drop="1"))
    body = {"data": {"drop": None, "add": "2"}}
    assert site.client.patch(CONFIG_MAPS, site.key("a"), merge_patch(body))["data"] == {"keep": "1", "add": "2"}


def test_json_patch_tests_before_it_writes(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    steps = [{"op": "test", "path": "/data/key", "value": "1"}, {"op": "replace", "path": "/data/key", "value": "2"}]
    patch = Patch(PatchType.JSON, steps)
    assert site.client.patch(CONFIG_MAPS, site.key("a"), patch)["data"] == {"key": "2"}
    with pytest.raises(Invalid):
        site.client.patch(CONFIG_MAPS, site.key("a"), patch)


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


def test_apply_owns_what_it_applied(site: Site) -> None:
    def apply(manager: str, force: bool = False, **data: str) -> Document:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
        return site.client.patch(CONFIG_MAPS, site.key("a"), apply_patch(body, field_manager=manager, force=force))

    assert apply("one", x="1", y="1")["data"] == {"x": "1", "y": "1"}
    assert apply("two", z="2")["data"] == {"x": "1", "y": "1", "z": "2"}
    assert apply("one", x="1")["data"] == {"x": "1", "z": "2"}
    with pytest.raises(Conflict) as refused:
        apply("two", x="2", z="2")
    assert [kind for kind, _ in refused.value.causes] == ["FieldManagerConflict"]
    assert apply("two", True, x="2", z="2")["data"] == {"x": "2", "z": "2"}
    # What was taken over is no longer removed by its first owner.
    assert apply("one", w="1")["data"] == {"x": "2", "z": "2", "w": "1"}


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


def test_selectors_choose(site: Site) -> None:
    for name, labels in (("a", {"t": "x"}), ("b", {"t": "y"}), ("c", {})):
        site.client.create(PODS, site.pod(name, labels=labels))
    assert bind(site.client, Binding(site.key("c"), "", "some-node")) is BindOutcome.BOUND

    def names(labels: str = "", fields: str = "") -> str:
        listing = site.client.list(PODS, Query(site.namespace, labels, fields))
        return "".join(sorted(item.identity.name for item in listing.items))

    assert names() == "abc"
    assert names("t=x") == "a"
    assert names("t!=x") == "bc"
    assert names("t in (x, y)") == "ab"
    assert names("t notin (x)") == "bc"
    assert names("t") == "ab"
    assert names("!t") == "c"
    assert names("t,t!=y") == "a"
    assert names(fields="spec.nodeName=") == "ab"
    assert names(fields="spec.nodeName=some-node") == "c"
    assert names(fields="metadata.name!=a,status.phase=Pending") == "bc"
    with pytest.raises(Invalid):
        names(fields="spec.hostname=x")


def test_chunks_of_a_list_are_one_state(site: Site) -> None:
    for number in range(7):
        site.client.create(CONFIG_MAPS, config_map(site, f"m-{number}"))
    path = CONFIG_MAPS.path(site.namespace)
    seen: list[str] = []
    token = ""
    versions = set()
    while True:
        page = msgspec.json.decode(site.client.send(Request("GET", path, {"limit": "3", "continue": token})))
        seen += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
        # Neither what is deleted nor what is added under way shows.
        site.client.delete(CONFIG_MAPS, site.key("m-6"))
        site.client.create(CONFIG_MAPS, config_map(site, f"m-3{len(seen)}"))
    # A real cluster may keep certificates in every namespace.
    assert [name for name in seen if name.startswith("m-")] == [f"m-{number}" for number in range(7)]
    assert len(versions) == 1


def test_long_lists_arrive_whole(site: Site) -> None:
    for number in range(25):
        site.client.create(CONFIG_MAPS, config_map(site, f"m-{number:02}"))
    small = site.connect(replace(UNLIMITED, page_size=7))
    names = [item.identity.name for item in small.list(CONFIG_MAPS, Query(site.namespace)).items]
    assert [name for name in names if name.startswith("m-")] == [f"m-{number:02}" for number in range(25)]


def test_a_watch_tells_what_came_after_a_version(site: Site) -> None:
    first = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    second = site.client.update(CONFIG_MAPS, {**first, "data": {"key": "2"}})
    site.client.delete(CONFIG_MAPS, site.key("a"))
    heard: list[tuple[str, str]] = []
    with site.client.watch(CONFIG_MAPS, Query(site.namespace), resource_version=version(first)) as watch:
        for changes in watch.batches():
            heard += [(change.type.value, change.item.identity.resource_version) for change in changes]
            if len(heard) >= 2:
                break
        assert heard[0] == ("MODIFIED", version(second))
        assert heard[1][0] == "DELETED"
        # A deletion has a version of its own, or a watch could not resume behind it.
        assert int(heard[1][1]) > int(version(second))
        assert watch.resource_version == heard[1][1]


def test_a_selecting_watch_adds_and_deletes_what_comes_and_goes(site: Site) -> None:
    listing = site.client.list(PODS, Query(site.namespace))
    site.client.create(PODS, site.pod("a"))
    for labels in ({"t": "x"}, {"t": "y"}):
        site.client.patch(PODS, site.key("a"), merge_patch({"metadata": {"labels": labels}}))
    heard: list[str] = []
    query = Query(site.namespace, labels="t=x")
    with site.client.watch(PODS, query, resource_version=listing.resource_version) as watch:
        for changes in watch.batches():
            heard += [change.type.value for change in changes]
            if len(heard) >= 2:
                break
    assert heard == ["ADDED", "DELETED"]


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


def test_modify_loses_no_writer(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a", count="0"))

    def increment(document: Document) -> Document:
        document["data"]["count"] = str(int(document["data"]["count"]) + 1)
        return document

    def work() -> None:
        for _ in range(5):
            site.client.modify(CONFIG_MAPS, site.key("a"), increment, attempts=50)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.client.get(CONFIG_MAPS, site.key("a"))["data"] == {"count": "20"}


def test_an_informer_follows_and_tells(site: Site) -> None:
    site.client.create(PODS, site.pod("a"))
    heard: list[tuple[DeltaType, str]] = []

    def listen(deltas: Any) -> None:
        heard.extend((delta.type, delta.key.name) for delta in deltas)

    with Informer(site.client, PODS, Query(site.namespace)) as informer:
        informer.subscribe(listen)
        assert informer.wait_synced(10)
        site.client.create(PODS, site.pod("b"))
        bind(site.client, Binding(site.key("b"), "", "n1"))
        site.client.delete(PODS, site.key("a"))
        assert eventually(lambda: len(heard) == 4)
        assert {key.name for key in informer.snapshot()} == {"b"}
        late: list[Delta[Document]] = []
        informer.subscribe(late.extend)
        assert [(delta.type, delta.key.name) for delta in late] == [(DeltaType.ADDED, "b")]
    assert heard == [
        (DeltaType.ADDED, "a"),
        (DeltaType.ADDED, "b"),
        (DeltaType.UPDATED, "b"),
        (DeltaType.DELETED, "a"),
    ]


@pytest.fixture
def kinds(site: Site) -> Site:
    for definition in (WORKLOAD_PROFILE, NODE_METRIC):
        manifest = yaml.safe_load((MANIFESTS / f"{definition.name}.yaml").read_text())
        if site.client.find(CUSTOM_RESOURCE_DEFINITIONS, Key("", definition.name)) is None:
            site.client.create(CUSTOM_RESOURCE_DEFINITIONS, manifest)

        def established(name: str = definition.name) -> bool:
            stored = site.client.get(CUSTOM_RESOURCE_DEFINITIONS, Key("", name))
            conditions = stored.get("status", {}).get("conditions", ())
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        assert eventually(established)
    return site


def test_custom_kinds_are_served_from_their_manifests(kinds: Site) -> None:
    client, profiles = kinds.client, custom(WORKLOAD_PROFILE)
    spec = WorkloadProfileSpec(workload=WorkloadReference(kind="Deployment", name="web"), container="c")
    wanted = WorkloadProfile(metadata=ObjectMeta(name="web-c", namespace=kinds.namespace), spec=spec)
    created = client.create(profiles, wanted)
    assert (created.spec, created.status) == (spec, ProfileStatus())
    learned = msgspec.structs.replace(created, status=ProfileStatus(samples=3, replicas=1))
    client.update(profiles, learned, subresource="status")
    assert client.get(profiles, kinds.key("web-c")).status.samples == 3
    patch = merge_patch({"spec": {"nodeType": "large", "unknown": 1}, "status": {"samples": 9}})
    document = client.patch(profiles.of(dict), kinds.key("web-c"), patch)
    assert document["spec"]["nodeType"] == "large"
    # The schema prunes what it does not know, and the main resource does not write status.
    assert "unknown" not in document["spec"]
    assert document["status"]["samples"] == 3
    assert document["metadata"]["generation"] == 2


def test_custom_kinds_take_no_strategic_patch_and_select_by_name_only(kinds: Site) -> None:
    metrics, name = custom(NODE_METRIC), f"{kinds.namespace}-node"
    kinds.client.create(metrics, {"metadata": {"name": name}, "spec": {}})
    try:
        with pytest.raises(Invalid):
            kinds.client.patch(metrics, Key("", name), strategic_patch({"spec": {}}))
        listing = kinds.client.list(metrics, Query(fields=f"metadata.name={name}"))
        assert [item.identity.name for item in listing.items] == [name]
        with pytest.raises(Invalid):
            kinds.client.list(metrics, Query(fields="spec.x=1"))
    finally:
        kinds.client.delete(metrics, Key("", name))


def test_a_kind_of_a_protected_group_needs_its_approval(site: Site) -> None:
    manifest = yaml.safe_load((MANIFESTS / f"{POD_GROUP.name}.yaml").read_text())
    del manifest["metadata"]["annotations"]
    with pytest.raises(Invalid):
        site.client.create(CUSTOM_RESOURCE_DEFINITIONS, manifest)


def test_nodes_register_with_their_status(site: Site) -> None:
    name = f"{site.namespace}-n1"
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    created = site.client.create(NODES, {"metadata": {"name": name}, "status": {"capacity": capacity}})
    assert created["status"]["capacity"] == capacity
    patch = strategic_patch({"status": {"allocatable": {"koordinator.sh/x": "1"}}})
    patched = site.client.patch(NODES, Key("", name), patch, subresource="status")
    assert patched["status"]["allocatable"]["koordinator.sh/x"] == "1"
