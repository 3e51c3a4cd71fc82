"""The rights of koord-scheduler in the chart, at a real API server: each is used, and each that is missing is named.

With all of them the scheduler does everything that needs one, and the server's audit log has each right and no refusal.
Then each verb of each resource is taken away in turn: the log names it, and pods that do not need it are placed.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from api.crds import CLUSTER_NETWORK_TOPOLOGY, DEVICE, ELASTIC_QUOTA, POD_GROUP, RESERVATION, SCHEDULE_EXPLANATION
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, LABEL_GPU_ISOLATION_PROVIDER, LABEL_NODE_GPU_VENDOR
from cluster import (
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Key,
    NotFound,
    Resource,
    custom,
    merge_patch,
)
from scheduler.devices.vendors import HAMI_CORE, METAX
from scheduler.gang.spec import POD_GROUP_LABEL
from scheduler.quota.tree import DEFAULT, ROOT, SYSTEM
from tests.cluster_e2e.scheduler_site import (
    ACCOUNT,
    RELEASE,
    SPACE,
    VALUES,
    Scheduler,
    Site,
    scheduler_site,
)
from tests.cluster_e2e.test_chart import KINDS
from tests.deploy.charts import documents
from tests.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240 * PATIENCE)]

SECONDS = 45.0
"""Time within which a missing right is named; the slowest, the status of the network, is written each 10 s."""
QUICK: dict[str, dict[str, Any]] = {
    "scheduleexplanation": {"pending_seconds": 0, "interval_seconds": 1},
    "elasticquota": {"monitor_all_quotas": True, "delay_evict_seconds": 1},
    "reservation": {"gc_seconds": 1},
}
"""Settings under which what comes late comes soon."""
HOSTNAME = "kubernetes.io/hostname"
CONTESTED = 60
"""Pods over which two schedulers fight: some binding of one is refused for the other's."""


class Right(NamedTuple):
    """One verb of one resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb}-{self.resource}-{self.group}".replace("/", ".").rstrip("-")


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for each in documents(VALUES):
        if each["kind"] in ("ClusterRole", "Role") and each["metadata"]["name"] == ACCOUNT:
            yield from ((each["kind"], rule) for rule in each["rules"])


def granted(rule: Mapping[str, Any]) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield from (Right(group, resource, verb) for verb in rule["verbs"])


RIGHTS = sorted({right for _, rule in rules() for right in granted(rule)})
CHECKED_BESIDE = {Right("resource.k8s.io", "resourceclaims/binding", "patch")}
"""Asked for in addition to another right: no request names them."""
NOTHING_IS_PLACED_WITHOUT = {
    Right("", "nodes", "list"),
    Right("", "pods", "list"),
    Right("", "pods/binding", "create"),
    Right("coordination.k8s.io", "leases", "create"),
    Right("coordination.k8s.io", "leases", "get"),
}
ENDS_WITHOUT = {Right("", "nodes", "list"), Right("", "pods", "list")}


# What each right is for: a function makes the objects, and returns what is to be done again while it is waited for.

Nudge = Callable[[], None]
Provoke = Callable[[Site, str], Nudge]


def once() -> None:
    """Nothing further."""


def bound(site: Site, tag: str) -> Nudge:
    site.node(tag)
    site.pod(tag, tag)
    return once


def refused(site: Site, tag: str) -> Nudge:
    """A pod that no node takes, asked again as its node grows: the same event and condition each time."""
    site.node(tag)
    site.pod(tag, tag, {"cpu": "900"})
    grown = iter(range(1, 1000))

    def grow() -> None:
        site.offer(tag, {"cpu": f"{4000 + next(grown)}m", "memory": "16Gi", "pods": "110"})

    return grow


def explained_and_placed(site: Site, tag: str) -> Nudge:
    """A pod that is refused, has its explanation, and then finds a node."""
    site.node(tag)
    pod = site.pod(tag, tag, {"cpu": "900"})
    kind = custom(SCHEDULE_EXPLANATION)

    def grow_once_explained() -> None:
        if not site.node_of(pod) and site.client.find(kind, Key(SPACE, f"pod.{tag}")) is not None:
            site.offer(tag, {"cpu": "1000", "memory": "16Gi", "pods": "110"})

    return grow_once_explained


def preempted(site: Site, tag: str) -> Nudge:
    site.node(tag)
    site.pod(f"{tag}-low", tag, {"cpu": "4"}, nodeName=tag)
    site.pod(f"{tag}-high", tag, {"cpu": "4"}, priorityClassName="high")
    return once


def contested(site: Site, tag: str) -> Nudge:
    """Pods that a second scheduler, which leads without asking, binds as well."""
    for number in range(10):
        site.node(f"{tag}-{number}", labels={"contested": tag})
    waiting = iter(range(CONTESTED))

    def add() -> None:
        for _ in range(CONTESTED // 4):
            number = next(waiting, None)
            if number is not None:
                site.pod(f"{tag}-{number}", tag, {"cpu": "10m"}, nodeSelector={"contested": tag})

    return add


def overused(site: Site, tag: str) -> Nudge:
    """A quota whose pod runs and whose maximum then shrinks."""
    site.node(tag)
    site.create(QUOTAS, quota(tag, "4"))
    pod = site.pod(tag, tag, labels={"quota.scheduling.koordinator.sh/name": tag})

    def shrink_once_bound() -> None:
        if site.client.find(PODS, pod) is not None and site.node_of(pod):
            site.client.patch(QUOTAS, Key(SPACE, tag), merge_patch({"spec": {"max": {"cpu": "100m"}}}))

    return shrink_once_bound


def quota(name: str, cpu: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": SPACE}, "spec": {"max": {"cpu": cpu}, "min": {"cpu": "0"}}}


def without_reserved_quotas(site: Site, tag: str) -> Nudge:
    for name in (ROOT, DEFAULT, SYSTEM):
        with contextlib.suppress(NotFound):
            site.client.delete(QUOTAS, Key(RELEASE, name))
    return bound(site, tag)


def claimed(site: Site, tag: str, provisioner: str) -> None:
    site.create(
        STORAGE_CLASSES,
        {"metadata": {"name": tag}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"},
    )
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": tag,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    site.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": tag, "namespace": SPACE}, "spec": spec})
    site.pod(tag, tag, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": tag}}])


def provisioned(site: Site, tag: str) -> Nudge:
    site.node(tag)
    claimed(site, tag, "disk.example.com")
    return once


def given_a_volume(site: Site, tag: str) -> Nudge:
    site.node(tag)
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [tag]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": tag,
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    key = site.create(PERSISTENT_VOLUMES, {"metadata": {"name": tag}, "spec": spec})
    site.client.patch(PERSISTENT_VOLUMES, key, merge_patch({"status": {"phase": "Available"}}), subresource="status")
    claimed(site, tag, "kubernetes.io/no-provisioner")
    return once


def given_a_device(site: Site, tag: str) -> Nudge:
    site.node(tag)
    expression = f'device.driver == "{tag}.example.com"'
    site.create(
        DEVICE_CLASSES, {"metadata": {"name": tag}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    )
    pool = {"name": tag, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": f"{tag}.example.com", "nodeName": tag, "pool": pool, "devices": [{"name": "one"}]}
    site.create(RESOURCE_SLICES, {"metadata": {"name": tag}, "spec": spec})
    request = {"name": "one", "exactly": {"deviceClassName": tag}}
    meta = {"name": tag, "namespace": SPACE}
    site.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": [request]}}})
    site.pod(
        tag,
        tag,
        container={"resources": {"requests": {"cpu": "1"}, "claims": [{"name": "one"}]}},
        resourceClaims=[{"name": "one", "resourceClaimName": tag}],
    )
    return once


def gpu_node(site: Site, tag: str, vendor: str = "") -> None:
    """A node with one GPU, as its agent reports it."""
    amounts = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: "16Gi"}
    site.node(tag, amounts, labels={LABEL_GPU_ISOLATION_PROVIDER: HAMI_CORE} if vendor else {})
    device = {"type": "gpu", "id": "gpu-0", "minor": 0, "health": True, "resources": amounts}
    labels = {LABEL_NODE_GPU_VENDOR: vendor} if vendor else {}
    site.create(custom(DEVICE), {"metadata": {"name": tag, "labels": labels}, "spec": {"devices": [device]}})


def reserved(site: Site, tag: str) -> Nudge:
    """A reservation of a GPU: its annotations say which."""
    gpu_node(site, tag)
    site.create(custom(RESERVATION), reservation(tag, {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}, ttl="1h"))
    return once


def reservation(tag: str, requests: Mapping[str, str], **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", **requests}, "limits": dict(requests)}
    container = {"name": "main", "image": "registry.invalid/app", "resources": resources}
    template = {"spec": {"schedulerName": ACCOUNT, "nodeSelector": {"pool": tag}, "containers": [container]}}
    owners = [{"labelSelector": {"matchLabels": {"app": tag}}}]
    return {"metadata": {"name": tag}, "spec": {"template": template, "owners": owners, **spec}}


def expired(site: Site, tag: str) -> Nudge:
    site.node(tag)
    site.create(custom(RESERVATION), reservation(tag, {}, ttl="1s"))
    return once


def networked(site: Site, tag: str) -> Nudge:
    spec = [
        {"topologyLayer": "Block", "labelKey": ["block"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Block"},
    ]
    site.node(tag, labels={"block": tag})
    site.create(
        custom(CLUSTER_NETWORK_TOPOLOGY), {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": spec}}
    )
    return once


def ganged(site: Site, tag: str) -> Nudge:
    site.node(tag)
    site.create(custom(POD_GROUP), {"metadata": {"name": tag, "namespace": SPACE}, "spec": {"minMember": 1}})
    site.pod(tag, tag, labels={POD_GROUP_LABEL: tag})
    return once


def counted(site: Site, tag: str) -> Nudge:
    site.create(QUOTAS, quota(tag, "4"))
    return overused_by_nothing


def overused_by_nothing() -> None:
    """A quota's figures are written without any pod."""


def adapted(site: Site, tag: str) -> Nudge:
    """A pod whose device plugin serves one pod at a time, and whose share HAMi-core isolates."""
    gpu_node(site, tag, METAX)
    share = {GPU_CORE: "50", GPU_MEMORY_RATIO: "50"}
    site.pod(tag, tag, share, labels={LABEL_GPU_ISOLATION_PROVIDER: HAMI_CORE})
    return once


QUOTAS: Resource[Any] = custom(ELASTIC_QUOTA)
PROVOKED: dict[Right, Provoke] = {
    Right("", "pods", "get"): contested,
    Right("", "pods", "delete"): preempted,
    Right("", "pods", "patch"): adapted,
    Right("", "nodes", "patch"): adapted,
    Right("", "pods/binding", "create"): bound,
    Right("", "pods/status", "patch"): refused,
    Right("", "pods/eviction", "create"): overused,
    Right("", "persistentvolumes", "patch"): given_a_volume,
    Right("", "persistentvolumeclaims", "patch"): provisioned,
    Right("resource.k8s.io", "resourceclaims", "patch"): given_a_device,
    Right("resource.k8s.io", "resourceclaims/status", "patch"): given_a_device,
    Right("resource.k8s.io", "resourceclaims/binding", "patch"): given_a_device,
    Right("scheduling.koordinator.sh", "reservations", "patch"): reserved,
    Right("scheduling.koordinator.sh", "reservations/status", "patch"): reserved,
    Right("scheduling.koordinator.sh", "reservations", "delete"): expired,
    Right("scheduling.koordinator.sh", "clusternetworktopologies/status", "patch"): networked,
    Right("scheduling.koordinator.sh", "scheduleexplanations", "create"): refused,
    Right("scheduling.koordinator.sh", "scheduleexplanations", "delete"): explained_and_placed,
    Right("scheduling.koordinator.sh", "scheduleexplanations/status", "patch"): refused,
    Right("scheduling.sigs.k8s.io", "podgroups", "patch"): ganged,
    Right("scheduling.sigs.k8s.io", "elasticquotas", "create"): without_reserved_quotas,
    Right("scheduling.sigs.k8s.io", "elasticquotas", "patch"): counted,
    Right("events.k8s.io", "events", "create"): refused,
    Right("events.k8s.io", "events", "patch"): refused,
}
"""What makes the scheduler use a right; the others it uses from its start."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scheduler_site(Path(os.environ["KUBEBUILDER_ASSETS"]), tmp_path_factory.mktemp("rights")) as made:
        yield made


@pytest.fixture
def cleared(site: Site) -> Iterator[Site]:
    yield site
    site.clear()


def grant(site: Site, missing: Right | None) -> None:
    """Give the account everything, or everything but one right, and wait until the server knows."""
    kept: dict[str, list[dict[str, Any]]] = {"ClusterRole": [], "Role": []}
    for kind, rule in rules():
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs = [verb for verb in rule["verbs"] if Right(group, resource, verb) != missing]
                if verbs:
                    kept[kind].append({**rule, "apiGroups": [group], "resources": [resource], "verbs": verbs})
    for kind, left in kept.items():
        key = Key(RELEASE if kind == "Role" else "", ACCOUNT)
        site.client.patch(KINDS[kind], key, merge_patch({"rules": left}))
    for right in {missing, site.missing} - {None}:
        place = {}
        if right.group == "coordination.k8s.io":
            place = {"namespace": RELEASE, "name": "" if right.verb == "create" else ACCOUNT}
        wait_for(lambda right=right, place=place: site.allows(*right, **place) is (right != missing))
    site.missing = missing


def named(running: Scheduler, right: Right) -> bool:
    """Return whether the log says which right is missing, in the server's words."""
    plural = right.resource
    said = rf'cannot {right.verb} resource \\?"{re.escape(plural)}\\?" in API group \\?"{re.escape(right.group)}\\?"'
    return re.search(said, running.log.read_text(errors="replace")) is not None


def test_each_right_is_used_and_none_is_missing(cleared: Site) -> None:
    site = cleared
    grant(site, None)
    nudges = [
        provoke(site, f"all-{number}")
        for number, provoke in enumerate(dict.fromkeys(each for each in PROVOKED.values() if each is not contested))
    ]
    used: set[Right] = set()
    refusals: list[str] = []

    def look() -> set[Right]:
        for each in site.audited():
            place = each.get("objectRef", {})
            sub = place.get("subresource")
            plural = f"{place.get('resource', '')}/{sub}" if sub else place.get("resource", "")
            used.add(Right(place.get("apiGroup", ""), plural, each["verb"]))
            if each.get("responseStatus", {}).get("code") == 403:
                refusals.append(f"{each['verb']} {plural}: {each['responseStatus'].get('message', '')}")
        return set(RIGHTS) - CHECKED_BESIDE - used

    with site.running("all", **QUICK) as first, site.running("second", "--no-leader-elect", **QUICK):
        wait_for(lambda: first.says("leading"), check=first.end_of_log)
        nudges.append(contested(site, "all-contested"))

        def all_used() -> bool:
            for nudge in nudges:
                nudge()
            return not look()

        try:
            wait_for(all_used, 90, interval_seconds=1.0)
        except AssertionError:
            pytest.fail(f"not used: {[*map(str, look())]}\n{first.end_of_log()}")
    assert not refusals
    assert used <= set(RIGHTS), "and it asks for nothing else"


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_a_right_that_is_missing_is_named_and_other_pods_are_placed(cleared: Site, right: Right) -> None:
    site = cleared
    grant(site, right)
    tag = f"r{RIGHTS.index(right)}"
    site.node(f"{tag}-plain")
    plain = site.pod(f"{tag}-plain", f"{tag}-plain")
    provoke = PROVOKED.get(right)
    nudge = provoke(site, tag) if provoke is not None else once
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        # Two that fight over pods both bind without asking for the lead.
        options = ("--no-leader-elect",) if provoke is contested else ()
        running = stack.enter_context(site.running(tag, *options, **QUICK))
        programs = [running]
        if provoke is contested:
            programs.append(stack.enter_context(site.running(f"{tag}-second", *options, **QUICK)))

        def told() -> bool:
            nudge()
            return any(named(each, right) for each in programs)

        wait_for(told, SECONDS, check=running.end_of_log, interval_seconds=0.25)
        print(f"{right}: named after {time.monotonic() - began:.1f} s")
        if right in ENDS_WITHOUT:
            wait_for(lambda: running.process.poll() is not None, check=running.end_of_log)
            assert running.process.returncode == 1, running.end_of_log()
        elif right not in NOTHING_IS_PLACED_WITHOUT:
            site.await_node(plain, running)
            assert running.process.poll() is None, running.end_of_log()
