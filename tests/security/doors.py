"""Every HTTP server of ours, running, with requests that it answers; a new one belongs into `DOORS`."""

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from cluster import CONFIG_MAPS, NODES, SECRETS, Key
from cluster.serving import Answering, Listener, listen
from cluster.twin import Twin
from controllers.cluster_page.serve import ClusterPage
from controllers.external_metrics.answers import ROOT
from controllers.external_metrics.front_proxy import AUTHENTICATION
from controllers.external_metrics.serve import API_SERVICES, ExternalMetrics
from controllers.external_metrics.settings import ExternalMetricsSettings
from controllers.recommend.observed import WorkloadUsage
from controllers.runtime.health import Health
from controllers.webhooks.certificates import issue, load, server_context
from controllers.webhooks.rotation import decoded
from controllers.webhooks.routes import ROUTES, Reply, reply
from controllers.webhooks.server import webhook_listener
from controllers.webhooks.settings import WebhookSettings
from controllers.webhooks.view import ClusterView
from koordlet.agent.agent import Agent
from koordlet.agent.loop import AgentLoop
from koordlet.config import AgentSettings, EnforcerSettings, MetricsSettings, ProbeSettings
from koordlet.control.control_loop import open_control_loop
from koordlet.metrics import server as metrics_module
from koordlet.metrics.connections import MetricsServer
from koordlet.metrics.server import open_metrics
from scheduler.engine import Engine
from scheduler.loop import Loop
from scheduler.profile import SchedulerSettings
from scheduler.serving.http_api import HealthApi, HttpApi
from tests.certificates import Authority
from tests.controllers.cluster_page.states import NOW
from tests.controllers.cluster_page.test_serve import EMPTY
from tests.controllers.webhooks.reviews import PRIORITY_CLASSES, pod
from tests.hostile_http import Ask, Door
from tests.koordlet.enforcer.hosts import FakeHost
from tests.schedobjects import node
from tests.waiting import wait_for

SCRAPE = (Ask("GET", "/metrics"), Ask("GET", "/healthz"), Ask("GET", "/metrics?name[]=koord_build_info"))


@dataclass(frozen=True)
class Open:
    """A server that runs: its door, what it answers, its connections and the threads that serve them."""

    door: Door
    asks: tuple[Ask, ...]
    num_connections: Callable[[], int]
    num_threads: Callable[[], int]


def _open(listener: Listener, door: Door, asks: tuple[Ask, ...]) -> Open:
    # By name: the program behind the door starts threads of its own when it likes, as the scheduler's writes do.
    return Open(door, asks, lambda: len(listener.connections), lambda: _num_threads(listener._name))


def _num_request_threads() -> int:
    """Count threads of servers of the standard library, which number theirs."""
    return sum(thread.name.endswith("(process_request_thread)") for thread in threading.enumerate())


def _num_threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


@contextlib.contextmanager
def _plain(answering: Answering, *asks: Ask) -> Iterator[Open]:
    listener = listen(answering, "127.0.0.1", 0)
    try:
        yield _open(listener, Door(listener.port), asks)
    finally:
        listener.stop()


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[Open]:
    """The agent's metrics, health and node page."""
    with _agent(folder, MetricsSettings(port=0), None) as made:
        yield made


@contextlib.contextmanager
def agent_by_tls(folder: Path) -> Iterator[Open]:
    """The same by TLS, for clients of an authority."""
    ours = Authority(folder / "ours", "ours")
    server, client = ours.issue("server", names=("DNS:localhost",)), ours.issue("client")
    context = ssl.create_default_context(cafile=ours.pair.certificate)
    context.load_cert_chain(client.certificate, client.key)
    authority = str(ours.pair.certificate)
    table = MetricsSettings(port=0, certificate=str(server.certificate), key=str(server.key), client_ca=authority)
    with _agent(folder, table, context) as made:
        yield made


@contextlib.contextmanager
def _agent(folder: Path, table: MetricsSettings, client: ssl.SSLContext | None) -> Iterator[Open]:
    host = FakeHost(folder)
    settings = AgentSettings(
        root=str(host.root),
        probes=ProbeSettings(backend="none"),
        metrics=table,
        enforcer=EnforcerSettings(state_dir=str(folder / "state"), audit_file=""),
    )
    made: list[MetricsServer] = []

    class Kept(MetricsServer):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)  # type: ignore[arg-type]
            made.append(self)

    with contextlib.ExitStack() as stack:
        loop_of = Agent(settings)
        stack.callback(loop_of.close)
        control = open_control_loop(settings, host.tree)
        stack.callback(control.close)
        known, metrics_module.MetricsServer = metrics_module.MetricsServer, Kept  # type: ignore[misc]
        try:
            sink = stack.enter_context(open_metrics(loop_of, None, control, settings, "1.2.3"))
        finally:
            metrics_module.MetricsServer = known  # type: ignore[misc]
        loop = AgentLoop(loop_of, control=control.step, sinks={"metrics": sink})
        for _ in range(2):
            loop.tick()
        page = Ask("GET", "/", host="localhost")
        door, asks = Door(made[0].server_port, client), (*SCRAPE, page)
        yield Open(door, asks, lambda: len(made[0]._open), _num_request_threads)


@contextlib.contextmanager
def cluster_page(_folder: Path) -> Iterator[Open]:
    """The manager's page."""
    with _plain(ClusterPage(lambda _: EMPTY, lambda: True, lambda: NOW), Ask("GET", "/")) as made:
        yield made


@contextlib.contextmanager
def controllers_health(_folder: Path) -> Iterator[Open]:
    """Health and metrics of manager, descheduler and copilot."""
    with _plain(Health(CollectorRegistry(), lambda: True, str), Ask("GET", "/metrics"), Ask("GET", "/readyz")) as made:
        yield made


@contextlib.contextmanager
def _scheduling(door_of: Callable[[Loop], Answering], *asks: Ask) -> Iterator[Open]:
    settings = SchedulerSettings(extender_scheduler_names=("default-scheduler",))
    with Twin() as twin:
        twin.load(NODES, [msgspec.to_builtins(node(name, allocatable={"cpu": "8"})) for name in ("one", "two")])
        loop = Loop(twin.client(), Engine(settings))
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        try:
            assert loop.ready.wait(30)
            with _plain(door_of(loop), *asks) as made:
                yield made
        finally:
            loop.stop()
            thread.join(10)


@contextlib.contextmanager
def scheduler_health(_folder: Path) -> Iterator[Open]:
    """The scheduler's health port."""
    with _scheduling(HealthApi, Ask("GET", "/metrics"), Ask("GET", "/healthz")) as made:
        yield made


@contextlib.contextmanager
def scheduler(_folder: Path) -> Iterator[Open]:
    """The scheduler's extender, services, debug flags and simulated placement."""
    pod_text = msgspec.json.encode({"Pod": pod(), "NodeNames": ["one", "two"], "NodeNameToVictims": {"one": {}}})
    asks = (
        Ask("POST", "/extender/filter", pod_text),
        Ask("POST", "/extender/prioritize", pod_text),
        Ask("POST", "/extender/preempt", pod_text),
        Ask("PUT", "/debug/flags/s", b"3"),
        Ask("GET", "/apis/v1/__services__"),
        Ask("GET", "/apis/v1/nodes/one"),
        Ask("GET", "/apis/v1/plugins/NodeNUMAResource/availableCPUs/one"),
    )
    with _scheduling(HttpApi, *asks) as made:
        yield made


@contextlib.contextmanager
def webhooks(_folder: Path) -> Iterator[Open]:
    """The manager's admission webhooks, by TLS."""
    pair, context = issue(("localhost",), 1), server_context()
    load(context, pair)
    view = ClusterView(priority_classes=PRIORITY_CLASSES)

    def answer(path: str, body: bytes) -> Reply:
        return reply(path, body, lambda: view, frozenset())

    listener = webhook_listener(WebhookSettings(address="127.0.0.1", port=0), context, answer)
    listener.start()
    try:
        client = ssl.create_default_context(cadata=pair.certificate)
        reviews = (
            Ask(
                "POST",
                path,
                msgspec.json.encode(
                    {
                        "apiVersion": "admission.k8s.io/v1",
                        "kind": "AdmissionReview",
                        "request": {
                            "uid": "u",
                            "operation": "CREATE",
                            "resource": {"group": group, "version": "v1", "resource": plural},
                            "namespace": "n",
                            "object": pod(),
                        },
                    }
                ),
            )
            for path, route in ROUTES.items()
            for group, _, plural in [route.resource.rpartition("/")]
        )
        yield _open(listener, Door(listener.port, client), (*reviews, Ask("GET", "/healthz")))
    finally:
        listener.stop()


@contextlib.contextmanager
def external_metrics(folder: Path) -> Iterator[Open]:
    """The manager's external metrics, by TLS, for the API server's certificate alone."""
    front = Authority(folder / "front", "front")
    namespace, name = AUTHENTICATION
    data = {
        "requestheader-client-ca-file": front.pair.certificate.read_text(),
        "requestheader-allowed-names": '["front-proxy"]',
    }
    with Twin() as twin, twin.client() as client:
        twin.serve(API_SERVICES)
        client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}, "data": data})
        settings = ExternalMetricsSettings(enabled=True, address="127.0.0.1", port=0)
        metrics = ExternalMetrics(client, settings, WorkloadUsage().value())
        metrics.start()
        try:
            wait_for(lambda: metrics.ready)
            kept = decoded(client.get(SECRETS, Key("koord-system", "koord-metrics-certificate")))
            context = ssl.create_default_context(cadata=kept.bundle)
            pair = front.issue("front-proxy")
            context.load_cert_chain(pair.certificate, pair.key)
            cores = Ask("GET", f"{ROOT}/namespaces/d/koord_cpu_cores?labelSelector=kind%3DDeployment%2Cname%3Dweb")
            yield _open(
                metrics._server,
                Door(metrics.port, context, "koord-metrics.koord-system.svc"),
                (Ask("GET", ROOT), cores),
            )
        finally:
            metrics.stop()


DOORS = {
    made.__name__: made
    for made in (
        agent,
        agent_by_tls,
        cluster_page,
        controllers_health,
        external_metrics,
        scheduler,
        scheduler_health,
        webhooks,
    )
}
