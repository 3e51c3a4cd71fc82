"""Moves pods that do not tolerate the taints of their node."""

from typing import ClassVar

from api.kube.objects import Taint
from api.kube.taints import tolerated
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class NodeTaintsArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's; taints are named `KEY` or `KEY=VALUE`."""

    include_prefer_no_schedule: bool = False
    excluded_taints: list[str] = []
    included_taints: list[str] = []
    """Only these, if there are any."""


class RemovePodsViolatingNodeTaints(Plugin[NodeTaintsArgs]):
    """NoSchedule taints; NoExecute ones are the node controller's own."""

    name = "RemovePodsViolatingNodeTaints"
    point = Point.DESCHEDULE
    args_type: ClassVar[type[PluginArgs]] = NodeTaintsArgs

    def run(self, session: Session) -> None:
        """Move each pod with an untolerated taint."""
        effects = {"NoSchedule", *(["PreferNoSchedule"] if self.args.include_prefer_no_schedule else [])}
        for node in session.nodes:
            taints = [each for each in node.spec.taints if each.effect in effects and self._counts(each)]
            for pod in session.cluster.pods_by_node.get(node.name, ()) if taints else ():
                against = next((each for each in taints if not tolerated(each, pod.spec.tolerations)), None)
                if against is not None:
                    session.evict(pod, f"it does not tolerate taint {against.key}:{against.effect} of {node.name}")

    def _counts(self, taint: Taint) -> bool:
        names = {taint.key, f"{taint.key}={taint.value}"}
        included = not self.args.included_taints or bool(names & set(self.args.included_taints))
        return included and not names & set(self.args.excluded_taints)
