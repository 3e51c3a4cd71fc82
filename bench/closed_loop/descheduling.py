"""The real descheduler over the simulated cluster: reports and pods in, pods to move out."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from api.crds import NodeMetric
from api.kube.meta import Condition
from api.kube.objects import Node, Pod, PodStatus
from api.placement import PlacementAnswer, PlacementRequest
from cluster.resources import Key, Resource
from cluster.store import DeltaType, StoreDelta
from controllers.descheduler.configuration import DeschedulerConfiguration, build
from controllers.descheduler.cycle import UNPLACED, Descheduler
from controllers.descheduler.kinds import MIGRATION, NODE, NODE_METRIC, POD, WORKLOADS, WorkloadObject
from controllers.runtime.view import ClusterCopy
from controllers.runtime.writes import Target, kind_name

STATEFUL_SET = next(each for each in WORKLOADS if each.kind == "StatefulSet" and each.group == "apps")
LEVELS = {"lowThresholds": {"cpu": 45, "memory": 55}, "highThresholds": {"cpu": 75, "memory": 80}}
"""Of LowNodeLoad, as Koordinator's example and this project's chart have them."""
SERVING = PodStatus(phase="Running", conditions=[Condition(type="Ready", status="True")])
NAME = "loop"

Ask = Callable[[PlacementRequest, float], PlacementAnswer]


class Descheduling:
    """A descheduler with its copy of the cluster; what it is told is taken in at the next `moves`."""

    def __init__(self, *, knows_harm: bool, ask: Ask) -> None:
        """`ask` answers for the scheduler where a pod could go."""
        configuration = msgspec.convert(_document(knows_harm=knows_harm), DeschedulerConfiguration)
        self._descheduler = Descheduler(configuration, build(configuration, NAME), NAME)
        self._copy = ClusterCopy(self._descheduler.watches, ())
        self._copy.register(NAME)
        self._ask = ask
        self._told: dict[str, tuple[Resource[Any], dict[Key, Any]]] = {}

    def put(self, kind: Resource[Any], key: Key, it: Any) -> None:
        """Take in an object, None for one that is gone."""
        self._told.setdefault(kind_name(kind), (kind, {}))[1][key] = it

    def node(self, node: Node) -> None:
        """Take in a node."""
        self.put(NODE, Key("", node.name), node)

    def workload(self, it: WorkloadObject) -> None:
        """Take in a StatefulSet."""
        self.put(STATEFUL_SET, Key(it.metadata.namespace, it.metadata.name), it)

    def placed(self, pod: Pod, node: str) -> None:
        """Take in a pod that serves on a node."""
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        bound = msgspec.structs.replace(pod, spec=spec, status=SERVING)
        self.put(POD, Key(pod.metadata.namespace, pod.metadata.name), bound)

    def gone(self, pod: Pod) -> None:
        """Forget a pod."""
        self.put(POD, Key(pod.metadata.namespace, pod.metadata.name), None)

    def reported(self, metrics: Iterable[NodeMetric]) -> None:
        """Take in reports of nodes."""
        for metric in metrics:
            self.put(NODE_METRIC, Key("", metric.metadata.name), metric)

    def moves(self, now: float, *, cycle: bool) -> list[tuple[str, str]]:
        """Return uids of pods to move and the nodes that take them, of a whole cycle or of a report's arrival.

        A move for which the scheduler has no node is not made, and the descheduler is told.
        """
        for kind, objects in self._told.values():
            changes = [_change(self._copy.get(Target(kind_name(kind), key)), key, it) for key, it in objects.items()]
            self._copy.apply(kind, changes, now)
        self._told.clear()
        view = self._copy.view(NAME, full=cycle)
        found = []
        for write in self._descheduler.plan(view, now).writes:
            question = write.question
            if question is None:
                raise ValueError(f"a move without a question: {write.reason}")
            node = self._ask(question, now).placements[-1].node
            if node:
                found.append((question.pods[-1].uid, node))
            else:
                self._copy.mark(NAME, Target(kind_name(MIGRATION), write.key), UNPLACED)
        return found


def _change(before: Any, key: Key, after: Any) -> StoreDelta[Any]:
    kind = DeltaType.DELETED if after is None else DeltaType.ADDED if before is None else DeltaType.UPDATED
    return StoreDelta(kind, key, before, after)


def _document(*, knows_harm: bool) -> dict[str, Any]:
    plugins = ["LowNodeLoad", *(["InterferenceAware"] if knows_harm else [])]
    # A step of the simulation is longer than the rounds in a row that the plugin waits for.
    balance = {**LEVELS, "anomalyCondition": {"consecutiveAbnormalities": 1}}
    profile = {
        "plugins": {"balance": {"enabled": plugins}},
        "pluginConfig": [{"name": "LowNodeLoad", "args": balance}],
    }
    return {"profiles": [profile], "deschedulingInterval": "1m"}
