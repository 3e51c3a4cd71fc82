"""Moves pods from nodes that report a condition such as DiskPressure for some time, one at a time."""

from typing import Annotated, ClassVar

import msgspec

from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class StatedCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition of a node, and the status that calls for action."""

    type: str
    status: str = "True"


PRESSURES = (StatedCondition("MemoryPressure"), StatedCondition("DiskPressure"), StatedCondition("PIDPressure"))


class NodeConditionAwareArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments."""

    conditions: Annotated[tuple[StatedCondition, ...], msgspec.Meta(min_length=1)] = PRESSURES
    lasting_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    """Time for which a condition must be seen: the kubelet's own means come first."""


class NodeConditionAware(Plugin[NodeConditionAwareArgs]):
    """Time counts from when this process first saw the condition, whatever clock the node has."""

    name = "NodeConditionAware"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = NodeConditionAwareArgs
    event_driven: ClassVar[bool] = True

    def __init__(self, args: NodeConditionAwareArgs) -> None:
        super().__init__(args)
        self._since: dict[tuple[str, str], float] = {}

    def run(self, session: Session) -> None:
        """Move the least important pod of each such node."""
        wanted = {(each.type, each.status) for each in self.args.conditions}
        present: dict[tuple[str, str], float] = {}
        for node in session.nodes:
            for condition in node.status.conditions:
                if (condition.type, condition.status) in wanted:
                    key = (node.name, condition.type)
                    present[key] = self._since.get(key, session.now)
        self._since = present
        troubled = {key for key, since in present.items() if self._lasts(session.now, since)}
        avoid = sorted({each for each, _ in present})
        for name in sorted({each for each, _ in troubled}):
            pods = session.cluster.pods_by_node.get(name, ())
            uids = {pod.metadata.uid for pod in pods}
            if uids & (session.cluster.moving.keys() | session.filter.accepted.keys()):
                continue
            types = ", ".join(sorted(type_ for each, type_ in troubled if each == name))
            for pod in session.in_order(pods, session.cluster.metric_of_pods(name)):
                if session.evict(pod, f"node {name} reports {types}", avoid=avoid):
                    break

    def _lasts(self, now: float, since: float) -> bool:
        return now - since >= self.args.lasting_seconds
