"""The cycle: rows that plugins avoid are a last resort, for every way in which rows are asked for."""

from typing import Any

import numpy as np
import pytest

from scheduler import extender
from scheduler.cluster_state.columns import Rows
from scheduler.engine import Engine
from scheduler.explain.why import explain
from scheduler.framework import Action, Attempt, Bits, Plugin, Reason, Scope
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.profile import SchedulerSettings
from tests.schedobjects import BASE, DAMP, Cellars, drain, engine, node, pod, rejected

FAR = "node(s) that are far"
LATER = "node(s) that will be looked at in another attempt"


class Near(Plugin[tuple[()]]):
    """Refuses nodes with a label, in sight of what other filters pass."""

    name = "Near"
    scope = Scope.CLUSTER

    def __init__(self, config: Any, handle: Any) -> None:
        super().__init__(config, handle)
        self.possible: list[int] = []

    def reasons(self, spec: tuple[()]) -> tuple[Reason, ...]:
        return (Reason(FAR, resolvable=False),)

    def filter(self, attempt: Attempt, spec: tuple[()], rows: Rows) -> Bits:
        if attempt.possible is not None:
            self.possible.append(int(attempt.possible.sum()))
        return np.asarray(attempt.snapshot.labels.column("far").ids[rows] >= 0, dtype=np.int64)


class Slow(Near):
    """The same, where a first attempt does not get to the answer."""

    name = "Slow"

    def reasons(self, spec: tuple[()]) -> tuple[Reason, ...]:
        return (*super().reasons(spec), Reason(LATER, resolvable=False))

    def filter(self, attempt: Attempt, spec: tuple[()], rows: Rows) -> Bits:
        bits = super().filter(attempt, spec, rows)
        if attempt.possible is None or len(self.possible) > 1:
            return bits
        attempt.unfinished.add(self.name)
        return np.full_like(bits, 2)


KINDS = {"cellars": Cellars, "near": Near, "fit": NodeResourcesFit, "preemption": DefaultPreemption}
CELLAR, LOFT, BARN = node("cellar", labels={"cellar": ""}), node("loft"), node("barn", labels={"far": ""})


def bound(made: Engine, candidate: Any) -> str:
    made.on_pod(Action.ADD, candidate, 0.0)
    return drain(made).get(candidate.metadata.name, "")


def test_an_avoided_row_is_refused_while_another_passes() -> None:
    made = engine([CELLAR, LOFT], kinds=KINDS)
    assert rejected(made, pod("p")) == {"cellar": [DAMP], "loft": []}
    assert bound(made, pod("p", {"cpu": "4"})) == "loft"
    assert bound(made, pod("q", {"cpu": "1"})) == "cellar"
    assert [[reason.text for reason in outcome.despite] for outcome in made.outcomes if outcome.despite] == [[DAMP]]
    made.on_pod(Action.DELETE, pod("p", {"cpu": "4"}, nodeName="loft"), 0.0)
    assert bound(made, pod("r", {"cpu": "1"})) == "loft"


def test_what_a_filter_over_the_cluster_refuses_is_no_other_node() -> None:
    made = engine([CELLAR, BARN], kinds=KINDS)
    near = made.plugins["Near"]
    assert isinstance(near, Near)
    assert bound(made, pod("p")) == "cellar"
    # Asked first for the rows that are not avoided, then for all that node filters pass.
    assert near.possible == [1, 2]


@pytest.mark.parametrize(
    ("other", "taken"),
    [pytest.param("loft", "loft", id="another-passes"), pytest.param("barn", "cellar", id="no-other-passes")],
)
def test_a_node_that_was_not_looked_at_yet_may_be_another(other: str, taken: str) -> None:
    others = {"loft": LOFT, "barn": BARN}
    made = engine([CELLAR, others[other]], kinds={"cellars": Cellars, "slow": Slow})
    slow = made.plugins["Slow"]
    assert isinstance(slow, Slow)
    assert bound(made, pod("p")) == ""
    assert made.outcomes[-1].message == f"0/2 nodes are available: 1 {DAMP}, 1 {LATER}."
    assert slow.possible == [1]
    made.activate(["uid-p"])
    assert drain(made) == {"p": taken}
    assert [reason.text for reason in made.outcomes[-1].despite] == ([DAMP] if taken == "cellar" else [])


def test_a_pod_that_no_node_takes_is_told_what_filters_say() -> None:
    made = engine([CELLAR, BARN], kinds=KINDS)
    made.on_pod(Action.ADD, pod("p", {"cpu": "5"}), 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    assert outcome.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert outcome.rejected_by == {"NodeResourcesFit"}


def test_a_profile_that_leaves_out_the_filter_avoids_nothing() -> None:
    made = engine([CELLAR, LOFT], kinds=KINDS, plugins={"cellars": {"without": ["filter"]}})
    assert rejected(made, pod("p")) == {"cellar": [], "loft": []}


def test_room_is_made_on_an_avoided_node_only_where_it_cannot_be_made_on_another() -> None:
    full = [
        pod(f"on-{name}", {"cpu": "4"}, nodeName=name, priority=each) for name, each in (("cellar", 1), ("loft", 5))
    ]
    for priority, victims in ((10, ["on-loft"]), (3, ["on-cellar"])):
        made = engine([CELLAR, LOFT], full, kinds=KINDS)
        made.on_pod(Action.ADD, pod("p", {"cpu": "4"}, priority=priority), 0.0)
        outcome = made.schedule_one(0.0)
        assert outcome is not None
        assert [victim.pod.metadata.name for victim in outcome.victims] == victims


def test_no_pod_is_preempted_on_a_node_that_is_only_avoided() -> None:
    made = engine([CELLAR], [pod("low", {"cpu": "1"}, nodeName="cellar", priority=1)], kinds=KINDS)
    assert bound(made, pod("p", {"cpu": "1"}, priority=10)) == "cellar"
    assert not any(outcome.victims for outcome in made.outcomes)


@pytest.mark.parametrize(
    ("offered", "passed"),
    [
        pytest.param(["cellar", "loft"], ["loft"], id="beside-another"),
        pytest.param(["cellar"], ["cellar"], id="alone"),
    ],
)
def test_an_extender_looks_at_the_nodes_that_it_is_asked_about(offered: list[str], passed: list[str]) -> None:
    settings = SchedulerSettings(extender_scheduler_names=("default-scheduler",))
    made = Engine(settings, kinds={**BASE, **KINDS})
    for each in (CELLAR, LOFT):
        made.on_node(Action.ADD, each, 0.0)
    asked = pod("p", {"cpu": "1"}, schedulerName="default-scheduler")
    args = extender.ExtenderArgs(pod=asked, node_names=offered)
    result = extender.filter_nodes(made, args, 0.0)
    assert result["NodeNames"] == passed
    assert list(result["FailedNodes"].values()) == [DAMP] * (len(offered) - len(passed))
    assert extender.prioritize_nodes(made, extender.ExtenderArgs(pod=asked, node_names=passed), 0.0)[0]["Score"] == 10
    request = extender.BindingArgs("p", "default", "uid-p", passed[0])
    assert extender.start_binding(made, request, asked, 0.0).node == passed[0]
    (plan,) = made.bindings
    assert [reason.text for reason in plan.placed.despite] == ([DAMP] if passed == ["cellar"] else [])


def test_only_the_node_that_another_scheduler_chose_is_looked_at() -> None:
    made = Engine(SchedulerSettings(extender_scheduler_names=("default-scheduler",)), kinds={**BASE, **KINDS})
    for each in (CELLAR, LOFT):
        made.on_node(Action.ADD, each, 0.0)
    near = made.plugins["Near"]
    assert isinstance(near, Near)
    made.place_on(pod("p", {"cpu": "1"}, schedulerName="default-scheduler"), "loft", 0.0)
    assert near.possible == [1]


def test_why_says_that_the_node_is_a_last_resort() -> None:
    assert explain(engine([CELLAR], kinds=KINDS), pod("p"), 0.0).sentence == (
        "default/p fits on 1 of 1 nodes; the best is cellar."
        f" No other node takes the pod than cellar, which was avoided: {DAMP}."
    )
