"""The server of external metrics with real sockets: it answers the API server's certificate and no other."""

import contextlib
import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import CONFIG_MAPS, SECRETS, Client, Key
from cluster.twin import Twin
from controllers.external_metrics.answers import ROOT
from controllers.external_metrics.front_proxy import AUTHENTICATION, FrontProxyError, front_proxy
from controllers.external_metrics.serve import API_SERVICES, ExternalMetrics
from controllers.external_metrics.settings import ExternalMetricsSettings
from controllers.kinds import NODE_METRIC
from controllers.recommend.observed import WorkloadUsage
from controllers.webhooks.rotation import decoded
from tests.controllers.recommend.cluster import BEGIN, container, live, placed, pod, told
from tests.waiting import wait_for

SETTINGS = ExternalMetricsSettings(enabled=True, address="127.0.0.1", port=0)
NAME = "koord-metrics.koord-system.svc"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, with certificates of its own (front) and of another (stranger, named as the first)."""
    folder = tmp_path_factory.mktemp("pki")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    for name in ("ca", "other"):
        openssl(
            "req", "-x509", *key, "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem", "-subj", "/CN=ca"
        )
    for name, signer, subject in (
        ("front", "ca", "front-proxy"),
        ("guest", "ca", "guest"),
        ("stranger", "other", "front-proxy"),
    ):
        request = f"{folder}/{name}.csr"
        openssl("req", *key[:-2], "-keyout", f"{folder}/{name}.key", "-out", request, "-subj", f"/CN={subject}")
        signing = ["-CA", f"{folder}/{signer}.pem", "-CAkey", f"{folder}/{signer}.key", "-CAcreateserial", "-days", "1"]
        openssl("x509", "-req", "-in", request, *signing, "-out", f"{folder}/{name}.pem")
    return folder


def described(client: Client, authority: Path, names: str = '["front-proxy"]') -> None:
    data = {"requestheader-client-ca-file": (authority / "ca.pem").read_text(), "requestheader-allowed-names": names}
    namespace, name = AUTHENTICATION
    client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}, "data": data})


@contextlib.contextmanager
def serving(client: Client) -> Iterator[tuple[ExternalMetrics, str]]:
    """A server that knows four days of a workload; with its certificate."""
    table = WorkloadUsage()
    observed = table.value()
    placed(table, pod("web-1", container("app", "1")))
    now = live(table, 4)
    metrics = ExternalMetrics(client, SETTINGS, observed, clock=lambda: now + 60)
    metrics.start()
    try:
        wait_for(lambda: metrics.ready)
        kept = decoded(client.get(SECRETS, Key("koord-system", "koord-metrics-certificate")))
        yield metrics, kept.bundle
    finally:
        metrics.stop()


def get(port: int, bundle: str, path: str, pair: Path | None, method: str = "GET") -> tuple[int, dict[str, object]]:
    context = ssl.create_default_context(cadata=bundle)
    if pair is not None:
        context.load_cert_chain(pair, pair.with_suffix(".key"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    connection._context.check_hostname = False  # type: ignore[attr-defined]  # the name is that of the Service
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        running.serve(API_SERVICES)
        running.serve(NODE_METRIC)
        yield running


def test_the_api_server_is_answered_and_trusts_the_certificate(twin: Twin, authority: Path) -> None:
    with twin.client() as client:
        described(client, authority)
        spec = {"service": {"name": "koord-metrics", "namespace": "koord-system"}, "group": "external.metrics.k8s.io"}
        client.create(API_SERVICES, {"metadata": {"name": SETTINGS.api_service}, "spec": spec})
        with serving(client) as (metrics, bundle):
            path = f"{ROOT}/namespaces/d/koord_cpu_cores?labelSelector=kind%3DDeployment%2Cname%3Dweb"
            status, found = get(metrics.port, bundle, path, authority / "front.pem")
            assert status == 200
            assert [each["value"] for each in found["items"]] == ["1000m"]  # type: ignore[index, attr-defined]
            assert get(metrics.port, bundle, path, authority / "front.pem", "POST")[0] == 405
            wait_for(lambda: client.get(API_SERVICES, Key("", SETTINGS.api_service))["spec"].get("caBundle"))
            spec = client.get(API_SERVICES, Key("", SETTINGS.api_service))["spec"]
            assert spec["service"]["name"] == "koord-metrics", "nothing else of it is changed"


def test_nobody_else_is_answered(twin: Twin, authority: Path) -> None:
    with twin.client() as client:
        described(client, authority)
        with serving(client) as (metrics, bundle):
            path = f"{ROOT}/namespaces/d/koord_cpu_cores"
            for pair in (None, authority / "stranger.pem"):
                with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                    get(metrics.port, bundle, path, pair)
            status, found = get(metrics.port, bundle, path, authority / "guest.pem")
            assert (status, found["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param({}, "--requestheader-client-ca-file", id="nothing"),
        pytest.param({"requestheader-client-ca-file": "x"}, "--requestheader-client-ca-file", id="no certificate"),
        pytest.param(
            {"requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----", "requestheader-allowed-names": "{"},
            "requestheader-allowed-names",
            id="odd names",
        ),
    ],
)
def test_a_cluster_that_does_not_say_how_its_api_server_shows_itself(
    twin: Twin, data: dict[str, str], words: str
) -> None:
    with twin.client() as client:
        namespace, name = AUTHENTICATION
        client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}, "data": data})
        with pytest.raises(FrontProxyError, match=words):
            front_proxy(client)


def test_a_torn_authority_leaves_the_server_closed(twin: Twin, authority: Path) -> None:
    with twin.client() as client:
        torn = (authority / "ca.pem").read_text()[:200]
        namespace, name = AUTHENTICATION
        data = {"requestheader-client-ca-file": torn, "requestheader-allowed-names": "[]"}
        client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}, "data": data})
        metrics = ExternalMetrics(client, SETTINGS, WorkloadUsage().value())
        try:
            with pytest.raises(FrontProxyError, match="requestheader-client-ca-file"):
                metrics.follow()
            assert not metrics.ready
        finally:
            metrics.stop()


def test_no_sum_is_told_before_each_node_had_time_to_report(twin: Twin) -> None:
    table = WorkloadUsage()
    times = [BEGIN]
    with twin.client() as client:
        metrics = ExternalMetrics(client, SETTINGS, table.value(), clock=lambda: times[0])
        try:
            table.now = BEGIN
            placed(table, pod("web-1", container("app", "1")))
            table.apply(NODE_METRIC, told(BEGIN - 30, {"web-1": ("1", "1G")}))
            assert not list(metrics.series("d"))
            times[0] += 61
            assert [each.name for each in metrics.series("d")] == ["web"]
        finally:
            metrics.stop()
