"""Resource claims at a real API server: allocated and reserved before the binding, counted by kube-scheduler too."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Client,
    Document,
    Key,
    connect,
    merge_patch,
)
from scheduler.claim_writes import FINALIZER
from scheduler.engine import Engine
from scheduler.loop import Loop
from tests.cluster import apiserver
from tests.cluster_e2e.test_takeover import configuration, running
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

NAMESPACE = "claims"


@contextlib.contextmanager
def scheduling(client: Client) -> Iterator[None]:
    loop = Loop(client, Engine())
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        wait_for(loop.ready.is_set)
        yield
    finally:
        loop.stop()
        thread.join(20)
        assert not thread.is_alive()


def add_node(client: Client, name: str, gpus: int) -> None:
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    client.create(NODES, {"metadata": {"name": name}})
    client.patch(NODES, Key("", name), merge_patch({"spec": {"taints": None}}))
    client.patch(
        NODES,
        Key("", name),
        merge_patch({"status": {"capacity": resources, "allocatable": resources}}),
        subresource="status",
    )
    devices = [
        {
            "name": f"gpu{index}",
            "attributes": {"model": {"string": "A100"}, "driverVersion": {"version": "12.4.1"}},
            "capacity": {"memory": {"value": "40Gi"}},
        }
        for index in range(gpus)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
    client.create(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})


def add_claim(client: Client, name: str, count: int, **exactly: Any) -> None:
    text = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("30Gi")) >= 0'
    request = {
        "name": "gpus",
        "exactly": {
            "deviceClassName": "gpu",
            "count": count,
            "selectors": [{"cel": {"expression": text}}],
            **exactly,
        },
    }
    meta = {"name": name, "namespace": NAMESPACE}
    client.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": [request]}}})


def add_pod(client: Client, name: str, claim: str, scheduler: str = "koord-scheduler") -> None:
    container = {"name": "main", "image": "registry.invalid/app", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "schedulerName": scheduler,
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }
    client.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


def test_claims_are_allocated_reserved_and_counted_by_both_schedulers(tmp_path: Path) -> None:
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    with apiserver.running(assets, tmp_path) as kubeconfig, connect(kubeconfig=kubeconfig) as client:

        def get(resource: Any, name: str) -> Document:
            found: Document = client.get(resource, Key(NAMESPACE, name))
            return found

        def node_of(name: str) -> str:
            return str(get(PODS, name)["spec"].get("nodeName", ""))

        def said(name: str) -> str:
            conditions = get(PODS, name).get("status", {}).get("conditions", [])
            return " ".join(each.get("message", "") for each in conditions)

        labels = {"resource.kubernetes.io/admin-access": "true"}
        client.create(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}})
        expression = 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "A100"'
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        client.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
        add_node(client, "none", 0)
        add_node(client, "four", 4)
        for name, count in (("one", 1), ("two", 2), ("shared", 1), ("late", 1), ("stock", 1)):
            add_claim(client, name, count)
        add_claim(client, "admin", 1, adminAccess=True, tolerations=[{"operator": "Exists"}])
        with scheduling(client):
            for pod, claim in (("a", "one"), ("b", "two"), ("c", "shared"), ("d", "shared")):
                add_pod(client, pod, claim)
            for pod in "abcd":
                wait_for(lambda pod=pod: node_of(pod) == "four", check=lambda pod=pod: said(pod))
            add_pod(client, "e", "late")
            wait_for(lambda: "could not allocate all resource claims" in said("e"))
            add_pod(client, "f", "admin")
            wait_for(lambda: node_of("f") == "four", check=lambda: said("f"))
            (looked_at,) = get(RESOURCE_CLAIMS, "admin")["status"]["allocation"]["devices"]["results"]
            assert looked_at["adminAccess"] is True
            assert looked_at["tolerations"] == [{"operator": "Exists"}]
            devices: list[str] = []
            for claim, consumers in (("one", {"a"}), ("two", {"b"}), ("shared", {"c", "d"})):
                assert FINALIZER in get(RESOURCE_CLAIMS, claim)["metadata"]["finalizers"]
                status = get(RESOURCE_CLAIMS, claim)["status"]
                assert {each["name"] for each in status["reservedFor"]} == consumers
                devices += [each["device"] for each in status["allocation"]["devices"]["results"]]
            assert sorted(devices) == ["gpu0", "gpu1", "gpu2", "gpu3"]
            assert not node_of("e")
            client.delete(PODS, Key(NAMESPACE, "a"))
            # The controller manager does this, where one runs.
            free = merge_patch({"status": {"allocation": None, "reservedFor": None}})
            client.patch(RESOURCE_CLAIMS, Key(NAMESPACE, "one"), free, subresource="status")
            wait_for(lambda: node_of("e") == "four", check=lambda: said("e"))
        if not (assets / "kube-scheduler").exists():
            return
        file = tmp_path / "scheduler.yaml"
        file.write_bytes(msgspec.yaml.encode(configuration(kubeconfig)))
        stock = [str(assets / "kube-scheduler"), f"--config={file}", "--secure-port=0"]
        stock += [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
        add_pod(client, "g", "stock", "default-scheduler")
        add_pod(client, "h", "shared", "default-scheduler")
        with running(stock, tmp_path / "stock.log") as alive:
            wait_for(lambda: node_of("h") == "four", 90, check=alive)
            wait_for(lambda: "cannot allocate all claims" in said("g"), 60, check=alive)
