"""Advice at a real API server: a stock autoscaler adds replicas ahead of the use, a running pod is resized in place."""

import contextlib
import itertools
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.crds import NODE_METRIC, RECOMMENDATION, definition_document
from api.kube.times import rfc3339
from api.protocol import ANNOTATION_ADVICE, ANNOTATION_UPDATE_MODE
from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    ApiError,
    Binding,
    Client,
    ClientSettings,
    Document,
    Key,
    Query,
    Resource,
    bind,
    connect,
    merge_patch,
)
from cluster import custom as resource_of
from cluster.transport import Request
from controllers.external_metrics.answers import ROOT
from controllers.external_metrics.serve import API_SERVICES, ExternalMetrics
from controllers.external_metrics.settings import ExternalMetricsSettings
from controllers.plans.resizes import IN_PLACE, Resizes, ResizeSettings
from controllers.recommend.advice import Advice, ContainerAdvice
from controllers.recommend.observed import WorkloadUsage
from controllers.recommend.report import Amounts
from controllers.runtime.loop import Loop
from tests.cluster import apiserver
from tests.deploy.charts import documents
from tests.deploy.node_reports import kubeconfig_with
from tests.managed import running_on
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

FAST = ClientSettings(requests_per_second=1000.0, burst=1000, attempts=3)
ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", dict)
RBAC = "rbac.authorization.k8s.io"
OF_THE_CHART = {
    "ClusterRole": Resource("ClusterRole", "clusterroles", dict, group=RBAC, namespaced=False),
    "ClusterRoleBinding": Resource("ClusterRoleBinding", "clusterrolebindings", dict, group=RBAC, namespaced=False),
    "Role": Resource("Role", "roles", dict, group=RBAC),
    "RoleBinding": Resource("RoleBinding", "rolebindings", dict, group=RBAC),
    "APIService": API_SERVICES,
}
SLICES = Resource("EndpointSlice", "endpointslices", dict, group="discovery.k8s.io")
AUTOSCALERS = Resource("HorizontalPodAutoscaler", "horizontalpodautoscalers", dict, group="autoscaling", version="v2")
METRICS = resource_of(NODE_METRIC).of(dict)
HOUR = 3600
DAYS = 5
LOW, HIGH = 1.0, 8.0
"""Cores of the workload; high in the six hours from the next one on, each day."""


def own_address() -> str:
    """Return an address of this machine that a Service may lead to; empty where there is only loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        found = str(probe.getsockname()[0])
    return "" if found.startswith("127.") else found


@dataclass(frozen=True)
class Site:
    """A control plane with the chart's rights, and the manager's account."""

    admin: Client
    manager: Client


def front_proxy(folder: Path) -> list[str]:
    """Make the certificate that the API server proxies with; return the server's arguments."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    authority, front = folder / "front-ca", folder / "front"
    run = [*("req", "-x509", *key, "-days", "1"), *("-keyout", f"{authority}.key", "-out", f"{authority}.crt")]
    subprocess.run(["openssl", *run, "-subj", "/CN=front-ca"], check=True, capture_output=True)
    ask = ["req", *key, "-keyout", f"{front}.key", "-out", f"{front}.csr", "-subj", "/CN=front-proxy-client"]
    subprocess.run(["openssl", *ask], check=True, capture_output=True)
    sign = ["x509", "-req", "-in", f"{front}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"]
    subprocess.run(
        ["openssl", *sign, "-CAcreateserial", "-days", "1", "-out", f"{front}.crt"], check=True, capture_output=True
    )
    return [
        f"--requestheader-client-ca-file={authority}.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={front}.crt",
        f"--proxy-client-key-file={front}.key",
        "--enable-aggregator-routing=true",
    ]


def token(admin: Client, account: str, namespace: str) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = admin.send(Request("POST", path, body=msgspec.json.encode(body)))
    return str(msgspec.json.decode(answer)["status"]["token"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if not own_address():
        pytest.skip("this machine has no address but loopback, which no Service may lead to")
    folder = tmp_path_factory.mktemp("autoscaling")
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    with (
        apiserver.running(assets, folder, front_proxy(folder)) as kubeconfig,
        contextlib.closing(connect(FAST, kubeconfig=kubeconfig)) as admin,
    ):
        controllers = [
            str(assets / "kube-controller-manager"),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--controllers=deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--secure-port=0",
        ]
        for definition in (NODE_METRIC, RECOMMENDATION):
            admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
        for name in ("koord-system", "shop"):
            admin.create(NAMESPACES, {"metadata": {"name": name}})
        admin.create(ACCOUNTS, {"metadata": {"name": "koord-manager", "namespace": "koord-system"}})
        for document in documents({"manager": {"enabled": True, "resize": True}, "externalMetrics": {"enabled": True}}):
            ours = document["metadata"]["name"] in ("koord-manager", "koord-external-metrics")
            if document["kind"] in OF_THE_CHART and (ours or document["kind"] == "APIService"):
                admin.create(OF_THE_CHART[document["kind"]], document)
        file = kubeconfig_with(kubeconfig, token(admin, "koord-manager", "koord-system"), folder / "manager")
        with (
            apiserver.process(controllers, folder / "controllers.log"),
            contextlib.closing(connect(FAST, kubeconfig=file)) as manager,
        ):
            yield Site(admin, manager)


@contextlib.contextmanager
def serving(site: Site) -> Iterator[ExternalMetrics]:
    """The manager's loop and server with the rights of its account, behind the chart's APIService."""
    settings = ExternalMetricsSettings(enabled=True, port=0, lead_seconds=3600)
    loop = Loop(site.manager, site.manager, {}, tables=(WorkloadUsage,))
    metrics = ExternalMetrics(site.manager, settings, loop.table(WorkloadUsage))
    meta = {"name": settings.service, "namespace": settings.namespace}
    ports = [{"name": "metrics-api", "port": 443, "targetPort": metrics.port}]
    site.admin.create(SERVICES, {"metadata": meta, "spec": {"ports": ports}})
    labelled = {**meta, "labels": {"kubernetes.io/service-name": settings.service}}
    endpoints = [{"addresses": [own_address()], "conditions": {"ready": True}}]
    slice_ports = [{"name": "metrics-api", "port": metrics.port, "protocol": "TCP"}]
    site.admin.create(
        SLICES, {"metadata": labelled, "addressType": "IPv4", "endpoints": endpoints, "ports": slice_ports}
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    metrics.start()
    try:
        wait_for(lambda: metrics.ready and loop.ready.is_set())
        yield metrics
    finally:
        metrics.stop()
        loop.stop()
        thread.join(10)


def read(client: Client, metric: str) -> dict[str, str]:
    path = f"{ROOT}/namespaces/shop/{metric}?labelSelector=kind%3DDeployment%2Cname%3Dweb"
    found: Document = msgspec.json.decode(client.send(Request("GET", path)))
    return {each["metricLabels"]["name"]: each["value"] for each in found["items"]}


def deployed(admin: Client) -> str:
    """Create the workload; return the name of its only pod, on node n1."""
    labels = {"app": "web"}
    container = {"name": "app", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    admin.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
    found = wait_for(lambda: admin.list(PODS, Query(namespace="shop")).values)
    name = str(found[0]["metadata"]["name"])
    bind(admin, Binding(Key("shop", name), found[0]["metadata"]["uid"], "n1"))
    return name


def report(admin: Client, pod: str, time_seconds: float, cores: float) -> None:
    used = {"resources": {"cpu": f"{cores * 1000:.0f}m", "memory": "1Gi"}}
    stated = {"name": pod, "namespace": "shop", "podUsage": used, "extensions": {"workload": "Deployment/shop/web"}}
    status: dict[str, Any] = {"updateTime": rfc3339(time_seconds), "podsMetric": [stated]}
    admin.patch(METRICS, Key("", "n1"), merge_patch({"status": status}), subresource="status")


def test_replicas_are_added_before_the_use_is_there(site: Site) -> None:
    admin = site.admin
    pod = deployed(admin)
    spec = {"metricCollectPolicy": {"reportIntervalSeconds": 1}}
    admin.create(METRICS, {"metadata": {"name": "n1"}, "spec": spec})
    with serving(site):
        wait_for(lambda: available(admin), 60)
        now = time.time()
        begin, hour = now - DAYS * 24 * HOUR, int(now // HOUR)
        for step in range(DAYS * 24):
            at = begin + step * HOUR
            high = (int(at // HOUR) - hour - 1) % 24 < 6
            report(admin, pod, at, HIGH if high else LOW)
        report(admin, pod, now, LOW)
        wait_for(lambda: read(admin, "koord_cpu_cores_ahead").get("web", "0m") > "7000m")
        assert read(admin, "koord_cpu_cores") == {"web": "1000m"}, "nothing of it is used yet"
        selector = {"matchLabels": {"kind": "Deployment", "name": "web"}}
        external = {
            "metric": {"name": "koord_cpu_cores_ahead", "selector": selector},
            "target": {"type": "AverageValue", "averageValue": "1"},
        }
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        scaling = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 20}
        metrics = [{"type": "External", "external": external}]
        meta = {"name": "web", "namespace": "shop"}
        admin.create(AUTOSCALERS, {"metadata": meta, "spec": {**scaling, "metrics": metrics}})
        wait_for(lambda: admin.get(DEPLOYMENTS, Key("shop", "web"))["spec"]["replicas"] >= 8, 60)
        found = admin.get(AUTOSCALERS, Key("shop", "web"))["status"]
        assert {each["type"]: each["status"] for each in found["conditions"]}["ScalingActive"] == "True"


def available(admin: Client) -> bool:
    conditions = admin.get(API_SERVICES, Key("", "v1beta1.external.metrics.k8s.io")).get("status", {}).get("conditions")
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions or ())


def test_who_may_not_read_metrics_is_refused_by_the_api_server(site: Site) -> None:
    with pytest.raises(ApiError, match=r"external\.metrics"):
        read(site.manager, "koord_cpu_cores")


class FastResizes(Resizes):
    """Plans every tenth of a second."""

    period_seconds = 0.1


def test_a_running_pod_is_resized_with_the_right_of_its_own(site: Site) -> None:
    admin = site.admin
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    admin.create(NODES, {"metadata": {"name": "n2"}})
    room = {"status": {"capacity": amounts, "allocatable": amounts}}
    admin.patch(NODES, Key("", "n2"), merge_patch(room), subresource="status")
    containers = [
        {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}}}
        for name, cpu in (("app", "2"), ("b", "1"))
    ]
    admin.create(
        PODS, {"metadata": {"name": "db-0", "namespace": "shop"}, "spec": {"nodeName": "n2", "containers": containers}}
    )
    admin.patch(PODS, Key("shop", "db-0"), merge_patch({"status": {"phase": "Running"}}), subresource="status")
    admin.create(METRICS, {"metadata": {"name": "n2"}, "spec": {}})
    advice = Advice(
        containers=[ContainerAdvice(name="app", cpu_millicores=Amounts(400, 600, 900))], confidence_days=1.0
    )
    annotations = {ANNOTATION_ADVICE: msgspec.json.encode(advice).decode(), ANNOTATION_UPDATE_MODE: IN_PLACE}
    target = {"type": "workload", "workload": {"kind": "Deployment", "name": "db"}}
    meta = {"name": "db", "namespace": "shop", "annotations": annotations}
    admin.create(resource_of(RECOMMENDATION).of(dict), {"metadata": meta, "spec": {"target": target}})
    key = Key("koord-system", "none")
    controllers = {"resizes": FastResizes(ResizeSettings(enabled=True, dry_run=False, pause_seconds=0), key)}
    with running_on(site.manager, controllers):
        turns = itertools.count()

        def requests() -> list[str]:
            time_seconds = time.time() - 100 + next(turns)
            used = {"resources": {"cpu": "500m", "memory": "1Gi"}}
            stated = {
                "name": "db-0",
                "namespace": "shop",
                "podUsage": used,
                "extensions": {"workload": "Deployment/shop/db"},
            }
            status = {"updateTime": rfc3339(time_seconds), "podsMetric": [stated]}
            admin.patch(METRICS, Key("", "n2"), merge_patch({"status": status}), subresource="status")
            found = admin.get(PODS, Key("shop", "db-0"))["spec"]["containers"]
            return [each["resources"]["requests"]["cpu"] for each in found]

        wait_for(lambda: requests() == ["600m", "1"], 30)
