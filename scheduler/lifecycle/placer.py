"""The binding half of an attempt, from a chosen row: reserve, assume, permit, wait, bind; and its undoing."""

from collections import deque
from collections.abc import Callable, Mapping

from api.kube.objects import Pod
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.cycle import ClassResult
from scheduler.framework import Action, Attempt, Reason, Wait, Write
from scheduler.lifecycle.nomination import Nominator
from scheduler.outcome import AttemptOutcome, BindingPlan, Placed, Result, WaitingPod


class Placer:
    """Pods between decision and binding.

    `refused` requeues a pod with the reason and plugin that stopped it; `changed` is called for pods that take a
    row, `released` for those that give it back, `write` for writes to make meanwhile; `starts` numbers attempts.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        nominator: Nominator,
        *,
        refused: Callable[[PodInfo, Reason, str], AttemptOutcome],
        changed: Callable[[Action, Pod], None],
        released: Callable[[Placed], None],
        starts: Callable[[], int],
        write: Callable[[Write], None],
        clock: Callable[[], float],
    ) -> None:
        self.bindings: deque[BindingPlan] = deque()
        """Bindings to make."""
        self._snapshot = snapshot
        self._nominator = nominator
        self._refused = refused
        self._changed = changed
        self._released = released
        self._starts = starts
        self._write = write
        self._clock = clock
        self.sent: dict[str, tuple[str, dict[str, str]]] = {}
        """Node and decided annotations of bindings that were begun and are not seen yet, by UID."""
        self._waiting: dict[str, WaitingPod] = {}
        self._placing: Placed | None = None

    def place(self, attempt: Attempt, class_result: ClassResult, row: Row) -> AttemptOutcome:
        """Give the pod its share of the row, and hold it there or start to bind it."""
        node, despite = self._snapshot.names[row], class_result.despite(row)
        placed = self._placing = Placed(attempt, row, class_result, node, self._starts(), despite)
        outcome = self._reserve_and_permit(placed)
        self._placing = None
        return outcome

    def abandon(self) -> None:
        """After a fault in `place`: give back what it took."""
        placed, self._placing = self._placing, None
        if placed is not None:
            self.give_back(placed)

    def waiting(self) -> Mapping[str, tuple[PodInfo, Row]]:
        """Pods held at Permit, with their rows."""
        return {uid: (waiting_pod.placed.info, waiting_pod.placed.row) for uid, waiting_pod in self._waiting.items()}

    def timed_out(self, now: float) -> list[tuple[str, Reason]]:
        """Return pods whose wait at Permit is over, with the reason."""
        found: list[tuple[str, Reason]] = []
        for uid, waiting_pod in self._waiting.items():
            names = [name for name, deadline in waiting_pod.deadlines.items() if deadline <= now]
            if names:
                text = f"timed out waiting at permit for {', '.join(names)}"
                found.append((uid, Reason(text, plugin=names[0])))
        return found

    def allow(self, uid: str, plugin: str) -> AttemptOutcome | None:
        """Let a held pod go on as far as one plugin is concerned; the outcome when that was the last one."""
        waiting_pod = self._waiting.get(uid)
        if waiting_pod is None:
            return None
        waiting_pod.deadlines.pop(plugin, None)
        if waiting_pod.deadlines:
            return None
        del self._waiting[uid]
        settled = waiting_pod.settled
        return self._start_binding(waiting_pod.placed) if settled else self._settle(waiting_pod.placed)

    def reject(self, uid: str, reason: Reason) -> AttemptOutcome | None:
        """Give up a held pod and requeue it."""
        placed = self.drop(uid)
        return None if placed is None else self._refused(placed.info, reason, "")

    def drop(self, uid: str) -> Placed | None:
        """Give up a held pod for good; None when it was not held."""
        waiting_pod = self._waiting.pop(uid, None)
        if waiting_pod is None:
            return None
        self.give_back(waiting_pod.placed)
        return waiting_pod.placed

    def give_back(self, placed: Placed) -> None:
        """Undo a placement that was not confirmed."""
        placement = self._snapshot.pods.get(placed.info.uid)
        if placement is not None and placement.assumed:
            self._snapshot.remove_pod(placed.info.uid)
        self._unreserve(placed)
        self._released(placed)

    def _reserve_and_permit(self, placed: Placed) -> AttemptOutcome:
        attempt, class_result, row, info = placed.attempt, placed.class_result, placed.row, placed.info
        for prepared in class_result.at("reserve"):
            reason = prepared.plugin.reserve(attempt, prepared.spec, row)
            if reason is not None:
                self._unreserve(placed)
                return self._refused(info, reason, prepared.plugin.name)
        faults = self._snapshot.fault_count
        self._snapshot.add_pod(info, row, assumed=True)
        if self._snapshot.fault_count != faults:
            self.give_back(placed)
            fault = self._snapshot.faults[-1]
            return self._refused(info, Reason(f"internal error: {fault.error!r}"), fault.observer)
        deadlines: dict[str, float] = {}
        for prepared in class_result.at("permit"):
            answer = prepared.plugin.permit(attempt, prepared.spec, row)
            if isinstance(answer, Reason):
                self.give_back(placed)
                return self._refused(info, answer, prepared.plugin.name)
            if isinstance(answer, Wait):
                deadlines[prepared.plugin.name] = attempt.now + answer.seconds
        self._nominator.remove(info.uid)
        self._changed(Action.ADD, info.pod)
        if deadlines:
            self._waiting[info.uid] = WaitingPod(placed, deadlines)
            return AttemptOutcome(Result.WAITING, info, placed.node)
        return self._settle(placed)

    def _settle(self, placed: Placed) -> AttemptOutcome:
        """Begin what must be finished before the binding; bind at once when there is nothing."""
        now = self._clock()
        deadlines: dict[str, float] = {}
        for prepared in placed.class_result.at("settle"):
            answer = prepared.plugin.settle(placed.attempt, prepared.spec, placed.row)
            if isinstance(answer, Reason):
                self.give_back(placed)
                return self._refused(placed.info, answer, prepared.plugin.name)
            if isinstance(answer, Wait):
                deadlines[prepared.plugin.name] = now + answer.seconds
                for write in answer.writes:
                    self._write(write)
        if not deadlines:
            return self._start_binding(placed)
        self._waiting[placed.info.uid] = WaitingPod(placed, deadlines, settled=True)
        return AttemptOutcome(Result.WAITING, placed.info, placed.node)

    def _start_binding(self, placed: Placed) -> AttemptOutcome:
        writes: list[Write] = []
        for prepared in placed.class_result.at("pre_bind"):
            answer = prepared.plugin.pre_bind(placed.attempt, prepared.spec, placed.row)
            if isinstance(answer, Reason):
                self.give_back(placed)
                return self._refused(placed.info, answer, prepared.plugin.name)
            writes.extend(answer)
        for prepared in placed.class_result.at("bind"):
            binding = prepared.plugin.bind(placed.attempt, prepared.spec, placed.row)
            if binding is not None:
                writes.extend(binding)
                break
        self.sent[placed.info.uid] = (placed.node, placed.info.decided)
        self.bindings.append(BindingPlan(placed, tuple(writes)))
        return AttemptOutcome(Result.WAITING, placed.info, placed.node)

    def _unreserve(self, placed: Placed) -> None:
        for prepared in reversed(placed.class_result.at("unreserve")):
            prepared.plugin.unreserve(placed.attempt, prepared.spec, placed.row)
        placed.info.patch.clear()
