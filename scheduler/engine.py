"""The scheduling engine, free of I/O: events in, placements and writes out, time as an argument.

One thread owns an engine. It takes objects from watches (`on_node`, `on_pod`, `on_object`), attempts pods
(`schedule_one`), and leaves `bindings`, `writes` and `outcomes` for the loop, which does the I/O and answers each
binding with `bound` or `bind_failed`. The simulator and the tests drive the same engine without an API server.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from api.kube.objects import Node, Pod
from api.protocol import LABEL_SCHEDULER_NAME
from cluster.resources import NODES, Key, Resource
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodClass, PodClasses, PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.conditions import POD, Conditions
from scheduler.cycle import BARRED, AnyPlugin, Cycle, defines
from scheduler.explain.debug import DebugFlags
from scheduler.explain.diagnosis import rejecting_plugins, sentence
from scheduler.framework import (
    Action,
    Attempt,
    Failure,
    Nomination,
    ObjectEvent,
    Reason,
    Write,
    WriteChain,
)
from scheduler.nomination import Nominator
from scheduler.outcome import AttemptOutcome, BindingPlan, Placed, Result
from scheduler.placer import Placer
from scheduler.podqueue import PodQueue, QueueBackoff, QueuedPod, QueueState
from scheduler.profile import SchedulerSettings, build
from scheduler.watched_objects import WatchedObjects, kind_name, listeners

NODE = NODES.of(Node)

MAX_OUTCOMES = 65536
UNSEEN_SECONDS = 60.0
"""Time for which a pod counts as pending that another scheduler asked about and no watch has shown."""


class Engine:
    """The scheduler of one or more profiles. Implements `scheduler.framework.Handle` for its plugins."""

    def __init__(
        self,
        settings: SchedulerSettings | None = None,
        *,
        source: str = "settings",
        kinds: dict[str, type[AnyPlugin]] | None = None,
    ) -> None:
        self.settings = settings or SchedulerSettings()
        self.snapshot = Snapshot()
        self.classes = PodClasses()
        self.nominator = Nominator()
        self.writes: deque[Write] = deque()
        self.chains: deque[WriteChain] = deque()
        """Writes to make in order as long as each succeeds; `chain_failed` answers one that did not."""
        self.outcomes: deque[AttemptOutcome] = deque(maxlen=MAX_OUTCOMES)
        self.flags = DebugFlags()
        self.now = 0.0
        self._current: QueuedPod | None = None
        """The pod of a running attempt, for `abandon`."""
        self._placer = Placer(
            self.snapshot,
            self.nominator,
            refused=self._requeue,
            changed=self._pod_event,
            released=self._released,
            starts=lambda: self.queue.starts,
            write=self.writes.append,
            clock=lambda: self.now,
        )
        self._watched_objects = WatchedObjects()
        self._orphans: dict[str, dict[str, PodInfo]] = {}
        """Pods bound to nodes that no watch has shown yet, by node name."""
        self._leads = False
        """Only this process binds pods of its scheduler."""
        self._outside: dict[str, tuple[PodInfo, float]] = {}
        """Pending pods that other schedulers queue, by UID, and until when they are believed without a watch's word."""
        self._stand_ins: set[str] = set()
        """UIDs of queued or placed pods that no API object backs."""
        self._conditions = Conditions()
        self.profiles = build(self.settings, self, source=source, kinds=kinds)
        running = self.profiles.plugins
        first = {entry.plugin.name: entry.plugin for entry in self.profiles.first}
        self.plugins: dict[str, AnyPlugin] = {plugin.name: plugin for plugin in running} | first
        """Plugins by name; the first profile's where several have settings of their own."""
        self._watched_objects.register(running)
        self.cycle = Cycle(
            self.snapshot,
            self.profiles,
            nominated=self.nominator.on,
            nominated_rows=self.nominator.rows,
            seed=self.settings.seed,
        )
        self._nexts = [plugin for plugin in running if defines(plugin, "next_pod")]
        self._gates = [plugin for plugin in running if defines(plugin, "pre_enqueue")]
        self._tickers = [plugin for plugin in running if defines(plugin, "tick")]
        self._queue_watchers = [
            plugin for plugin in running if defines(plugin, "pod_queued") or defines(plugin, "pod_forgotten")
        ]
        self._end_watchers = [
            plugin for plugin in running if defines(plugin, "pod_finished") or defines(plugin, "pod_deleted")
        ]
        self._relatives = [plugin for plugin in running if defines(plugin, "kin")]
        self._write_watchers = [plugin for plugin in running if defines(plugin, "write_failed")]
        sorter = next(plugin for plugin in running if defines(plugin, "sort_key"))
        self.queue = PodQueue(
            sort_key=sorter.sort_key,
            gate=self.gate,
            hint=lambda plugin, info, event: any(
                each.queue_hint(info, event)
                for each in self.profiles.named(plugin)
                if self.profiles.runs(each, info.scheduler_name)
            ),
            listeners=listeners(running),
            backoff=QueueBackoff(self.settings.backoff_initial_seconds, self.settings.backoff_max_seconds),
            flush_after=self.settings.unschedulable_flush_seconds,
        )

    @property
    def bindings(self) -> deque[BindingPlan]:
        """Bindings to make; each is answered with `bound` or `bind_failed`."""
        return self._placer.bindings

    # Events in

    def on_node(self, action: Action, node: Node, now: float) -> None:
        """Take a node that appeared, changed or went."""
        self.now = now
        if action is Action.DELETE:
            row = self.snapshot.row(node.name)
            if row is not None:
                for uid in [uid for uid, (_, waiting_row) in self.waiting().items() if waiting_row == row]:
                    self.reject(uid, Reason(f"node {node.name} went while the pod waited for it"))
                for info in list(self.snapshot.residents[row].values()):
                    if info.pod.spec.node_name:
                        self._orphans.setdefault(node.name, {})[info.uid] = info
                self.nominator.clear_row(row)
            self.snapshot.remove_node(node.name)
        else:
            changed = self.snapshot.generation
            row = self.snapshot.set_node(node)
            for info in self._orphans.pop(node.name, {}).values():
                self.snapshot.add_pod(info, row)
            if changed == self.snapshot.generation:
                return
        self._event(ObjectEvent(NODE, action, Key("", node.name), None, node))

    def on_pod(self, action: Action, pod: Pod, now: float) -> None:
        """Take a pod that appeared, changed or went, ours or not. Raises QuantityError for unreadable requests."""
        self.now = now
        uid = pod.metadata.uid
        if action is Action.DELETE or pod.finished:
            self._forget_pod(pod)
            for plugin in self._end_watchers:
                (plugin.pod_deleted if action is Action.DELETE else plugin.pod_finished)(pod)
        elif pod.spec.node_name:
            self._take_bound(self.classes.info(pod))
        elif pod.metadata.deletion_timestamp and (self.is_ours(pod) or self._is_outside(pod)):
            self._forget_pod(pod)
        elif uid in self.snapshot.pods:
            return
        elif self.is_ours(pod):
            self._take_pending(self.classes.info(pod))
        elif self._is_outside(pod):
            self._take_outside(self.classes.info(pod), watched=True)

    def on_object(self, event: ObjectEvent, now: float) -> None:
        """Take an object of a watched kind that appeared, changed or went."""
        self.now = now
        self._watched_objects.apply(event)
        self._event(event)

    def watched_kinds(self) -> dict[str, Resource[Any]]:
        """Kinds beside pods and nodes that some plugin needs, by name."""
        return self._watched_objects.kinds

    def shared_kinds(self) -> dict[str, Resource[Any]]:
        """Kinds of those, by name, that say what was given beside pods."""
        shares = {kind_name(kind) for plugin in self.profiles.plugins for kind in plugin.shares}
        return {name: kind for name, kind in self.watched_kinds().items() if name in shares}

    def is_ours(self, pod: Pod) -> bool:
        """Return whether the pod names one of the profiles; Koordinator's label goes before the field."""
        return pod.metadata.labels.get(LABEL_SCHEDULER_NAME, pod.spec.scheduler_name) in self.profiles

    def _is_outside(self, pod: Pod) -> bool:
        """Return whether another scheduler queues the pod and places it through the extender."""
        return pod.spec.scheduler_name in self.settings.extender_scheduler_names

    def _trusts(self, pod: Pod) -> bool:
        """Return whether a process like this one, which led before, may have bound the pod.

        The pod's author chose the name of the scheduler and the node too, if he may create bound pods: the admission
        policy for allocations keeps such pods out.
        """
        return self.is_ours(pod) or self._is_outside(pod)

    # Attempts

    def schedule_one(self, now: float) -> AttemptOutcome | None:
        """Attempt the next pod; None when no pod is ready."""
        self.now = now
        queued = self._current = self._next(now)
        if queued is None:
            return None
        attempt = self.cycle.attempt(queued.info, now)
        evaluation = self.cycle.evaluate(attempt)
        self.flags.show(self.cycle, attempt, evaluation)
        row = self._nominated_row(attempt, evaluation.totals)
        if row is None:
            row = self.cycle.choose(evaluation)
        if row is None:
            outcome = self._failed(queued, attempt, evaluation.failure)
        else:
            outcome = self._placer.place(attempt, evaluation.class_result, row)
        self._current = None
        self.outcomes.append(outcome)
        return outcome

    def seen_outside(self, pod: Pod, now: float) -> None:
        """Another scheduler asks about a pending pod, which the watch may not have shown yet."""
        self.now = now
        uid = pod.metadata.uid
        if uid and uid not in self._outside and uid not in self.snapshot.pods and self._is_outside(pod):
            self._take_outside(self.classes.info(pod), watched=False)

    def place_on(self, pod: Pod, node: str, now: float) -> AttemptOutcome:
        """Place a pod on the node that another scheduler chose, if our filters agree.

        Raises LookupError for an unknown node, QuantityError for unreadable requests.
        """
        self.now = now
        row = self.snapshot.row(node)
        if row is None:
            raise LookupError(f"no node {node}")
        info = self.classes.info(pod)
        info.outside = True
        # What was chosen for the pod before, and is still held at Permit, is another answer to the same question.
        self._placer.drop(info.uid)
        if info.uid in self.snapshot.pods:
            return AttemptOutcome(Result.ERROR, info, node, "the pod is being bound already")
        self._take_outside(info, watched=True)
        attempt = self.cycle.attempt(info, now)
        evaluation = self.cycle.evaluate(attempt, prefer=False)
        if evaluation.totals[row] < 0:
            message = sentence(evaluation.failure, self.snapshot)
            return AttemptOutcome(Result.UNSCHEDULABLE, info, node, message, failure=evaluation.failure)
        return self._placer.place(attempt, evaluation.class_result, row)

    def tick(self, now: float) -> None:
        """About once a second: let plugins report, waits time out and long-parked pods try again."""
        self.now = now
        for plugin in self._tickers:
            self.writes.extend(plugin.tick(now))
        for uid, reason in self._placer.timed_out(now):
            self.reject(uid, reason)
        for info, until in list(self._outside.values()):
            if until < now and info.uid not in self.snapshot.pods:
                self._forget_pod(info.pod)
        self.queue.flush_parked(now)

    def abandon(self, now: float) -> None:
        """After a fault in `schedule_one`: give back what its pod held, and let it back off."""
        self.now = now
        queued, self._current = self._current, None
        self._placer.abandon()
        if queued is not None:
            self.queue.requeue(queued.info, now, rejected_by=frozenset(), reason="internal error")
            self._report_unschedulable(queued.info, "internal error of the scheduler; its log says more", "")

    def leads(self) -> None:
        """This process leads from here on: state everything anew.

        It knows every pod that was bound before; a pod that is bound later, and not by it, is another's work.
        """
        self._leads = True
        self._conditions.clear()
        for plugin in self.profiles.plugins:
            plugin.leads()

    def follows(self) -> None:
        """Another process leads from here on, and binds pods of this scheduler."""
        self._leads = False

    def write_failed(self, write: Write, message: str) -> None:
        """A write was not made; plugins that wait for its effect may act."""
        for plugin in self._write_watchers:
            plugin.write_failed(write, message)

    def chain_failed(self, uid: str, message: str) -> None:
        """A chain of writes for a pod ended early: victims may have stayed, so the promise is off."""
        self.nominator.remove(uid)
        self._conditions.forget(uid)
        queued = self.queue.get(uid)
        if queued is not None and queued.state is QueueState.UNSCHEDULABLE:
            reason = f"{queued.reason} Making room failed: {message}"
            self.queue.requeue(queued.info, self.now, rejected_by=frozenset(), reason=reason)

    def pod_unreadable(self, pod: Pod, problem: str) -> None:
        """A pod that cannot be taken in is told why, as long as it is ours and pending."""
        if self.is_ours(pod) and not pod.spec.node_name and not pod.finished and not pod.metadata.deletion_timestamp:
            write = self._conditions.of_pod(pod, f"the scheduler cannot read this pod: {problem}")
            if write is not None:
                self.writes.append(write)

    def is_stand_in(self, uid: str) -> bool:
        """Return whether no API object backs the pod."""
        return uid in self._stand_ins

    # Answers to bindings

    def bound(self, binding: BindingPlan, now: float) -> None:
        """Confirm a binding that the API server took."""
        self.now = now
        placed = binding.placed
        info = placed.info
        queued = self.queue.remove(info.uid)
        self._conditions.forget(info.uid)
        for prepared in placed.class_result.at("post_bind"):
            self.writes.extend(prepared.plugin.post_bind(placed.attempt, prepared.spec, placed.row))
        self.outcomes.append(
            AttemptOutcome(
                Result.SCHEDULED,
                info,
                placed.node,
                attempts=queued.attempts if queued else 1,
                first_seen=queued.first_seen if queued else now,
            )
        )

    def bind_failed(self, binding: BindingPlan, message: str, now: float) -> None:
        """Undo a binding that certainly did not take effect: give the share back and try again after back-off."""
        self.now = now
        self._placer.give_back(binding.placed)
        self.queue.requeue(binding.placed.info, now, rejected_by=frozenset(), reason=message)
        self.outcomes.append(AttemptOutcome(Result.ERROR, binding.placed.info, binding.placed.node, message))

    # Handle

    def invalidate(self) -> None:
        """Forget every spec and every cached result."""
        self.cycle.invalidate()

    def forget(self, classes: Iterable[PodClass]) -> None:
        """Forget specs and cached results of some classes."""
        self.cycle.forget(classes)

    def objects(self, resource: Resource[Any]) -> Mapping[Key, Any]:
        """The watched objects of a kind."""
        return self._watched_objects.objects(resource)

    def waiting(self) -> Mapping[str, tuple[PodInfo, Row]]:
        """Pods held at Permit, with their rows."""
        return self._placer.waiting()

    def pending(self) -> Iterable[PodInfo]:
        """Queued pods, in no order."""
        return [queued.info for queued in self.queue.pods()]

    def allow(self, uid: str, plugin: str) -> None:
        """Let a waiting pod go on as far as one plugin is concerned."""
        outcome = self._placer.allow(uid, plugin)
        if outcome is not None and outcome.result is not Result.WAITING:
            self.outcomes.append(outcome)

    def reject(self, uid: str, reason: Reason) -> None:
        """Give up a waiting pod."""
        outcome = self._placer.reject(uid, reason)
        if outcome is not None:
            self.outcomes.append(outcome)

    def activate(self, uids: Iterable[str]) -> None:
        """Bring pending pods to the active queue."""
        self.queue.activate(uids, self.now)

    def enqueue(self, info: PodInfo) -> None:
        """Queue a stand-in pod."""
        self._stand_ins.add(info.uid)
        if info.uid not in self.snapshot.pods:
            self._take_pending(info)

    def withdraw(self, uid: str) -> None:
        """Forget a stand-in pod."""
        placement = self.snapshot.pods.get(uid)
        queued = self.queue.get(uid)
        info = placement.info if placement else queued.info if queued else None
        if info is not None:
            self._forget_pod(info.pod)
        self._stand_ins.discard(uid)

    def nominated(self, row: Row) -> Iterable[PodInfo]:
        """Pods that wait for room on the row."""
        return self.nominator.on(row)

    def promise(self, uid: str) -> tuple[Row, frozenset[str]] | None:
        """The row promised to a pod, and its victims as far as they are known."""
        row = self.nominator.row(uid)
        return None if row is None else (row, self.nominator.victims(uid))

    def best_row(self, attempt: Attempt) -> tuple[Row | None, Failure]:
        """The best row of the snapshot as it is now, or the reasons against every row."""
        evaluation = self.cycle.evaluate(attempt, prefer=False)
        totals = evaluation.totals
        row = int(totals.argmax()) if totals.shape[0] else None
        return row if row is not None and totals[row] > BARRED else None, evaluation.failure

    def fits(self, attempt: Attempt, row: Row) -> bool:
        """Return whether every filter passes the row of the snapshot as it is now."""
        return self.cycle.fits(attempt, row)

    def peers(self) -> Mapping[str, AnyPlugin]:
        """The profile's plugins by name."""
        return self.plugins

    # Internals: events

    def _event(self, event: ObjectEvent) -> None:
        if len(self.queue):
            self.queue.on_event(event, self.now)

    def _pod_event(self, action: Action, pod: Pod) -> None:
        if len(self.queue):
            key = Key(pod.metadata.namespace, pod.metadata.name)
            gone = action is Action.DELETE
            self._event(ObjectEvent(POD, action, key, pod if gone else None, None if gone else pod))

    def _placed_changed(self, before: Pod, after: Pod) -> None:
        if len(self.queue):
            key = Key(after.metadata.namespace, after.metadata.name)
            self._event(ObjectEvent(POD, Action.UPDATE, key, before, after))

    def _released(self, placed: Placed) -> None:
        """A pod gave its share back unused: news for pods that were tried while it held it, its own kin excepted."""
        if not len(self.queue):
            return
        info = placed.info
        kin = {info.uid}.union(*(plugin.kin(info) for plugin in self._relatives))
        event = ObjectEvent(POD, Action.DELETE, Key(info.namespace, info.pod.metadata.name), info.pod, None)
        self.queue.on_release(event, self.now, since=placed.started, kin=kin)

    def _take_pending(self, info: PodInfo) -> None:
        for plugin in self._queue_watchers:
            plugin.pod_queued(info)
        nominated = info.pod.status.nominated_node_name
        row = self.snapshot.row(nominated) if nominated else None
        if row is not None and info.uid not in self.nominator:
            self.nominator.add(info, row)
        self.queue.add(info, self.now)

    def _take_outside(self, info: PodInfo, *, watched: bool) -> None:
        """A pending pod asks for quota and counts for its gang, though another scheduler queues it."""
        info.outside = True
        self._outside[info.uid] = (info, float("inf") if watched else self.now + UNSEEN_SECONDS)
        for plugin in self._queue_watchers:
            plugin.pod_queued(info)

    def _take_bound(self, info: PodInfo) -> None:
        uid, node = info.uid, info.pod.spec.node_name
        row = self.snapshot.row(node)
        placement = self.snapshot.pods.get(uid)
        sent_to, sent = self._placer.sent.pop(uid, ("", {}))
        known = placement.info if placement is not None and placement.row == row else None
        known = known or self._orphans.get(node, {}).get(uid)
        if known is not None:
            # What was decided stays, whatever is written to a bound pod.
            info.patch = known.decided
        elif sent_to == node:
            info.patch = dict(sent)
        elif not self._leads and self._trusts(info.pod):
            info.believe()
        if placement is not None and placement.row == row:
            before = placement.info.pod
            self.snapshot.update_pod(info)
            if not placement.assumed and _makes_news(before, info.pod):
                self._placed_changed(before, info.pod)
            return
        self._placer.drop(uid)
        self.queue.remove(uid)
        self._outside.pop(uid, None)
        self.nominator.remove(uid)
        self._conditions.forget(uid)
        if row is None:
            self.snapshot.remove_pod(uid)
            self._orphans.setdefault(node, {})[uid] = info
            return
        self.snapshot.add_pod(info, row)
        self._pod_event(Action.ADD, info.pod)

    def _forget_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._placer.sent.pop(uid, None)
        dropped = self._placer.drop(uid)
        queued, outside = self.queue.remove(uid), self._outside.pop(uid, None)
        pending = queued.info if queued is not None else outside[0] if outside is not None else None
        if pending is not None:
            for plugin in self._queue_watchers:
                plugin.pod_forgotten(pending)
        self.nominator.remove(uid)
        self._conditions.forget(uid)
        if pod.spec.node_name:
            self._orphans.get(pod.spec.node_name, {}).pop(uid, None)
        if self.snapshot.remove_pod(uid) is not None or dropped is not None:
            self._pod_event(Action.DELETE, pod)

    # Internals: one attempt

    def gate(self, info: PodInfo) -> Reason | None:
        """Return the reason that keeps the pod out of the active queue, None when there is none."""
        for plugin in self._gates:
            reason = plugin.pre_enqueue(info) if self.profiles.runs(plugin, info.scheduler_name) else None
            if reason is not None:
                return Reason(reason.text, reason.resolvable, reason.plugin or plugin.name)
        return None

    def _next(self, now: float) -> QueuedPod | None:
        for plugin in self._nexts:
            while (uid := plugin.next_pod()) is not None:
                queued = self.queue.take(uid)
                if queued is not None:
                    return queued
        return self.queue.pop(now)

    def _nominated_row(self, attempt: Attempt, totals: Any) -> Row | None:
        row = self.nominator.row(attempt.pod.uid)
        return row if row is not None and row < totals.shape[0] and totals[row] >= 0 else None

    def _requeue(self, info: PodInfo, reason: Reason, plugin: str = "") -> AttemptOutcome:
        """Back to the queue for one pod-wide reason."""
        rejecter = reason.plugin or plugin
        message = f"0/{self.snapshot.node_count} nodes are available: {reason.text}."
        self.queue.requeue(info, self.now, rejected_by=frozenset({rejecter}), reason=message)
        self._report_unschedulable(info, message, "")
        return AttemptOutcome(Result.UNSCHEDULABLE, info, message=message, rejected_by=frozenset({rejecter}))

    def _failed(self, queued: QueuedPod, attempt: Attempt, failure: Failure) -> AttemptOutcome:
        promised = self.promise(attempt.pod.uid)
        nomination = self._post_filter(attempt, failure)
        message = sentence(failure, self.snapshot, nomination.message if nomination else "")
        rejected_by = rejecting_plugins(failure, self.snapshot)
        info = attempt.pod
        node = nomination.node if nomination else ""
        row = self.snapshot.row(node) if node else None
        self.nominator.remove(info.uid)
        if nomination is not None and row is not None:
            kept = promised[1] if promised is not None and promised[0] == row else frozenset()
            self.nominator.add(info, row, frozenset(victim.uid for victim in nomination.victims) or kept)
        self.queue.requeue(info, attempt.now, rejected_by=rejected_by, reason=message)
        if nomination is not None and (nomination.writes or nomination.others):
            self._preempt(info, nomination, message)
        else:
            self._report_unschedulable(info, message, node)
        return AttemptOutcome(
            Result.UNSCHEDULABLE,
            info,
            message=message,
            attempts=queued.attempts,
            first_seen=queued.first_seen,
            rejected_by=rejected_by,
            failure=failure,
            victims=nomination.victims if nomination else (),
        )

    def _preempt(self, info: PodInfo, nomination: Nomination, message: str) -> None:
        """Write the nomination, and only then remove the victims; less important pods lose the promise of the row."""
        self._conditions.forget(info.uid)
        told = self._conditions.unschedulable(info, message, nomination.node)
        victims = frozenset(victim.uid for victim in nomination.victims)
        if told is not None:
            self.chains.append(WriteChain(info.uid, (told, *nomination.writes)))
        for other, node in nomination.others:
            row = self.snapshot.row(node)
            if row is not None:
                self.nominator.add(other, row, victims)
        row = self.snapshot.row(nomination.node)
        for other in self.nominator.on(row) if row is not None else ():
            if other.priority < info.priority:
                self.nominator.remove(other.uid)
                queued = self.queue.get(other.uid)
                if queued is not None:
                    self._report_unschedulable(other, queued.reason, "")
                    self.queue.activate([other.uid], self.now)

    def _post_filter(self, attempt: Attempt, failure: Failure) -> Nomination | None:
        message = ""
        for prepared in self.cycle.class_result(attempt.pod).at("post_filter"):
            nomination = prepared.plugin.post_filter(attempt, prepared.spec, failure)
            if nomination is None:
                continue
            if nomination.node or nomination.victims:
                return nomination
            message = nomination.message
        return Nomination("", message=message) if message else None

    def _report_unschedulable(self, info: PodInfo, message: str, nominated: str) -> None:
        """Write the PodScheduled condition, unless the pod carries the same one already."""
        if info.uid in self._stand_ins or self.queue.get(info.uid) is None:
            return
        write = self._conditions.unschedulable(info, message, nominated)
        if write is not None:
            self.writes.append(write)


def _makes_news(before: Pod, after: Pod) -> bool:
    """Return whether a placed pod changed in what may place others: labels, requests, or that it is leaving."""
    return (
        before.metadata.labels != after.metadata.labels
        or before.spec.containers != after.spec.containers
        or before.spec.resources != after.spec.resources
        or before.status.container_statuses != after.status.container_statuses
        or before.status.allocated_resources != after.status.allocated_resources
        or before.status.resources != after.status.resources
        or bool(before.metadata.deletion_timestamp) != bool(after.metadata.deletion_timestamp)
    )
