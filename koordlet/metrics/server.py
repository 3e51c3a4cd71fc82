"""The Prometheus endpoint of the agent: its registry, its HTTP server with the probes' paths, and the sink of both."""

import logging
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from api.plugin import Unsupported
from koordlet.agent.agent import Agent
from koordlet.agent.detection import Detection
from koordlet.agent.sinks import Sink
from koordlet.config import AgentSettings, MetricsSettings
from koordlet.control.control_loop import ControlLoop
from koordlet.enforcer.lifecycle import own_cgroup
from koordlet.host.files import HostTree
from koordlet.host.scheduling import Breaks
from koordlet.metrics.actions import ActionMetrics
from koordlet.metrics.cgroups import CgroupMetrics
from koordlet.metrics.connections import MetricsServer
from koordlet.metrics.health import TickHealth, few_at_once, for_certificates_only, with_health
from koordlet.metrics.koordinator_names import KoordinatorMetrics
from koordlet.metrics.node_state import NodeStateKeeper
from koordlet.metrics.priorities import PriorityMetrics
from koordlet.metrics.spread import scrape_application
from koordlet.metrics.verdicts import VerdictMetrics
from koordlet.node_page.application import with_page
from koordlet.node_page.values import Section
from koordlet.serving.settings import is_loopback
from koordlet.tick import Tick

if TYPE_CHECKING:
    from cluster.serving.tls import ReloadedContext

_log = logging.getLogger(__name__)

_PROGRAMS_EVERY = 10
"""Ticks between two readings of the run time of BPF programs."""


def _koordinator_names(settings: AgentSettings) -> KoordinatorMetrics | None:
    if not settings.metrics.koordinator_names:
        return None
    turn_seconds = settings.interval_seconds * settings.cgroups.slow_every_ticks
    return KoordinatorMetrics(settings.cluster.node_name or platform.node(), turn_seconds, settings.metrics.max_cgroups)


def _reachable(address: str) -> str:
    """Where a browser of this host finds what listens on the address."""
    return "127.0.0.1" if address in ("", "0.0.0.0") else f"[{address}]" if ":" in address else address


def _tls(table: MetricsSettings) -> "ReloadedContext | None":
    """TLS as the settings ask for it. Raises Unsupported, which names the files and keys."""
    if not table.certificate:
        return None
    try:
        # Here, since hosts without a cluster may have no cluster extra, and most have no TLS.
        from cluster.serving.tls import ReloadedContext, TlsFiles
    except ImportError as error:
        raise Unsupported(f"TLS of the metrics needs urllib3 ({error})", "pip install 'koord[cluster]'") from error
    authority = Path(table.client_ca) if table.client_ca else None
    # The kubelet's probes show no certificate.
    files = TlsFiles(Path(table.certificate), Path(table.key), authority, is_demanded_at_once=False)
    try:
        return ReloadedContext(files, time.monotonic)
    except OSError as error:
        keys = "[metrics] certificate, key and client_ca" if authority else "[metrics] certificate and key"
        problem = f"metrics cannot be served by TLS: {error}"
        raise Unsupported(problem, f"mend the PEM files of {keys}, or clear these keys to serve plain HTTP") from error


def _tell(table: MetricsSettings, port: int, *, page: bool) -> None:
    """Log where the endpoint is, and who may read it where that is more than this host."""
    scheme = "https" if table.certificate else "http"
    _log.info("metrics on %s://%s:%d/metrics", scheme, table.address, port)
    if page:
        _log.info("the node's page on %s://%s:%d/", scheme, _reachable(table.address), port)
    if not table.certificate and not is_loopback(table.address):
        _log.info(
            "without TLS: all who reach the port read names and use of pods and cgroups;"
            ' set [metrics] certificate, key and client_ca, or address = "127.0.0.1"'
        )


@contextmanager
def open_metrics(
    agent: Agent,
    detection: Detection | None,
    control: ControlLoop,
    settings: AgentSettings,
    version: str,
    evidence: Callable[[], tuple[Section, ...]] = tuple,
) -> Iterator[Sink]:
    """The sink of the endpoint, which serves while the block runs; `evidence` gives further sections of its page.

    Raises Unsupported where the address cannot be bound, and for TLS files that do not serve.
    """
    table = settings.metrics
    tls = _tls(table)
    build = {"version": version, "kernel": platform.release()}
    own = own_cgroup(HostTree(Path(settings.root)))
    cgroups = CgroupMetrics(table, agent.info_of, build, own, breaks=Breaks)
    verdicts = VerdictMetrics(table.max_verdicts, agent.name_of, control.entitled_part)
    actions = ActionMetrics(table.max_verdicts, agent.name_of, dry_run=not settings.enforcer.enabled)
    priorities = PriorityMetrics()
    registry = CollectorRegistry()
    registry.register(cgroups)
    registry.register(priorities)
    registry.register(actions)
    if detection is not None:
        registry.register(verdicts)
    koordinator = _koordinator_names(settings)
    if koordinator is not None:
        registry.register(koordinator)
    health = TickHealth(settings.interval_seconds)
    keeper = NodeStateKeeper(agent, control, settings, version, evidence)
    pages = with_page(settings.page, keeper.state, scrape_application(registry))
    pages = few_at_once(pages)
    app = with_health(health, for_certificates_only(pages) if table.client_ca else pages)
    try:
        server = MetricsServer(table.address, table.port, app, tls=tls)
    except OSError as error:
        problem = f"metrics cannot be served on {table.address}:{table.port}: {error.strerror}"
        raise Unsupported(problem, "set [metrics] port in the settings file") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    _tell(table, server.server_port, page=settings.page.enabled)

    ticks = count()
    programs: list[tuple[str, str, float, int]] = []

    def update(tick: Tick) -> None:
        health.beat()
        if next(ticks) % _PROGRAMS_EVERY == 0:  # a system call for each
            programs[:] = agent.program_rows()
        cgroups.update(tick, capabilities=agent.capabilities(), programs=programs)
        actions.update(control, tick.window.cgroups)
        priorities.update(tick, control.enforcer.active_settings().values(), control.evictions.counts)
        if detection is not None:
            verdicts.update(tick.verdicts, tick.open_verdicts, detection.state)
        if koordinator is not None:
            koordinator.update(tick, control)
        keeper.update(tick)

    try:
        yield update
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
