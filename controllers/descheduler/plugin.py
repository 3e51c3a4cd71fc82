"""A plugin of the descheduler: from the cluster to pods that had better run elsewhere. One costs a module and its test.

A plugin is a module in `controllers/descheduler/plugins/` with one concrete subclass of `Plugin`, known by its `name`
as configurations spell it. A cycle calls `run` of every plugin that a profile enables:

    class Old(Plugin[OldArgs]):
        '''Moves pods that are older than a week.'''

        name = "Old"
        point = Point.DESCHEDULE
        args_type = OldArgs

        def run(self, session: Session) -> None:
            for pod in session.pods:
                if session.age_seconds(pod) > WEEK:
                    session.evict(pod, "it is older than a week")

`session.evict` says whether the pod is going to be moved: filters and limits have been asked. A plugin decides from the
session alone; what it must know of earlier cycles (rounds of an anomaly) it keeps in itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from api.kube.meta import LabelSelector
from api.kube.objects import Node, Pod
from api.kube.resources import Resources, fits
from api.kube.selectors import label_selector_matches
from api.kube.times import epoch_seconds
from cluster.resources import Key
from controllers.descheduler.cluster_view import Cluster, node_ready, requests
from controllers.descheduler.eviction_filter import EvictionFilter, Namespaces, Refusal
from controllers.descheduler.node_fit import node_admits
from controllers.descheduler.order import in_order


class Point(StrEnum):
    """Extension points; all plugins of the first run before those of the second."""

    DESCHEDULE = "deschedule"
    """One pod at a time, for what is wrong with itself."""
    BALANCE = "balance"
    """Over many pods or nodes at once."""


class PodSelector(msgspec.Struct, frozen=True):
    """Named selector of pods."""

    name: str = ""
    selector: LabelSelector | None = None


class PluginArgs(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments that all plugins have."""

    api_version: str = ""
    kind: str = ""
    paused: bool = False
    dry_run: bool = False
    evictable_namespaces: Namespaces = Namespaces()
    namespaces: Namespaces = Namespaces()
    node_selector: LabelSelector | None = None
    pod_selectors: list[PodSelector] = []
    """A pod must match one, if there are any."""
    label_selector: LabelSelector | None = None
    node_fit: bool = True
    """Move a pod only if its requests, affinity and tolerations fit another node."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod to move, the plugin that asks, and nodes that it must not go to."""

    pod: Pod
    plugin: str
    reason: str
    avoid: tuple[str, ...] = ()
    dry_run: bool = False


A = TypeVar("A", bound=PluginArgs)


@dataclass(frozen=True, slots=True)
class StatedAnnotations:
    """Annotations that a pod is to have."""

    pod: Pod
    annotations: Mapping[str, str]
    reason: str


@dataclass
class Session:
    """One cycle of one plugin."""

    cluster: Cluster
    now: float
    nodes: Sequence[Node]
    """Ready nodes that profile and plugin select."""
    filter: EvictionFilter
    args: PluginArgs
    plugin: str
    admit: Callable[[Wanted], Refusal | None] = lambda _: None
    """The profile's limits; counts what it lets through."""
    wanted: list[Wanted] = field(default_factory=list)
    refused: list[tuple[Pod, str]] = field(default_factory=list)
    annotated: list[StatedAnnotations] = field(default_factory=list)
    spent: bool = False
    """A limit of the whole cycle was met: whatever else is asked for is refused."""

    @property
    def pods(self) -> Iterable[Pod]:
        """Unfinished pods of the selected nodes."""
        return (pod for node in self.nodes for pod in self.cluster.pods_by_node.get(node.name, ()))

    def selected(self, pod: Pod) -> bool:
        """Return whether the plugin's arguments select a pod."""
        args, meta = self.args, pod.metadata
        if not (args.namespaces.has(meta.namespace) and args.evictable_namespaces.has(meta.namespace)):
            return False
        if args.label_selector is not None and not label_selector_matches(args.label_selector, meta.labels):
            return False
        return not args.pod_selectors or any(
            label_selector_matches(each.selector, meta.labels) for each in args.pod_selectors
        )

    def refusal(self, pod: Pod) -> str:
        """Return why a pod is not moved; empty where it may be."""
        if pod.metadata.uid in self.cluster.moving or pod.metadata.uid in self.filter.accepted:
            return "it is moving already"
        if not self.selected(pod):
            return "the plugin does not select it"
        refused = self.filter.refusal(pod)
        return refused.reason if refused else ""

    def evict(self, pod: Pod, reason: str, *, avoid: Iterable[str] = ()) -> bool:
        """Ask for a pod to be moved; returns whether it is going to be."""
        why = self.refusal(pod)
        if not why and self._asks_node_fit and next(self.destinations(pod), None) is None:
            why = "no other node takes it"
        asked = Wanted(pod, self.plugin, reason, tuple(avoid), self.args.dry_run)
        if not why:
            refused = self.admit(asked)
            why = refused.reason if refused else ""
            self.spent = self.spent or (refused is not None and refused.spent)
        if why:
            self.refused.append((pod, why))
            return False
        self.filter.accept(pod)
        self.wanted.append(asked)
        return True

    def annotate(self, pod: Pod, annotations: Mapping[str, str], reason: str) -> None:
        """State annotations of a pod; those that it has already, or in a dry run, are not written."""
        if not self.args.dry_run and not annotations.items() <= pod.metadata.annotations.items():
            self.annotated.append(StatedAnnotations(pod, annotations, reason))

    @property
    def _asks_node_fit(self) -> bool:
        by_filter = self.filter.args.node_fit and "NodeFit" not in self.filter.args.skip_eviction_gates
        return self.args.node_fit or by_filter

    def destinations(self, pod: Pod, among: Iterable[Node] | None = None) -> Iterator[Node]:
        """Yield the nodes other than its own whose labels, taints and free requests take a pod.

        A first look only; the scheduler is asked before anything is done.
        """
        asked = {**requests(pod), "pods": 1}
        for node in self.cluster.nodes.values() if among is None else among:
            if node.name == pod.spec.node_name or not node_ready(node) or not node_admits(node, pod):
                continue
            if fits(asked, self.cluster.free(node)):
                yield node

    def in_order(
        self,
        pods: Iterable[Pod],
        usage: Mapping[Key, Resources] | None = None,
        excess: Mapping[str, int] | None = None,
        weights: Mapping[str, int] | None = None,
    ) -> list[Pod]:
        """Return pods, the one to move first at the head; of equal ones that whose workload was moved least lately."""
        return in_order(pods, usage, excess, weights, self.cluster.moves_of)

    def age_seconds(self, pod: Pod) -> float:
        """Return the age of a pod."""
        return self.now - (epoch_seconds(pod.metadata.creation_timestamp) or self.now)


class Plugin(ABC, Generic[A]):
    """Base of all plugins; an instance lives as long as its profile."""

    name: ClassVar[str]
    point: ClassVar[Point]
    args_type: ClassVar[type[PluginArgs]]
    event_driven: ClassVar[bool] = False
    """Run when a node's report or condition changes, too, not only in cycles."""

    def __init__(self, args: A) -> None:
        self.args = args

    @abstractmethod
    def run(self, session: Session) -> None:
        """Ask for the pods to be moved."""


AnyPlugin = Plugin[Any]
