"""The scheduler's later features at a real API server, with the chart's account, rights and definitions of kinds.

Explanations, pre-allocation, pods that keep their room for others, the network's topology, device plugins of vendors.
"""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.crds import CLUSTER_NETWORK_TOPOLOGY, DEVICE, NODE_METRIC, RESERVATION, SCHEDULE_EXPLANATION
from api.protocol import (
    ANNOTATION_BIND_TIMESTAMP,
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_GPU_MINORS,
    ANNOTATION_NETWORK_TOPOLOGY_SPEC,
    ANNOTATION_RESERVATION_ALLOCATED,
    ANNOTATION_RESERVATION_OWNERS,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    LABEL_GPU_ISOLATION_PROVIDER,
    LABEL_NODE_GPU_VENDOR,
    LABEL_OPERATING_MODE,
    LABEL_QOS_CLASS,
)
from cluster import EVENTS, NODES, PODS, DeleteOptions, Document, Key, Query, custom, merge_patch
from scheduler.devices.vendors import (
    CAMBRICON,
    CAMBRICON_PROFILE,
    HAMI_CORE,
    HUAWEI,
    HUAWEI_DEVICES,
    HUAWEI_TIME,
    LABEL_HAMI_NODE,
    LOCKS,
    METAX,
    METAX_DEVICES,
)
from tests.cluster_e2e.scheduler_site import ACCOUNT, SPACE, Scheduler, Site, scheduler_site
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

GANG = "gang.scheduling.koordinator.sh/"
HALF_GPU = {GPU_CORE: "50", GPU_MEMORY_RATIO: "50"}
NOW: Any = DeleteOptions(grace_period_seconds=0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Scheduler]]:
    with (
        scheduler_site(Path(os.environ["KUBEBUILDER_ASSETS"]), tmp_path_factory.mktemp("placing")) as site,
        site.running("placing", scheduleexplanation={"pending_seconds": 0, "interval_seconds": 1}) as running,
    ):
        wait_for(lambda: running.says("leading"), check=running.end_of_log)
        yield site, running


@pytest.fixture
def site(place: tuple[Site, Scheduler]) -> Iterator[Site]:
    yield place[0]
    place[0].clear()


@pytest.fixture
def running(place: tuple[Site, Scheduler]) -> Iterator[Scheduler]:
    yield place[1]
    text = place[1].log.read_text(errors="replace")
    assert " E " not in text, text[-4000:]
    assert "cannot " not in text, "a right is missing"


def annotations(site: Site, pod: Key) -> dict[str, str]:
    found: dict[str, str] = site.get(PODS, pod)["metadata"].get("annotations", {})
    return found


def ready(site: Site, pod: Key) -> None:
    """State what a kubelet would."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    site.client.patch(PODS, pod, merge_patch({"status": status}), subresource="status")


def test_a_pod_that_waits_is_explained_until_it_is_placed(site: Site, running: Scheduler) -> None:
    site.node("small")
    pod = site.pod("large", "small", {"cpu": "8"})
    kind, key = custom(SCHEDULE_EXPLANATION).of(dict), Key(SPACE, "pod.large")

    def explained() -> Document | None:
        found = site.client.find(kind, key)
        return found if found is not None and found.get("status", {}).get("detailedExplanation") else None

    found = wait_for(explained, check=running.end_of_log)
    assert found["spec"]["questionObjectKey"] == f"{SPACE}/large"
    assert [each["name"] for each in found["metadata"]["ownerReferences"]] == ["large"]
    (domain,) = found["status"]["detailedExplanation"]
    assert domain["failedMessage"].startswith("0/1 nodes are available: 1 Insufficient cpu")
    (detail,) = domain["scheduleExplanation"]["nodeFailedDetails"]
    assert (detail["reason"], detail["failedNodes"]) == ("Insufficient cpu", ["small"])
    site.offer("small", {"cpu": "16", "memory": "16Gi", "pods": "110"})
    assert site.await_node(pod, running) == "small"
    wait_for(lambda: site.client.find(kind, key) is None, check=running.end_of_log)


def reservation(name: str, pool: str, **spec: Any) -> Document:
    resources = {"requests": {"cpu": "4"}}
    container = {"name": "main", "image": "registry.invalid/app", "resources": resources}
    template = {"spec": {"schedulerName": ACCOUNT, "nodeSelector": {"pool": pool}, "containers": [container]}}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    return {"metadata": {"name": name}, "spec": {"template": template, "owners": owners, "ttl": "1h", **spec}}


def test_a_node_under_a_verdict_is_a_last_resort(site: Site, running: Scheduler) -> None:
    site.node("noisy")
    kind = custom(NODE_METRIC).of(dict)
    key = site.create(kind, {"metadata": {"name": "noisy"}, "spec": {}})
    verdict = {"resource": "cpu", "lostSecondsPerSecond": 0.3, "until": "2099-01-01T00:00:00Z"}
    stated = {"extensions": {"interference": {"verdicts": [verdict]}}}
    site.client.patch(kind, key, merge_patch({"status": stated}), subresource="status")
    numbers = itertools.count()

    def told() -> list[Document]:
        """The scheduler may hear of the verdict after the first pods."""
        pod = site.pod(f"sensitive-{next(numbers)}", "noisy", {"cpu": "10m"}, labels={LABEL_QOS_CLASS: "LS"})
        assert site.await_node(pod, running) == "noisy"
        events = site.client.list(EVENTS.of(dict), Query(SPACE)).values
        return [each for each in events if each["reason"] == "LastResort"]

    (event, *_) = wait_for(told, check=running.end_of_log, interval_seconds=0.5)
    assert (event["type"], event["regarding"]["kind"]) == ("Warning", "Pod")
    assert event["note"] == (
        "No other node takes the pod than noisy, which was avoided:"
        " node(s) under cpu interference that the pod is sensitive to."
    )


def test_a_reservation_takes_a_running_pod_and_has_its_room_afterwards(site: Site, running: Scheduler) -> None:
    site.node("full")
    old = site.pod("old", "full", {"cpu": "4"}, labels={"app": "web"}, nodeName="full")
    ready(site, old)
    kind = custom(RESERVATION).of(dict)
    spec = {"preAllocation": True, "allocatePolicy": "Restricted", "allocateOnce": False}
    key = site.create(kind, reservation("taker", "full", **spec))

    def taken() -> list[str]:
        status = site.get(kind, key).get("status", {})
        if status.get("phase") != "Available" or status.get("nodeName") != "full":
            return []
        return [each["name"] for each in status.get("currentOwners", [])]

    wait_for(lambda: taken() == ["old"], check=lambda: f"{site.get(kind, key)}\n{running.end_of_log()}")
    site.client.delete(PODS, old, NOW)
    stranger = site.pod("stranger", "full", {"cpu": "4"})
    wait_for(lambda: "Insufficient cpu" in site.why(stranger), check=running.end_of_log)
    owner = site.pod("owner", "full", {"cpu": "4"}, labels={"app": "web"})
    assert site.await_node(owner, running) == "full"
    assert json.loads(annotations(site, owner)[ANNOTATION_RESERVATION_ALLOCATED])["name"] == "taker"
    wait_for(lambda: taken() == ["owner"], check=running.end_of_log)
    assert not site.node_of(stranger)


def test_a_pod_keeps_its_room_for_its_owner(site: Site, running: Scheduler) -> None:
    site.node("kept")
    owners = json.dumps([{"labelSelector": {"matchLabels": {"app": "web"}}}])
    keeper = site.pod(
        "keeper",
        "kept",
        {"cpu": "4"},
        labels={LABEL_OPERATING_MODE: "Reservation"},
        annotations={ANNOTATION_RESERVATION_OWNERS: owners},
    )
    assert site.await_node(keeper, running) == "kept"
    owner = site.pod("owner", "kept", {"cpu": "3"}, labels={"app": "web"})
    wait_for(lambda: "Insufficient cpu" in site.why(owner), check=running.end_of_log)
    ready(site, keeper)
    assert site.await_node(owner, running) == "kept"
    assert json.loads(annotations(site, owner)[ANNOTATION_RESERVATION_ALLOCATED])["name"] == "keeper"


def test_a_gang_is_placed_in_one_part_of_the_network(site: Site, running: Scheduler) -> None:
    layers = [
        {"topologyLayer": "Block", "labelKey": ["block"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Block"},
    ]
    kind = custom(CLUSTER_NETWORK_TOPOLOGY).of(dict)
    for name in ("a0", "a1", "b0", "b1", "b2"):
        site.node(name, labels={"block": name[0], "net": "yes"})
    key = site.create(kind, {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": layers}})
    gathered = {"gatherStrategy": [{"layer": "Block", "strategy": "MustGather"}]}
    meta = {
        GANG + "name": "near",
        GANG + "min-available": "3",
        ANNOTATION_NETWORK_TOPOLOGY_SPEC: json.dumps(gathered),
    }
    pods = [
        site.pod(f"near-{number}", "", {"cpu": "3"}, annotations=meta, nodeSelector={"net": "yes"})
        for number in range(3)
    ]
    assert {site.await_node(pod, running) for pod in pods} == {"b0", "b1", "b2"}

    def stated() -> dict[str, int]:
        details = site.get(kind, key).get("status", {}).get("detailStatus", [])
        return {each["topologyInfo"].get("topologyName", ""): each["nodeNum"] for each in details}

    wait_for(lambda: stated() == {"": 5, "a": 2, "b": 3}, check=lambda: f"{stated()}\n{running.end_of_log()}")


def gpu_node(site: Site, name: str, vendor: str) -> None:
    """A node with a GPU of a vendor, as its agent reports it."""
    amounts = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: "16Gi"}
    site.node(name, amounts)
    device = {"type": "gpu", "id": f"{name}-gpu", "minor": 0, "health": True, "resources": amounts}
    labels = {LABEL_NODE_GPU_VENDOR: vendor}
    site.create(custom(DEVICE), {"metadata": {"name": name, "labels": labels}, "spec": {"devices": [device]}})


@pytest.mark.parametrize(
    ("vendor", "told"),
    [
        pytest.param(HUAWEI, {HUAWEI_DEVICES: "0"}, id="huawei"),
        pytest.param(CAMBRICON, {CAMBRICON_PROFILE: "0_50_32"}, id="cambricon"),
        pytest.param(METAX, {METAX_DEVICES: '[[{"uuid":"metax-gpu","compute":50,"vRam":8192}]]'}, id="metax"),
    ],
)
def test_device_plugins_learn_what_a_pod_was_given(
    site: Site, running: Scheduler, vendor: str, told: dict[str, str]
) -> None:
    gpu_node(site, vendor, vendor)
    isolated = {LABEL_GPU_ISOLATION_PROVIDER: HAMI_CORE}
    site.client.patch(NODES, Key("", vendor), merge_patch({"metadata": {"labels": isolated}}))
    first = site.pod("first", vendor, HALF_GPU, labels=isolated)
    assert site.await_node(first, running) == vendor
    given = annotations(site, first)
    assert given.items() >= told.items()
    assert given[ANNOTATION_GPU_MINORS] == "0"
    assert ANNOTATION_DEVICE_ALLOCATED in given
    assert int(given[ANNOTATION_BIND_TIMESTAMP]) == int(given.get(HUAWEI_TIME, given[ANNOTATION_BIND_TIMESTAMP]))
    assert site.get(PODS, first)["metadata"]["labels"][LABEL_HAMI_NODE] == vendor
    second = site.pod("second", vendor, HALF_GPU)
    lock = LOCKS.get(vendor)
    if lock is not None:
        wait_for(lambda: "is locked for pod placing/first" in site.why(second), check=running.end_of_log)
        held = site.get(NODES, Key("", vendor))["metadata"]["annotations"][lock]
        assert held.endswith(f",{SPACE},first")
        served = merge_patch({"metadata": {"annotations": {lock: None}}})
        site.client.patch(NODES, Key("", vendor), served)
    assert site.await_node(second, running) == vendor
    if lock is not None:
        assert site.get(NODES, Key("", vendor))["metadata"]["annotations"][lock].endswith(f",{SPACE},second")
