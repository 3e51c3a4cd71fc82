"""The engine: waits, failures, events; and never over capacity, whatever happens in whatever order."""

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.engine import Engine
from scheduler.framework import Action, Attempt, Plugin, Reason, Restored, Wait, Write
from scheduler.outcome import Result
from scheduler.plugins.nodeaffinity import NodeAffinity
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.schedulinggates import SchedulingGates
from tests.schedobjects import drain, engine, node, pod

FIT = {"noderesourcesfit": NodeResourcesFit}


class Holds(Plugin[tuple[()]]):
    """Holds every pod at Permit, and notes what is given up."""

    name = "Holds"
    given_up: ClassVar[list[str]] = []

    def permit(self, attempt: Attempt, spec: tuple[()], row: int) -> Wait:
        return Wait(10.0)

    def unreserve(self, attempt: Attempt, spec: tuple[()], row: int) -> None:
        self.given_up.append(attempt.pod.key)


class Annotates(Plugin[tuple[()]]):
    """Counts placed pods by the annotation that Reserve writes."""

    name = "Annotates"

    def __init__(self, config: Any, handle: Any) -> None:
        super().__init__(config, handle)
        self.shares: dict[str, str | None] = {}

    def reserve(self, attempt: Attempt, spec: tuple[()], row: int) -> Reason | None:
        attempt.pod.patch["share"] = attempt.snapshot.names[row]
        return None

    def pod_added(self, row: int, info: Any) -> None:
        self.shares[info.uid] = info.annotation("share")

    def pod_removed(self, row: int, info: Any) -> None:
        del self.shares[info.uid]


def test_a_held_pod_keeps_its_share_until_it_times_out() -> None:
    Holds.given_up.clear()
    made = engine([node("a")], kinds={**FIT, "holds": Holds})
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}), 0.0)
    made.on_pod(Action.ADD, pod("q", {"cpu": "4"}), 0.0)
    assert drain(made) == {}
    assert [info.key for info, _ in made.waiting().values()] == ["default/p"]
    made.tick(9.0)
    assert len(made.waiting()) == 1
    made.tick(10.0)
    assert Holds.given_up == ["default/p"]
    assert made.snapshot.requested.sum() == 0
    assert made.queue.counts()["backoff"] + made.queue.counts()["active"] >= 1


def test_a_fault_in_a_plugin_leaves_nothing_held() -> None:
    class Faults(Plugin[tuple[()]]):
        name = "Faults"

        def permit(self, attempt: Attempt, spec: tuple[()], row: int) -> None:
            if attempt.now < 1.0:
                raise RuntimeError("broken")

    made = engine([node("a")], kinds={**FIT, "faults": Faults})
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}), 0.0)
    with pytest.raises(RuntimeError, match="broken"):
        made.schedule_one(0.0)
    made.abandon(0.0)
    assert made.snapshot.requested.sum() == 0
    assert drain(made, 1.0) == {"p": "a"}


def test_an_allowed_pod_is_bound() -> None:
    made = engine([node("a")], kinds={**FIT, "holds": Holds})
    made.on_pod(Action.ADD, pod("p"), 0.0)
    drain(made)
    made.allow("uid-p", "Other")
    assert not made.bindings
    made.allow("uid-p", "Holds")
    assert made.bindings[0].placed.node == "a"


def test_a_held_pod_that_is_deleted_gives_its_share_back() -> None:
    made = engine([node("a")], kinds={**FIT, "holds": Holds})
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}), 0.0)
    drain(made)
    made.on_pod(Action.DELETE, pod("p", {"cpu": "4"}), 1.0)
    assert made.waiting() == {}
    assert made.snapshot.requested.sum() == 0
    made.allow("uid-p", "Holds")
    assert not made.bindings


def test_a_failed_binding_gives_the_share_back_and_the_pod_tries_again() -> None:
    made = engine([node("a")], kinds=FIT)
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}), 0.0)
    made.schedule_one(0.0)
    made.bind_failed(made.bindings.popleft(), "refused", 0.0)
    assert made.snapshot.requested.sum() == 0
    assert drain(made, 0.5) == {}
    assert drain(made, 1.0) == {"p": "a"}


class Faulty(Plugin[tuple[()]]):
    """Fails when it is to give its share back."""

    name = "Faulty"

    def unreserve(self, attempt: Attempt, spec: tuple[()], row: int) -> None:
        raise RuntimeError("each time")


def test_a_pod_is_tried_again_when_a_plugin_fails_to_give_its_share_back() -> None:
    made = engine([node("a")], kinds={**FIT, "faulty": Faulty})
    made.on_pod(Action.ADD, pod("p", {"cpu": "4"}), 0.0)
    made.schedule_one(0.0)
    with pytest.raises(RuntimeError):
        made.bind_failed(made.bindings.popleft(), "refused", 0.0)
    assert drain(made, 1.0) == {"p": "a"}


def test_annotations_decided_at_reserve_are_seen_by_observers_and_travel_with_the_binding() -> None:
    made = engine([node("a")], kinds={**FIT, "annotates": Annotates})
    plugin = made.plugins["Annotates"]
    assert isinstance(plugin, Annotates)
    made.on_pod(Action.ADD, pod("p"), 0.0)
    made.schedule_one(0.0)
    assert plugin.shares == {"uid-p": "a"}
    body: Any = made.bindings[0].writes[-1].body
    assert dict(body.annotations) == {"share": "a"}
    made.bind_failed(made.bindings.popleft(), "refused", 0.0)
    assert plugin.shares == {}


def test_a_restart_reads_shares_from_annotations() -> None:
    bound = pod("p", nodeName="a", annotations={"share": "a"})
    made = engine([node("a")], [bound], kinds={**FIT, "annotates": Annotates})
    plugin = made.plugins["Annotates"]
    assert isinstance(plugin, Annotates)
    assert plugin.shares == {"uid-p": "a"}


def test_a_pod_whose_node_is_not_known_yet_is_counted_when_it_appears() -> None:
    made = engine([], [pod("p", {"cpu": "3"}, nodeName="late")], kinds=FIT)
    assert made.snapshot.pods == {}
    made.on_node(Action.ADD, node("late"), 1.0)
    made.on_pod(Action.ADD, pod("q", {"cpu": "2"}), 1.0)
    assert drain(made, 1.0) == {}


def test_a_node_that_comes_back_has_its_pods_again() -> None:
    made = engine([node("a")], [pod("p", {"cpu": "3"}, nodeName="a")], kinds=FIT)
    made.on_node(Action.DELETE, node("a"), 1.0)
    made.on_node(Action.ADD, node("a"), 2.0)
    assert made.snapshot.requested[0, made.snapshot.columns["cpu"]] == 3000


def test_a_new_node_wakes_the_pods_that_it_may_take() -> None:
    kinds = {**FIT, "nodeaffinity": NodeAffinity}
    made = engine([node("a")], kinds=kinds)
    made.on_pod(Action.ADD, pod("p", nodeSelector={"disk": "ssd"}), 0.0)
    assert drain(made) == {}
    made.on_node(Action.ADD, node("b", labels={"disk": "ssd"}), 5.0)
    assert drain(made, 5.0) == {"p": "b"}


def test_gates_open_by_a_change_of_the_pod() -> None:
    made = engine([node("a")], kinds={**FIT, "schedulinggates": SchedulingGates})
    made.on_pod(Action.ADD, pod("p", schedulingGates=[{"name": "g"}]), 0.0)
    assert drain(made) == {}
    made.on_pod(Action.UPDATE, pod("p"), 1.0)
    assert drain(made, 1.0) == {"p": "a"}


def test_pods_of_other_schedulers_count_but_are_left_alone() -> None:
    made = engine([node("a")], kinds=FIT)
    made.on_pod(Action.ADD, pod("other", {"cpu": "1"}, schedulerName="default-scheduler"), 0.0)
    label = {"scheduling.koordinator.sh/scheduler-name": "koord-scheduler"}
    made.on_pod(Action.ADD, pod("ours", {"cpu": "1"}, schedulerName="default-scheduler", labels=label), 0.0)
    assert drain(made) == {"ours": "a"}


def test_plugins_learn_of_pods_that_finish_and_of_those_that_go() -> None:
    told: list[tuple[str, str]] = []

    class Ends(Plugin[tuple[()]]):
        name = "Ends"

        def pod_finished(self, pod: Any) -> None:
            told.append(("finished", pod.metadata.name))

        def pod_deleted(self, pod: Any) -> None:
            told.append(("deleted", pod.metadata.name))

    made = engine([node("a")], kinds={**FIT, "ends": Ends})
    made.on_pod(Action.ADD, pod("p", nodeName="a"), 0.0)
    made.on_pod(Action.ADD, pod("foreign", phase="Failed", schedulerName="other"), 0.0)
    made.on_pod(Action.UPDATE, pod("p", nodeName="a", phase="Succeeded"), 1.0)
    made.on_pod(Action.DELETE, pod("p", nodeName="a", phase="Succeeded"), 2.0)
    assert told == [("finished", "foreign"), ("finished", "p"), ("deleted", "p")]
    assert not made.snapshot.pods


def test_a_pod_bound_by_somebody_else_leaves_the_queue() -> None:
    made = engine([node("a"), node("b")], kinds=FIT)
    made.on_pod(Action.ADD, pod("p", {"cpu": "1"}), 0.0)
    made.on_pod(Action.UPDATE, pod("p", {"cpu": "1"}, nodeName="b"), 0.0)
    assert drain(made) == {}
    assert made.snapshot.pods["uid-p"].row == made.snapshot.row("b")


def test_the_condition_is_written_once_per_sentence() -> None:
    made = engine([node("a")], kinds=FIT)
    made.on_pod(Action.ADD, pod("p", {"cpu": "9"}), 0.0)
    made.schedule_one(0.0)
    first: list[Write] = list(made.writes)
    made.activate(["uid-p"])
    outcome = made.schedule_one(100.0)
    assert outcome is not None
    assert outcome.result is Result.UNSCHEDULABLE
    assert list(made.writes) == first
    assert len(first) == 1


def test_restored_shares_are_free_to_their_pod_alone() -> None:
    class Restores(Plugin[tuple[()]]):
        name = "Restores"

        def prepare(self, info: Any) -> tuple[()] | None:
            return () if info.labels.get("owner") == "yes" else None

        def restore(self, attempt: Attempt, spec: tuple[()]) -> dict[int, list[Restored]]:
            holder = attempt.snapshot.pods["uid-holder"].info
            return {0: [Restored(holder, attempt.snapshot.vector(holder))]}

    holder = pod("holder", {"cpu": "4"}, nodeName="a")
    made = engine([node("a")], [holder], kinds={**FIT, "restores": Restores})
    made.on_pod(Action.ADD, pod("stranger", {"cpu": "1"}), 0.0)
    made.on_pod(Action.ADD, pod("owner", {"cpu": "1"}, labels={"owner": "yes"}), 0.0)
    assert drain(made) == {"owner": "a"}


class Cluster(RuleBasedStateMachine):
    """Random nodes, pods, bindings and their failures; the engine never gives away more than there is."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine = engine(
            [node("n0"), node("n1")], kinds={**FIT, "nodeports": NodePorts, "nodeaffinity": NodeAffinity}
        )
        self.now = 0.0
        self.counter = 0
        self.bound: dict[str, tuple[Any, str]] = {}
        self.history: list[tuple[str, str]] = []

    @rule(cpu=st.integers(0, 5), port=st.sampled_from([0, 80]), priority=st.integers(0, 2), times=st.integers(1, 4))
    def arrive(self, cpu: int, port: int, priority: int, times: int) -> None:
        ports = {"ports": [{"hostPort": port}]} if port else {}
        for _ in range(times):
            self.counter += 1
            item = pod(f"p{self.counter}", {"cpu": str(cpu)}, priority=priority, container=ports)
            self.engine.on_pod(Action.ADD, item, self.now)

    @rule(index=st.integers(0, 3), cpu=st.integers(1, 6))
    def change_node(self, index: int, cpu: int) -> None:
        """Nodes grow only, so that what was right stays right."""
        row = self.engine.snapshot.row(f"n{index}")
        have = 0 if row is None else int(self.engine.snapshot.allocatable[row, 0]) // 1000
        self.engine.on_node(Action.ADD, node(f"n{index}", allocatable={"cpu": str(max(cpu, have))}), self.now)

    @rule(times=st.integers(1, 8))
    def attempt(self, times: int) -> None:
        for _ in range(times):
            self.engine.schedule_one(self.now)

    @rule(succeed=st.booleans(), confirm=st.booleans())
    def answer(self, succeed: bool, confirm: bool) -> None:
        if not self.engine.bindings:
            return
        binding = self.engine.bindings.popleft()
        info = binding.placed.info
        if not succeed:
            self.engine.bind_failed(binding, "refused", self.now)
            return
        self.history.append((info.uid, binding.placed.node))
        self.bound[info.uid] = (info, binding.placed.node)
        self.engine.bound(binding, self.now)
        if confirm:
            self.engine.on_pod(Action.UPDATE, self._object(info, binding.placed.node), self.now)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if not self.bound:
            return
        uid = data.draw(st.sampled_from(sorted(self.bound)))
        info, where = self.bound.pop(uid)
        self.engine.on_pod(Action.DELETE, self._object(info, where), self.now)

    @rule(seconds=st.floats(0.1, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.engine.tick(self.now)

    @staticmethod
    def _object(info: Any, where: str) -> Any:
        import msgspec

        spec = msgspec.structs.replace(info.pod.spec, node_name=where)
        return msgspec.structs.replace(info.pod, spec=spec)

    @invariant()
    def never_over_capacity(self) -> None:
        snapshot = self.engine.snapshot
        rows = snapshot.live
        assert (snapshot.requested[rows] <= snapshot.allocatable[rows]).all()

    @invariant()
    def sums_are_those_of_the_residents(self) -> None:
        snapshot = self.engine.snapshot
        for row in np.flatnonzero(snapshot.live):
            total = sum((snapshot.vector(info) for info in snapshot.residents[row].values()), np.zeros(snapshot.width))
            assert (snapshot.requested[row] == total).all()

    @invariant()
    def ports_are_held_once(self) -> None:
        for residents in self.engine.snapshot.residents:
            holders = [info for info in residents.values() if info.pod.spec.containers[0].ports]
            assert len(holders) <= 1

    @invariant()
    def no_pod_is_bound_twice(self) -> None:
        uids = [uid for uid, _ in self.history]
        assert len(uids) == len(set(uids))

    @invariant()
    def what_is_bound_is_counted(self) -> None:
        for uid, (_, where) in self.bound.items():
            assert self.engine.snapshot.pods[uid].row == self.engine.snapshot.row(where)


Cluster.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestCluster = Cluster.TestCase


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.integers(0, 100))
def test_kept_results_equal_fresh_ones(cpus: list[int], seed: int) -> None:
    """Cached results of unchanged rows equal those of a fresh evaluation."""
    made = engine([node(f"n{index}") for index in range(6)])
    for index, cpu in enumerate(cpus):
        candidate = pod(f"p{index}", {"cpu": str(cpu)}, labels={"app": f"a{(index + seed) % 3}"})
        made.on_pod(Action.ADD, candidate, 0.0)
        info = made.classes.info(candidate)
        kept = made.cycle.evaluate(made.cycle.attempt(info, 0.0)).totals.copy()
        made.cycle.invalidate()
        fresh = made.cycle.evaluate(made.cycle.attempt(info, 0.0)).totals
        assert kept.tolist() == fresh.tolist()
        made.schedule_one(0.0)
        while made.bindings:
            made.bound(made.bindings.popleft(), 0.0)
