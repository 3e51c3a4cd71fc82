"""The sink that joins the agent to its cluster: reports, Events, the node's NodeSLO, rules."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from api.crds.node_slo import HostApplication
from api.frame import CgroupInfo
from api.plugin import Unsupported
from api.settings import SettingsError
from cluster import Event, NotConfigured
from detector.registry import discover_symptoms
from koordlet.agent.sinks import Sink
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.identity.host_applications import HostApplicationGroup, host_application_paths, kubepods_directories
from koordlet.kube.fleet_baselines import FleetBaselines
from koordlet.kube.fleet_models import FleetModels
from koordlet.kube.kept_spec import KeptSpec
from koordlet.kube.node_slo import ClusterNodeSLO, applications_of
from koordlet.kube.reporter import WATCH, Reporter, connect, node_name
from koordlet.kube.rules import ClusterRules
from koordlet.kube.usual_values import UsualValueReports
from koordlet.outputs.cluster_links import ClusterLinks
from koordlet.tick import Tick

if TYPE_CHECKING:
    from koordlet.agent.agent import Agent
    from koordlet.agent.detection import Detection
    from koordlet.config import AgentSettings

_log = logging.getLogger(__name__)


class SloFollower:
    """Follows a NodeSLO: strategies, and the classes of host applications. Called once a tick."""

    def __init__(
        self, slo: ClusterNodeSLO, agent: "Agent", reporter: Reporter, strategies: StrategyRunner | None
    ) -> None:
        self.refused = 0
        """Fields that were refused."""
        self._slo = slo
        self._agent = agent
        self._reporter = reporter
        self._strategies = strategies
        self._applications: tuple[HostApplication, ...] = ()
        self._cgroups: Sequence[CgroupInfo] = ()
        self._paths: Mapping[str, HostApplicationGroup] = {}

    def step(self, tick: Tick) -> None:
        """Take up a changed spec; find the cgroups of host applications."""
        try:
            newest = self._slo.newest()
        except SettingsError as error:
            newest = None
            self._refuse([error])
        if newest is not None:
            refused = self._strategies.follow(newest.spec, newest.source) if self._strategies else []
            try:
                self._applications = applications_of(newest.spec or {}, newest.source)
                self._cgroups = ()
            except SettingsError as error:
                refused = [*refused, error]
            self._refuse(refused)
            if not refused:
                self._slo.keep(newest)
            _log.info("following %s", newest.source if newest.spec is not None else "no NodeSLO; the settings hold")
        if self._slo.is_answered and self._strategies is not None:
            self._strategies.answered()
        if tick.window.cgroups is not self._cgroups:
            self._cgroups = tick.window.cgroups
            paths = host_application_paths(self._applications, kubepods_directories(self._cgroups))
            if paths != self._paths:
                self._paths = self._reporter.applications = paths
                self._agent.follow_applications(paths)

    def _refuse(self, refused: Sequence[SettingsError]) -> None:
        for error in refused:
            self.refused += 1
            _log.error("%s; what it sets stays as it was", error)
            self._reporter.recorder.record(
                Event(
                    regarding=self._reporter.node.reference(),
                    reason="NodeSLORefused",
                    note=f"{error}; what it sets stays as it was",
                    action="FollowNodeSLO",
                    type="Warning",
                )
            )


def open_cluster(
    stack: ExitStack,
    agent: "Agent",
    detection: "Detection | None",
    settings: "AgentSettings",
    links: ClusterLinks,
) -> Sink:
    """Open the sink; the stack closes what it opens. Raises Unsupported where no API server is configured."""
    try:
        client = connect(settings.cluster)
    except NotConfigured as error:
        raise Unsupported(str(error), "set [cluster] kubeconfig, or [cluster] enabled = false") from error
    stack.callback(client.close)
    node = node_name(settings.cluster)
    reporter = Reporter(
        client,
        settings.cluster,
        node,
        interval_seconds=settings.interval_seconds,
        turn_seconds=settings.interval_seconds * settings.cgroups.slow_every_ticks,
        prediction=settings.prediction,
        pods=links.pods,
        node_of=links.node_of,
    )
    reporter.devices_of = links.devices_of
    reporter.start()
    stack.callback(reporter.close)
    follower = None
    if settings.cluster.node_slo:
        slo = ClusterNodeSLO(client, node, WATCH, KeptSpec(Path(settings.enforcer.state_dir), node))
        slo.start()
        stack.callback(slo.close)
        follower = SloFollower(slo, agent, reporter, links.strategies)
    rules = None
    judge = detection.judge if detection else None
    if settings.cluster.rules and judge:
        rules = ClusterRules(client, frozenset(discover_symptoms()), judge.settings.rules)
        rules.start()
        stack.callback(rules.close)

    fleet = None
    models = FleetModels() if settings.cluster.fleet_models else None
    borrows = settings.cluster.fleet_baselines
    if judge and (borrows or models):
        fleet = FleetBaselines(client, links.pods, models=models)
        if borrows:
            stated = UsualValueReports()
            reporter.usual_values = lambda: stated.newest(judge.baselines)
        fleet.start()
        stack.callback(fleet.close)

    def report(tick: Tick) -> None:
        if fleet is not None and judge:
            cells = fleet.take()
            if borrows:
                judge.borrow(cells, tick.window.last.wall_ns / 1e9)
        if models is not None and judge:
            delivered = models.take()
            if delivered is not None:
                judge.replace_fleet_models(delivered)
            agent.lost["cluster.models"] = models.refused
        reporter.update(tick, links.reports.taints(), links.reports.drain())
        counters = reporter.counters()
        agent.lost["cluster.events"] = counters["events_lost"] + links.reports.dropped
        agent.lost["cluster.events_held_back"] = counters["events_held_back"]
        agent.lost["cluster.node_metric"] = counters["report_failures"]
        agent.lost["cluster.checkpoints"] = counters["checkpoint_failures"]
        if follower is not None:
            follower.step(tick)
            agent.lost["cluster.node_slo"] = follower.refused
        if rules and judge:
            newest = rules.newest()
            if newest is not None:
                judge.replace_rules(newest)
            agent.lost["cluster.rules"] = rules.errors

    return report
