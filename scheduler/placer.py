"""From a chosen row to a binding: reserve, assume, permit, hold, bind; and all of it undone."""

from collections import deque
from collections.abc import Callable, Mapping

from api.kube.objects import Pod
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.cycle import ClassResult
from scheduler.framework import Action, Attempt, Reason, Wait, Write
from scheduler.nomination import Nominator
from scheduler.outcome import AttemptOutcome, BindingPlan, Placed, Result, Waiting


class Placer:
    """Pods between decision and binding.

    `refused` requeues a pod with the reason and plugin that stopped it; `changed` hears of pods that take or
    leave a row.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        nominator: Nominator,
        *,
        refused: Callable[[PodInfo, Reason, str], AttemptOutcome],
        changed: Callable[[Action, Pod], None],
    ) -> None:
        self.bindings: deque[BindingPlan] = deque()
        """Bindings to make."""
        self._snapshot = snapshot
        self._nominator = nominator
        self._refused = refused
        self._changed = changed
        self._waiting: dict[str, Waiting] = {}
        self._placing: Placed | None = None

    def place(self, attempt: Attempt, kept: ClassResult, row: Row) -> AttemptOutcome:
        """Give the pod its share of the row, and hold it there or start to bind it."""
        placed = self._placing = Placed(attempt, row, kept, self._snapshot.names[row])
        outcome = self._settle(placed)
        self._placing = None
        return outcome

    def abandon(self) -> None:
        """After a fault in `place`: give back what it took."""
        placed, self._placing = self._placing, None
        if placed is not None:
            self.give_back(placed)

    def waiting(self) -> Mapping[str, tuple[PodInfo, Row]]:
        """Pods held at Permit, with their rows."""
        return {uid: (held.placed.info, held.placed.row) for uid, held in self._waiting.items()}

    def late(self, now: float) -> list[tuple[str, Reason]]:
        """Held pods whose wait is over, and what to tell them."""
        found: list[tuple[str, Reason]] = []
        for uid, held in self._waiting.items():
            names = [name for name, deadline in held.deadlines.items() if deadline <= now]
            if names:
                text = f"timed out waiting at permit for {', '.join(names)}"
                found.append((uid, Reason(text, plugin=names[0])))
        return found

    def allow(self, uid: str, plugin: str) -> AttemptOutcome | None:
        """One plugin lets a held pod go on; the outcome when that was the last one."""
        held = self._waiting.get(uid)
        if held is None:
            return None
        held.deadlines.pop(plugin, None)
        if held.deadlines:
            return None
        del self._waiting[uid]
        return self._start_binding(held.placed)

    def reject(self, uid: str, reason: Reason) -> AttemptOutcome | None:
        """Give up a held pod and requeue it."""
        placed = self.drop(uid)
        return None if placed is None else self._refused(placed.info, reason, "")

    def drop(self, uid: str) -> Placed | None:
        """Give up a held pod for good; None when it was not held."""
        held = self._waiting.pop(uid, None)
        if held is None:
            return None
        self.give_back(held.placed)
        return held.placed

    def give_back(self, placed: Placed) -> None:
        """Undo a placement that was not confirmed."""
        placement = self._snapshot.pods.get(placed.info.uid)
        if placement is not None and placement.assumed:
            self._snapshot.remove_pod(placed.info.uid)
        self._unreserve(placed)
        self._changed(Action.DELETE, placed.info.pod)

    def _settle(self, placed: Placed) -> AttemptOutcome:
        attempt, kept, row, info = placed.attempt, placed.kept, placed.row, placed.info
        for judge in kept.at("reserve"):
            reason = judge.plugin.reserve(attempt, judge.spec, row)
            if reason is not None:
                self._unreserve(placed)
                return self._refused(info, reason, judge.plugin.name)
        self._snapshot.add_pod(info, row, assumed=True)
        deadlines: dict[str, float] = {}
        for judge in kept.at("permit"):
            answer = judge.plugin.permit(attempt, judge.spec, row)
            if isinstance(answer, Reason):
                self.give_back(placed)
                return self._refused(info, answer, judge.plugin.name)
            if isinstance(answer, Wait):
                deadlines[judge.plugin.name] = attempt.now + answer.seconds
        self._nominator.remove(info.uid)
        self._changed(Action.ADD, info.pod)
        if deadlines:
            self._waiting[info.uid] = Waiting(placed, deadlines)
            return AttemptOutcome(Result.WAITING, info, placed.node)
        return self._start_binding(placed)

    def _start_binding(self, placed: Placed) -> AttemptOutcome:
        writes: list[Write] = []
        for judge in placed.kept.at("pre_bind"):
            answer = judge.plugin.pre_bind(placed.attempt, judge.spec, placed.row)
            if isinstance(answer, Reason):
                self.give_back(placed)
                return self._refused(placed.info, answer, judge.plugin.name)
            writes.extend(answer)
        for judge in placed.kept.at("bind"):
            binding = judge.plugin.bind(placed.attempt, judge.spec, placed.row)
            if binding is not None:
                writes.extend(binding)
                break
        self.bindings.append(BindingPlan(placed, tuple(writes)))
        return AttemptOutcome(Result.WAITING, placed.info, placed.node)

    def _unreserve(self, placed: Placed) -> None:
        for judge in reversed(placed.kept.at("unreserve")):
            judge.plugin.unreserve(placed.attempt, judge.spec, placed.row)
        placed.info.patch.clear()
