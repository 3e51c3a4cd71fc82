"""Controller: what YARN is offered of each node's batch resources, and the annotation that withholds it from pods."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from api.crds import NodeMetric
from api.kube.times import epoch_seconds
from api.protocol import BATCH_CPU, BATCH_MEMORY
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.capacity.pods import Amounts, amount, amounts, total
from controllers.capacity.table import NodeNumbers
from controllers.capacity.third_party import ANNOTATION_THIRD_PARTY, origin_of
from controllers.kinds import NODE, NODE_METRIC, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, kind_name, patch, reference
from controllers.yarn.allocations import held_by, is_listed, is_unreadable, with_held
from controllers.yarn.board import Board, Offer
from controllers.yarn.node_managers import NodeManagerPod, NodeManagerPods, report_of
from controllers.yarn.offers import ZERO, BatchState, Decision, decide
from controllers.yarn.protocol import NodeReport, NodeState, marked_cluster
from controllers.yarn.settings import CopilotSettings

NOISE: Amounts = (10, 1 << 20)
"""Use of an application below which its cgroup is empty: an idle cgroup holds a few pages."""
REPORT_SECONDS = 600.0
"""Age from which a report of the node's agent says nothing of the present."""
REGISTER_SECONDS = 60.0
"""Time for which a ResourceManager may not know a NodeManager whose pod runs: after a fail-over all of them register
anew, and keep their containers."""

UNKNOWN = "the ResourceManager does not know the NodeManager yet"


class OfferingSettings(ControllerSettings, frozen=True, kw_only=True):
    """The settings are those of the program."""


@dataclass(frozen=True, slots=True)
class _Manager:
    """The NodeManager of a node: its YARN cluster, empty where that is unclear or silent, and its report."""

    cluster: str
    report: NodeReport | None
    silence: str = ""
    """Why its cluster does not answer."""


class Offering(Controller[OfferingSettings]):
    """Decides offers and annotations of all nodes with a NodeManager. Remembers since when a NodeManager is gone."""

    settings_type = OfferingSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, NODE_METRIC)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (NodeNumbers, NodeManagerPods)
    period_seconds: ClassVar[float] = 3.0

    def __init__(self, copilot: CopilotSettings, board: Board) -> None:
        super().__init__(OfferingSettings(), Key("", ""))
        self._copilot = copilot
        self._board = board
        self._gone_since: dict[str, float] = {}
        """Time since which a node's NodeManager does not run, seconds since the epoch."""

    def plan(self, view: View, now: float) -> Writes:
        """Return the annotations that are to change, and state the offers on the board."""
        nodes = view.objects(NODE)
        writes: list[Write] = []
        offers: dict[str, dict[str, Offer]] = {}
        with self._board.held():
            managers, problems = self._managers(view)
            for key, node in nodes.items():
                decision = self._decide(view, node, managers.get(key.name), problems, now)
                if decision is None:
                    continue
                manager = managers.get(key.name)
                if manager is not None and manager.report is not None and decision.offer is not None:
                    offer = Offer(decision.offer, manager.report.total, decision.reason)
                    offers.setdefault(manager.cluster, {})[manager.report.node_id] = offer
                writes += self._annotation(node, decision)
            self._board.offer(offers)
        for name in self._gone_since.keys() - {key.name for key in nodes}:
            del self._gone_since[name]
        return Writes(
            writes,
            [
                Event(reference(NODE, nodes[Key("", name)]), "YarnNotOffered", problem, "Offer", "Warning")
                for name, problem in problems.items()
                if Key("", name) in nodes
            ],
        )

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return what a node's NodeManager is offered, and why."""
        node = view.objects(NODE).get(Key("", key.name))
        if kind != kind_name(NODE) or node is None:
            return ()
        with self._board.held():
            managers, problems = self._managers(view)
            manager = managers.get(key.name)
            decision = self._decide(view, node, manager, problems, now)
        if decision is None:
            why = problems.get(key.name) or (manager.silence or UNKNOWN if manager is not None else "")
            return (why,) if why else ()
        report = manager.report if manager is not None else None
        offer = "is told nothing" if decision.offer is None else f"is offered {decision.offer}"
        present = f", has {report.total} and uses {report.used}" if report is not None else ""
        return (
            f"{report.node_id if report is not None else 'NodeManager'} {offer}{present}",
            f"withheld from pods: {decision.held[0]} millicores and {decision.held[1]} bytes",
            decision.reason,
        )

    def _managers(self, view: View) -> tuple[dict[str, _Manager], dict[str, str]]:
        """Return the NodeManager of each node that has one and whose cluster answers, and what is wrong by node."""
        pods: dict[str, NodeManagerPod] = {}
        problems: dict[str, str] = {}
        for key, each in sorted(view.of(NodeManagerPods).items()):
            if key.namespace not in self._copilot.namespaces:
                continue
            other = pods.setdefault(each.node, each)
            if other is not each:
                problems[each.node] = f"pods {other.key} and {key} are both a NodeManager of the node"
        found: dict[str, _Manager] = {}
        claims: Counter[tuple[str, str]] = Counter()
        for node, pod in pods.items():
            cluster = marked_cluster(pod.cluster, self._copilot.clusters)
            reports = self._board.reports(cluster)
            if not cluster:
                problems[node] = f"pod {pod.key} names YARN cluster {pod.cluster or 'none'}; the settings have others"
            elif reports is None:
                # The exchange says it once: an Event for each node would be a flood.
                said = f"YARN cluster {cluster} does not answer: {self._board.problem(cluster)}"
                found[node] = _Manager("", None, said)
                continue
            else:
                report, unclear = report_of(pod, reports)
                if report is not None:
                    claims[cluster, report.node_id] += 1
                if unclear:
                    problems[node] = unclear
                else:
                    found[node] = _Manager(cluster, report)
                    continue
            found[node] = _Manager("", None)
        for node, manager in found.items():
            if manager.report is not None and claims[manager.cluster, manager.report.node_id] > 1:
                problems[node] = f"{manager.report.node_id} of YARN is claimed by several nodes"
                found[node] = _Manager("", None)
        return found, problems

    def _decide(
        self, view: View, node: Node, manager: _Manager | None, problems: dict[str, str], now: float
    ) -> Decision | None:
        """Return the decision for a node; None where nothing is to change."""
        if manager is None and not is_listed(node.metadata.annotations, self._copilot.application):
            self._gone_since.pop(node.name, None)
            return None
        if manager is not None and not manager.cluster:
            return None
        report = manager.report if manager is not None else None
        if report is not None and report.state in (NodeState.RUNNING, NodeState.DECOMMISSIONING):
            self._gone_since.pop(node.name, None)
        else:
            since = self._gone_since.setdefault(node.name, now)
            if manager is not None and report is None and now - since < REGISTER_SECONDS:
                return None
        decision = decide(self._batch(view, node, now), report, self._copilot.sharing)
        if manager is not None and (report is None or report.state not in (NodeState.RUNNING, NodeState.NEW)):
            problems.setdefault(node.name, decision.reason)
        return decision

    def _batch(self, view: View, node: Node, now: float) -> BatchState:
        given = node.status.allocatable
        for_pods = amount(given, BATCH_CPU, 1), amount(given, BATCH_MEMORY, 1)
        origin = origin_of(node.metadata.annotations)
        asked = total(each.batch for each in view.of(NodeNumbers).pods.get(node.name, {}).values())
        held = held_by(node.metadata.annotations, self._copilot.application)
        since = self._gone_since.get(node.name)
        lingering = ZERO if since is None else self._lingering(view, node, held, now - since, now)
        return BatchState(
            origin=for_pods if origin is None else origin,
            for_pods=for_pods,
            asked=asked,
            held=held,
            lingering=lingering,
        )

    def _lingering(self, view: View, node: Node, held: Amounts, gone_seconds: float, now: float) -> Amounts:
        """Return what containers of a lost NodeManager still hold: as the node's agent reports, else as before."""
        metric = view.objects(NODE_METRIC).get(Key("", node.name))
        used = None if metric is None else _reported_use(metric, self._copilot.application, now)
        if used is None:
            return held if gone_seconds < self._copilot.sharing.linger_seconds else ZERO
        return used if used[0] > NOISE[0] or used[1] > NOISE[1] else ZERO

    def _annotation(self, node: Node, decision: Decision) -> list[Write]:
        annotations: Mapping[str, str] = node.metadata.annotations
        name = self._copilot.application
        unreadable = is_unreadable(annotations)
        unchanged = held_by(annotations, name) == decision.held and is_listed(annotations, name) == any(decision.held)
        if unchanged and (not unreadable or not any(decision.held)):
            return []
        wanted = with_held(annotations, name, decision.held)
        body = {"metadata": {"annotations": {ANNOTATION_THIRD_PARTY: wanted}}}
        return [patch(NODE, node, body, f"{name} holds {decision.held[0]} millicores and {decision.held[1]} bytes")]


def _reported_use(metric: NodeMetric, application: str, now: float) -> Amounts | None:
    """Return the use that a present report states of an application; None without one."""
    reported = epoch_seconds(metric.status.update_time or "")
    if reported is None or now - reported > REPORT_SECONDS:
        return None
    found = [each.usage.resources for each in metric.status.host_application_metric if each.name == application]
    return amounts(found[0]) if found else None
