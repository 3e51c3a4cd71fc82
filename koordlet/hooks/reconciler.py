"""Reconciler: what running pods and containers must run with, as intents. Decides from values alone.

It compares nothing: the enforcer writes what differs. Decisions are kept until pods, cgroups or the node change, so a
tick in which nothing changed costs a few comparisons.
"""

from collections.abc import Callable, Mapping, Sequence

from api.frame import CgroupInfo, CgroupKind
from api.intents import Setting, Strength
from koordlet.hooks.decide import Decision, HookRules
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import knob_values
from koordlet.identity.pods import NO_PODS, ContainerRole, PodContainer, PodFacts, PodTable

STRATEGY = "runtime_hooks"
"""Name of the reconciler in intents, metrics, the audit log and `[enforcer] strategies`."""

NodeFactsOf = Callable[[PodTable], NodeFacts]
"""The node as rules see it, with these pods on it; equal objects while nothing changed."""


class Reconciler:
    """Intents for the pods of a table; call `settings` in each tick."""

    def __init__(self, rules: HookRules, facts_of: NodeFactsOf, *, v1: bool) -> None:
        """`rules` are those that no strategy keeps in effect; `v1` says which version the cpu hierarchy is."""
        self.problems: Mapping[str, str] = {}
        """What rules could not follow, by `namespace/pod/rule` or `namespace/pod/container/rule`."""
        self._rules = rules
        self._facts_of = facts_of
        self._v1 = v1
        self._pods = NO_PODS
        self._node: NodeFacts | None = None
        self._cgroups: Sequence[CgroupInfo] = ()
        self._settings: tuple[Setting, ...] = ()

    def settings(self, pods: PodTable, cgroups: Sequence[CgroupInfo]) -> tuple[Setting, ...]:
        """Return the settings of every pod and container cgroup that is known to be one's."""
        node = self._facts_of(pods)
        if pods is self._pods and node is self._node and cgroups == self._cgroups:
            return self._settings
        self._pods, self._node, self._cgroups = pods, node, cgroups
        problems: dict[str, str] = {}
        settings: list[Setting] = []
        for info in cgroups:
            decision, what = self._decision(info, pods, node)
            problems |= decision.problems
            settings += [
                Setting(
                    strategy=STRATEGY,
                    target=info.path,
                    knob=knob,
                    value=value,
                    reason=f"{what} asks for it",
                    strength=Strength.INVISIBLE,
                    protocol_state=True,
                )
                for knob, value in knob_values(decision.resources, v1=self._v1).items()
            ]
        self._settings, self.problems = tuple(settings), problems
        return self._settings

    def _decision(self, info: CgroupInfo, pods: PodTable, node: NodeFacts) -> tuple[Decision, str]:
        if info.kind is CgroupKind.POD:
            pod = pods.of_uid(info.pod_uid)
            if pod is not None and _is_at(pod.cgroup_path, info):
                return self._rules.pod(pod, node), pod.name
        elif info.kind is CgroupKind.CONTAINER and info.pod_uid:
            found = pods.of_container(info.container_id)
            if found is not None and _is_of(found, info):
                return self._rules.container(*found, node), f"{found[0].name}/{found[1].name}"
        return Decision(), ""


def _is_at(path: str, info: CgroupInfo) -> bool:
    """Whether a cgroup is where its owner is known to be; a directory elsewhere may claim any uid."""
    return not path or path == info.path


def _is_of(found: tuple[PodFacts, PodContainer], info: CgroupInfo) -> bool:
    pod, container = found
    in_pod = not pod.cgroup_path or info.path.startswith(f"{pod.cgroup_path}/")
    uids = (pod.uid, pod.cgroup_uid)
    return (
        container.role is not ContainerRole.SANDBOX
        and container.id == info.container_id
        and info.pod_uid in uids
        and in_pod
        and _is_at(container.cgroup_path, info)
    )
