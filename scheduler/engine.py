"""The scheduling engine, free of I/O: events in, placements and writes out, time as an argument.

One thread owns an engine. It takes objects from watches (`on_node`, `on_pod`, `on_object`), attempts pods
(`schedule_one`), and leaves `bindings`, `writes` and `outcomes` for the loop, which does the I/O and answers each
binding with `bound` or `bind_failed`. The simulator and the tests drive the same engine without an API server.

The engine puts the parts of `scheduler.lifecycle` together and passes each call on: `Intake` takes pods, `Cycle` finds
a node, `Placer` reserves and binds, `Refusals` queues again what found none, `News` wakes what may fit now.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Node, Pod
from cluster.resources import NODES, Key, Resource
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodClass, PodClasses, PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.cycle import BARRED, AnyPlugin, Cycle, defines
from scheduler.explain.debug import DebugFlags
from scheduler.explain.diagnosis import sentence
from scheduler.framework import Action, Attempt, Failure, ObjectEvent, Reason, Write, WriteChain
from scheduler.lifecycle.conditions import Conditions
from scheduler.lifecycle.intake import Intake
from scheduler.lifecycle.news import News
from scheduler.lifecycle.nomination import Nominator
from scheduler.lifecycle.placer import Placer
from scheduler.lifecycle.refusal import Refusals
from scheduler.outcome import AttemptOutcome, BindingPlan, Result
from scheduler.podqueue import PodQueue, QueueBackoff, QueuedPod
from scheduler.profile import SchedulerSettings, build
from scheduler.watched_objects import WatchedObjects, kind_name, listeners

NODE = NODES.of(Node)

MAX_OUTCOMES = 65536


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
        self.flags = DebugFlags(scheduling_timeout_seconds=self.settings.scheduling_timeout_seconds)
        self.now = 0.0
        self._current: QueuedPod | None = None
        """The pod of a running attempt, for `abandon`."""
        self._watched_objects = WatchedObjects()
        self._conditions = Conditions(lambda: self.now)
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
        self._write_watchers = [plugin for plugin in running if defines(plugin, "write_failed")]
        self.queue = self._make_queue()
        self._assemble()

    def _make_queue(self) -> PodQueue:
        running = self.profiles.plugins
        sorter = next(plugin for plugin in running if defines(plugin, "sort_key"))
        return PodQueue(
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

    def _assemble(self) -> None:
        """Put the parts together that pods pass through."""

        def clock() -> float:
            return self.now

        relatives = [plugin for plugin in self.profiles.plugins if defines(plugin, "kin")]
        self._news = News(self.queue, relatives, clock)
        self._refusals = Refusals(
            snapshot=self.snapshot,
            cycle=self.cycle,
            queue=self.queue,
            nominator=self.nominator,
            conditions=self._conditions,
            writes=self.writes,
            chains=self.chains,
            is_stand_in=self.is_stand_in,
            clock=clock,
        )
        self._placer = Placer(
            self.snapshot,
            self.nominator,
            refused=self._refusals.requeue,
            changed=self._news.pod,
            released=self._news.released,
            starts=lambda: self.queue.starts,
            write=self.writes.append,
            clock=clock,
        )
        self._intake = Intake(
            snapshot=self.snapshot,
            classes=self.classes,
            profiles=self.profiles,
            queue=self.queue,
            nominator=self.nominator,
            conditions=self._conditions,
            placer=self._placer,
            news=self._news,
            outside_names=self.settings.extender_scheduler_names,
            clock=clock,
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
                self._intake.node_goes(node, row)
                self.nominator.clear_row(row)
            self.snapshot.remove_node(node.name)
        else:
            changed = self.snapshot.generation
            self._intake.node_came(node, self.snapshot.set_node(node))
            if changed == self.snapshot.generation:
                return
        self._news.event(ObjectEvent(NODE, action, Key("", node.name), None, node))

    def on_pod(self, action: Action, pod: Pod, now: float) -> None:
        """Take a pod that appeared, changed or went, ours or not. Raises QuantityError for unreadable requests."""
        self.now = now
        self._intake.on_pod(action, pod)

    def on_object(self, event: ObjectEvent, now: float) -> None:
        """Take an object of a watched kind that appeared, changed or went."""
        self.now = now
        self._watched_objects.apply(event)
        self._news.event(event)

    def watched_kinds(self) -> dict[str, Resource[Any]]:
        """Kinds beside pods and nodes that some plugin needs, by name."""
        return self._watched_objects.kinds

    def shared_kinds(self) -> dict[str, Resource[Any]]:
        """Kinds of those, by name, that say what was given beside pods."""
        shares = {kind_name(kind) for plugin in self.profiles.plugins for kind in plugin.shares}
        return {name: kind for name, kind in self.watched_kinds().items() if name in shares}

    def is_ours(self, pod: Pod) -> bool:
        """Return whether the pod names one of the profiles; Koordinator's label goes before the field."""
        return self._intake.is_ours(pod)

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
            outcome = self._refusals.no_node(queued, attempt, evaluation.failure)
        else:
            outcome = self._placer.place(attempt, evaluation.class_result, row)
        self._current = None
        self.outcomes.append(outcome)
        return outcome

    def seen_outside(self, pod: Pod, now: float) -> None:
        """Another scheduler asks about a pending pod, which the watch may not have shown yet."""
        self.now = now
        self._intake.seen_outside(pod)

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
        self._intake.take_outside(info, watched=True)
        attempt = self.cycle.attempt(info, now)
        # The other scheduler's filters count too: only the node that it chose is left to choose from.
        others = np.delete(np.arange(self.snapshot.rows_used), row)
        evaluation = self.cycle.evaluate(attempt, prefer=False, excluded=others)
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
        self._intake.forget_unseen()
        for info, row in self.waiting().values():
            told = (
                None if info.stand_in or info.outside else self._conditions.expected(info.pod, self.snapshot.names[row])
            )
            if told is not None:
                self.writes.append(told)
        self.queue.flush_parked(now)

    def abandon(self, now: float) -> None:
        """After a fault in `schedule_one`: give back what its pod held, and let it back off."""
        self.now = now
        queued, self._current = self._current, None
        self._placer.abandon()
        if queued is not None:
            self._refusals.fault(queued.info)

    def leads(self) -> None:
        """This process leads from here on: state everything anew.

        It knows every pod that was bound before; a pod that is bound later, and not by it, is another's work.
        """
        self._intake.leads = True
        self._conditions.clear()
        for plugin in self.profiles.plugins:
            plugin.leads()

    def follows(self) -> None:
        """Another process leads from here on, and binds pods of this scheduler."""
        self._intake.leads = False

    def write_failed(self, write: Write, message: str) -> None:
        """A write was not made; plugins that wait for its effect may act."""
        for plugin in self._write_watchers:
            plugin.write_failed(write, message)

    def chain_failed(self, uid: str, message: str) -> None:
        """A chain of writes for a pod ended early: victims may have stayed, so the promise is off."""
        self._refusals.no_room_made(uid, message)

    def pod_unreadable(self, pod: Pod, problem: str) -> None:
        """A pod that cannot be taken in is told why, as long as it is ours and pending."""
        if self.is_ours(pod) and not pod.spec.node_name and not pod.finished and not pod.metadata.deletion_timestamp:
            self._refusals.unreadable(pod, problem)

    def is_stand_in(self, uid: str) -> bool:
        """Return whether no API object backs the pod."""
        return self._intake.is_stand_in(uid)

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
                despite=placed.despite,
            )
        )

    def bind_failed(self, binding: BindingPlan, message: str, now: float) -> None:
        """Undo a binding that certainly did not take effect: give the share back and try again after back-off."""
        self.now = now
        try:
            self._placer.give_back(binding.placed)
        finally:
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

    def refusal(self, uid: str) -> str | None:
        """The sentence with which a pending pod was refused last, "" before the first; None when it is not pending."""
        queued = self.queue.get(uid)
        return None if queued is None else queued.reason

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

    def activate_first(self, uids: Iterable[str]) -> None:
        """Bring pending pods to the active queue, before their equals."""
        self.queue.activate_first(uids, self.now)

    def enqueue(self, info: PodInfo) -> None:
        """Queue a stand-in pod."""
        self._intake.enqueue(info)

    def withdraw(self, uid: str) -> None:
        """Forget a stand-in pod."""
        self._intake.withdraw(uid)

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

    def avoided(self, attempt: Attempt, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of the rows are a last resort for the pod."""
        return self.cycle.avoided(attempt, rows)

    def peers(self) -> Mapping[str, AnyPlugin]:
        """The profile's plugins by name."""
        return self.plugins

    def gate(self, info: PodInfo) -> Reason | None:
        """Return the reason that keeps the pod out of the active queue, None when there is none."""
        for plugin in self._gates:
            reason = plugin.pre_enqueue(info) if self.profiles.runs(plugin, info.scheduler_name) else None
            if reason is not None:
                return Reason(reason.text, reason.resolvable, reason.plugin or plugin.name)
        return None

    # Internals

    def _next(self, now: float) -> QueuedPod | None:
        for plugin in self._nexts:
            while (uid := plugin.next_pod()) is not None:
                queued = self.queue.take(uid, now)
                if queued is not None:
                    return queued
        return self.queue.pop(now)

    def _nominated_row(self, attempt: Attempt, totals: Any) -> Row | None:
        row = self.nominator.row(attempt.pod.uid)
        return row if row is not None and row < totals.shape[0] and totals[row] >= 0 else None
