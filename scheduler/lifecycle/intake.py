"""Pods as the API server shows them: pending ones to the queue, bound ones to the snapshot, ended ones out of both."""

from collections.abc import Callable, Iterable

from api.kube.objects import Node, Pod
from api.protocol import LABEL_SCHEDULER_NAME
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodClasses, PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.cycle import defines
from scheduler.framework import Action
from scheduler.lifecycle.conditions import Conditions
from scheduler.lifecycle.news import News
from scheduler.lifecycle.nomination import Nominator
from scheduler.lifecycle.placer import Placer
from scheduler.podqueue import PodQueue
from scheduler.profile import Profiles
from scheduler.reservation.operating_pod import operates

UNSEEN_SECONDS = 60.0
"""Time for which a pod counts as pending that another scheduler asked about and no watch has shown."""


class Intake:
    """Taker of pods. `outside_names` are the schedulers that place pods through the extender."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        classes: PodClasses,
        profiles: Profiles,
        queue: PodQueue,
        nominator: Nominator,
        conditions: Conditions,
        placer: Placer,
        news: News,
        outside_names: Iterable[str],
        clock: Callable[[], float],
    ) -> None:
        self.leads = False
        """Only this process binds pods of its scheduler."""
        self._snapshot = snapshot
        self._classes = classes
        self._profiles = profiles
        self._queue = queue
        self._nominator = nominator
        self._conditions = conditions
        self._placer = placer
        self._news = news
        self._outside_names = frozenset(outside_names)
        self._clock = clock
        self._orphans: dict[str, dict[str, PodInfo]] = {}
        """Pods bound to nodes that no watch has shown yet, by node name."""
        self._outside: dict[str, tuple[PodInfo, float]] = {}
        """Pending pods that other schedulers queue, by UID, and until when they are believed without a watch's word."""
        self._stand_ins: set[str] = set()
        """UIDs of queued or placed pods that no API object backs."""
        running = profiles.plugins
        self._queue_watchers = [
            plugin for plugin in running if defines(plugin, "pod_queued") or defines(plugin, "pod_forgotten")
        ]
        self._end_watchers = [
            plugin for plugin in running if defines(plugin, "pod_finished") or defines(plugin, "pod_deleted")
        ]

    def on_pod(self, action: Action, pod: Pod) -> None:
        """Take a pod that appeared, changed or went, ours or not. Raises QuantityError for unreadable requests."""
        uid = pod.metadata.uid
        if action is Action.DELETE or pod.finished:
            self.forget(pod)
            for plugin in self._end_watchers:
                (plugin.pod_deleted if action is Action.DELETE else plugin.pod_finished)(pod)
        elif pod.spec.node_name:
            self._take_bound(self._classes.info(pod, placed=True))
        elif pod.metadata.deletion_timestamp and (self.is_ours(pod) or self.is_outside(pod)):
            self.forget(pod)
        elif uid in self._snapshot.pods:
            return
        elif self.is_ours(pod):
            self._take_pending(self._classes.info(pod))
        elif self.is_outside(pod):
            self.take_outside(self._classes.info(pod), watched=True)

    def is_ours(self, pod: Pod) -> bool:
        """Return whether the pod names one of the profiles; Koordinator's label goes before the field."""
        return pod.metadata.labels.get(LABEL_SCHEDULER_NAME, pod.spec.scheduler_name) in self._profiles

    def is_outside(self, pod: Pod) -> bool:
        """Return whether another scheduler queues the pod and places it through the extender."""
        return pod.spec.scheduler_name in self._outside_names

    # Nodes

    def node_came(self, node: Node, row: Row) -> None:
        """Charge the node with the pods that were known to be on it before it was."""
        for info in self._orphans.pop(node.name, {}).values():
            self._snapshot.add_pod(info, row)

    def node_goes(self, node: Node, row: Row) -> None:
        """Keep the pods that are bound to the node, should it come back."""
        for info in list(self._snapshot.residents[row].values()):
            if info.pod.spec.node_name:
                self._orphans.setdefault(node.name, {})[info.uid] = info

    # Pods of other schedulers

    def seen_outside(self, pod: Pod) -> None:
        """Another scheduler asks about a pending pod, which the watch may not have shown yet."""
        uid = pod.metadata.uid
        if uid and uid not in self._outside and uid not in self._snapshot.pods and self.is_outside(pod):
            self.take_outside(self._classes.info(pod), watched=False)

    def take_outside(self, info: PodInfo, *, watched: bool) -> None:
        """A pending pod asks for quota and counts for its gang, though another scheduler queues it."""
        info.outside = True
        self._outside[info.uid] = (info, float("inf") if watched else self._clock() + UNSEEN_SECONDS)
        for plugin in self._queue_watchers:
            plugin.pod_queued(info)

    def forget_unseen(self) -> None:
        """Forget pods that another scheduler asked about and no watch has shown for too long."""
        now = self._clock()
        for info, until in list(self._outside.values()):
            if until < now and info.uid not in self._snapshot.pods:
                self.forget(info.pod)

    # Stand-ins

    def is_stand_in(self, uid: str) -> bool:
        """Return whether no API object backs the pod."""
        return uid in self._stand_ins

    def enqueue(self, info: PodInfo) -> None:
        """Queue a stand-in pod."""
        self._stand_ins.add(info.uid)
        if info.uid not in self._snapshot.pods:
            self._take_pending(info)

    def withdraw(self, uid: str) -> None:
        """Forget a stand-in pod."""
        placement = self._snapshot.pods.get(uid)
        queued = self._queue.get(uid)
        info = placement.info if placement else queued.info if queued else None
        if info is not None:
            self.forget(info.pod)
        self._stand_ins.discard(uid)

    # Internals

    def _trusts(self, pod: Pod) -> bool:
        """Return whether a process like this one, which led before, may have bound the pod.

        The pod's author chose the name of the scheduler and the node too, if he may create bound pods: the admission
        policy for allocations keeps such pods out.
        """
        return self.is_ours(pod) or self.is_outside(pod)

    def _take_pending(self, info: PodInfo) -> None:
        for plugin in self._queue_watchers:
            plugin.pod_queued(info)
        nominated = info.pod.status.nominated_node_name
        row = self._snapshot.row(nominated) if nominated else None
        if row is not None and info.uid not in self._nominator:
            self._nominator.add(info, row)
        self._queue.add(info, self._clock())

    def _take_bound(self, info: PodInfo) -> None:
        uid, node = info.uid, info.pod.spec.node_name
        row = self._snapshot.row(node)
        placement = self._snapshot.pods.get(uid)
        sent_to, sent = self._placer.sent.pop(uid, ("", {}))
        known = placement.info if placement is not None and placement.row == row else None
        known = known or self._orphans.get(node, {}).get(uid)
        if known is not None:
            # What was decided stays, whatever is written to a bound pod.
            info.patch = known.decided
        elif sent_to == node:
            info.patch = dict(sent)
        elif not self.leads and self._trusts(info.pod):
            info.believe()
        if placement is not None and placement.row == row:
            before = placement.info.pod
            self._snapshot.update_pod(info)
            if not placement.assumed or operates(info.pod):
                self._news.placed_changed(before, info.pod)
            return
        self._placer.drop(uid)
        self._queue.remove(uid)
        self._outside.pop(uid, None)
        self._nominator.remove(uid)
        self._conditions.forget(uid)
        if row is None:
            self._snapshot.remove_pod(uid)
            self._orphans.setdefault(node, {})[uid] = info
            return
        self._snapshot.add_pod(info, row)
        self._news.pod(Action.ADD, info.pod)

    def forget(self, pod: Pod) -> None:
        """The pod is gone, or going before it was placed."""
        uid = pod.metadata.uid
        self._placer.sent.pop(uid, None)
        dropped = self._placer.drop(uid)
        queued, outside = self._queue.remove(uid), self._outside.pop(uid, None)
        pending = queued.info if queued is not None else outside[0] if outside is not None else None
        if pending is not None:
            for plugin in self._queue_watchers:
                plugin.pod_forgotten(pending)
        self._nominator.remove(uid)
        self._conditions.forget(uid)
        orphans = self._orphans.get(pod.spec.node_name)
        if orphans is not None:
            orphans.pop(uid, None)
            if not orphans:
                del self._orphans[pod.spec.node_name]
        if self._snapshot.remove_pod(uid) is not None or dropped is not None:
            self._news.pod(Action.DELETE, pod)
