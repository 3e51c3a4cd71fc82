"""Moves the culprit of lost time to another node, or its victim where no culprit may go, by the nodes' verdicts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from api.kube.interference import EXTENSION_INTERFERENCE, WireExtension, WireVerdict
from api.kube.objects import Pod
from api.kube.times import epoch_seconds
from api.kube.workload import workload_of
from cluster.resources import Key
from controllers.descheduler.cluster_view import is_prod
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session

STALE_SECONDS = 300.0
"""Verdicts that end further ahead than this are a clock that is wrong, and count until then at most."""


class InterferenceAwareArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments."""

    least_loss: Annotated[float, msgspec.Meta(gt=0)] = 0.05
    """Lost seconds per second of a victim from which something is moved."""
    lasting_seconds: Annotated[float, msgspec.Meta(ge=0)] = 120.0
    """Time for which a pair must be reported: the node's own means come first."""
    resources: list[str] = []
    """Resources whose verdicts count; empty means all."""
    move_victims: bool = True
    """Move the victim where no culprit may be moved."""


@dataclass(slots=True)
class _Pair:
    """Verdicts of one victim and resource, each of which was in force when the next was seen."""

    since_seconds: float
    until_seconds: float


class InterferenceAware(Plugin[InterferenceAwareArgs]):
    """Acts on verdicts that the node's own means did not end."""

    name = "InterferenceAware"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = InterferenceAwareArgs
    event_driven: ClassVar[bool] = True

    def __init__(self, args: InterferenceAwareArgs) -> None:
        super().__init__(args)
        self._pairs: dict[tuple[str, str, str], _Pair] = {}

    def run(self, session: Session) -> None:
        """Move for the worst victims first, one pod for each victim."""
        present: set[tuple[str, str, str]] = set()
        for node in session.nodes:
            found = sorted(self._verdicts(session, node.name), key=lambda each: -each[1].lost_seconds_per_second)
            relieved: set[str] = set()
            for victim, verdict in found:
                uid = victim.metadata.uid
                pair = (node.name, uid, verdict.resource)
                present.add(pair)
                known = self._pairs.get(pair)
                if known is None or session.now > known.until_seconds:
                    known = self._pairs[pair] = _Pair(session.now, session.now)
                known.until_seconds = epoch_seconds(verdict.until) or session.now
                if session.now - known.since_seconds >= self.args.lasting_seconds and uid not in relieved:
                    relieved.add(uid)
                    self._relieve(session, victim, verdict)
        looked_at = {node.name for node in session.nodes}
        for pair, known in list(self._pairs.items()):
            if pair not in present and (pair[0] in looked_at or session.now > known.until_seconds):
                del self._pairs[pair]

    def _verdicts(self, session: Session, node: str) -> Iterator[tuple[Pod, WireVerdict]]:
        metric = session.cluster.metrics.get(Key("", node))
        if metric is None:
            return
        here = {
            Key(pod.metadata.namespace, pod.metadata.name): pod for pod in session.cluster.pods_by_node.get(node, ())
        }
        for report in metric.status.pods_metric:
            victim = here.get(Key(report.namespace, report.name))
            stated = (report.extensions or {}).get(EXTENSION_INTERFERENCE)
            if victim is None or not stated or not is_prod(victim):
                continue
            try:
                extension = msgspec.convert(stated, WireExtension)
            except msgspec.ValidationError:
                continue
            for verdict in extension.verdicts:
                until = epoch_seconds(verdict.until)
                fresh = until is not None and session.now < until <= session.now + STALE_SECONDS
                wanted = not self.args.resources or verdict.resource in self.args.resources
                if fresh and wanted and verdict.lost_seconds_per_second >= self.args.least_loss:
                    yield victim, verdict

    def _relieve(self, session: Session, victim: Pod, verdict: WireVerdict) -> None:
        node = victim.spec.node_name
        lost = f"{verdict.lost_seconds_per_second:.2f} s/s of {verdict.resource}"
        here = [pod for pod in session.cluster.pods_by_node.get(node, ()) if pod is not victim]
        if any(
            pod.metadata.uid in session.cluster.moving or pod.metadata.uid in session.filter.accepted for pod in here
        ):
            # One at a time for a node: the next report says whether it was the right one.
            return
        usage = session.cluster.metric_of_pods(node)
        named = _named(here, verdict.culprits)
        for culprit in session.in_order(named, usage, _most(usage)):
            if session.evict(culprit, f"{victim.key} loses {lost} to it", avoid=[node]):
                return
        if self.args.move_victims and verdict.culprits:
            session.evict(victim, f"it loses {lost} to {verdict.culprits[0]}, which cannot go", avoid=[node])


def _named(pods: list[Pod], culprits: list[str]) -> list[Pod]:
    """Return the pods of a node that a verdict names: by workload, or by namespace and name."""
    wanted = frozenset(culprits)
    found = []
    for pod in pods:
        workload = workload_of(pod)
        if pod.key in wanted or (workload is not None and workload.path in wanted):
            found.append(pod)
    return found


def _most(usage: Mapping[Key, Mapping[str, int]]) -> dict[str, int]:
    """Return the largest usage of a pod by resource, so that of equal pods the one that uses most is moved."""
    found: dict[str, int] = {}
    for used in usage.values():
        for name, amount in used.items():
            found[name] = max(found.get(name, 0), amount)
    return found
