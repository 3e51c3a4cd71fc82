"""Attempts that end without a node: back to the queue, with the reason on the pod, or with room made by preemption."""

from collections import deque
from collections.abc import Callable

from api.kube.objects import Pod
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.cycle import Cycle
from scheduler.explain.diagnosis import rejecting_plugins, sentence
from scheduler.framework import Attempt, Failure, Nomination, Reason, Write, WriteChain
from scheduler.lifecycle.conditions import Conditions
from scheduler.lifecycle.nomination import Nominator
from scheduler.outcome import AttemptOutcome, Result
from scheduler.podqueue import PodQueue, QueuedPod, QueueState


class Refusals:
    """Requeues pods and says why. `is_stand_in` tells of pods that nothing can be written to."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        cycle: Cycle,
        queue: PodQueue,
        nominator: Nominator,
        conditions: Conditions,
        writes: deque[Write],
        chains: deque[WriteChain],
        is_stand_in: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._snapshot = snapshot
        self._cycle = cycle
        self._queue = queue
        self._nominator = nominator
        self._conditions = conditions
        self._writes = writes
        self._chains = chains
        self._is_stand_in = is_stand_in
        self._clock = clock

    def requeue(self, info: PodInfo, reason: Reason, plugin: str = "") -> AttemptOutcome:
        """Back to the queue for one pod-wide reason."""
        rejecter = reason.plugin or plugin
        message = f"0/{self._snapshot.node_count} nodes are available: {reason.text}."
        self._queue.requeue(info, self._clock(), rejected_by=frozenset({rejecter}), reason=message)
        self._report(info, message, "")
        return AttemptOutcome(Result.UNSCHEDULABLE, info, message=message, rejected_by=frozenset({rejecter}))

    def no_node(self, queued: QueuedPod, attempt: Attempt, failure: Failure) -> AttemptOutcome:
        """No node takes the pod: let plugins make room, and queue it again."""
        info = attempt.pod
        promised, leaving = self._nominator.row(info.uid), self._nominator.victims(info.uid)
        nomination = self._post_filter(attempt, failure)
        message = sentence(failure, self._snapshot, nomination.message if nomination else "")
        rejected_by = rejecting_plugins(failure, self._snapshot)
        node = nomination.node if nomination else ""
        row = self._snapshot.row(node) if node else None
        self._nominator.remove(info.uid)
        if nomination is not None and row is not None:
            kept = leaving if promised == row else frozenset()
            self._nominator.add(info, row, frozenset(victim.uid for victim in nomination.victims) or kept)
        self._queue.requeue(info, attempt.now, rejected_by=rejected_by, reason=message)
        if nomination is not None and (nomination.writes or nomination.others):
            self._preempt(info, nomination, message)
        else:
            self._report(info, message, node)
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

    def fault(self, info: PodInfo) -> None:
        """The attempt ended by an error of this program: let the pod back off."""
        self._queue.requeue(info, self._clock(), rejected_by=frozenset(), reason="internal error")
        self._report(info, "internal error of the scheduler; its log says more", "")

    def no_room_made(self, uid: str, message: str) -> None:
        """A chain of writes for a pod ended early: victims may have stayed, so the promise is off."""
        self._nominator.remove(uid)
        self._conditions.forget(uid)
        queued = self._queue.get(uid)
        if queued is not None and queued.state is QueueState.UNSCHEDULABLE:
            reason = f"{queued.reason} Making room failed: {message}"
            self._queue.requeue(queued.info, self._clock(), rejected_by=frozenset(), reason=reason)

    def unreadable(self, pod: Pod, problem: str) -> None:
        """A pending pod that cannot be taken in is told why."""
        write = self._conditions.of_pod(pod, f"the scheduler cannot read this pod: {problem}")
        if write is not None:
            self._writes.append(write)

    # Internals

    def _post_filter(self, attempt: Attempt, failure: Failure) -> Nomination | None:
        message = ""
        for prepared in self._cycle.class_result(attempt.pod).at("post_filter"):
            nomination = prepared.plugin.post_filter(attempt, prepared.spec, failure)
            if nomination is None:
                continue
            if nomination.node or nomination.victims or nomination.last:
                return nomination
            message = nomination.message
        return Nomination("", message=message) if message else None

    def _preempt(self, info: PodInfo, nomination: Nomination, message: str) -> None:
        """Write the nomination, and only then remove the victims; less important pods lose the promise of the row."""
        self._conditions.forget(info.uid)
        told = self._conditions.unschedulable(info, message, nomination.node)
        victims = frozenset(victim.uid for victim in nomination.victims)
        if told is not None:
            self._chains.append(WriteChain(info.uid, (told, *nomination.writes)))
        for other, node in nomination.others:
            row = self._snapshot.row(node)
            if row is not None:
                self._nominator.add(other, row, victims)
        row = self._snapshot.row(nomination.node)
        for other in self._nominator.on(row) if row is not None else ():
            if other.priority < info.priority:
                self._nominator.remove(other.uid)
                queued = self._queue.get(other.uid)
                if queued is not None:
                    self._report(other, queued.reason, "")
                    self._queue.activate([other.uid], self._clock())

    def _report(self, info: PodInfo, message: str, nominated: str) -> None:
        """Write the PodScheduled condition, unless the pod carries the same one already."""
        if self._is_stand_in(info.uid) or self._queue.get(info.uid) is None:
            return
        write = self._conditions.unschedulable(info, message, nominated)
        if write is not None:
            self._writes.append(write)
