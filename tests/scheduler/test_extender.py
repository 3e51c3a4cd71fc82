"""The stock scheduler with our extender places the same pods on the same nodes as this scheduler does."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import extender
from scheduler.engine import Engine
from scheduler.framework import Action, Reason
from scheduler.lifecycle.intake import UNSEEN_SECONDS
from scheduler.outcome import Result
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.elasticquota import ElasticQuota
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.nodeaffinity import NodeAffinity
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.plugins.tainttoleration import TaintToleration
from scheduler.profile import SchedulerSettings
from tests.schedobjects import BASE, engine, node, pod

KINDS = {
    "noderesourcesfit": NodeResourcesFit,
    "balanced": NodeResourcesBalancedAllocation,
    "tainttoleration": TaintToleration,
    "nodeaffinity": NodeAffinity,
    "interpodaffinity": InterPodAffinity,
    "podtopologyspread": PodTopologySpread,
}


def random_nodes(draw: random.Random) -> list[Any]:
    soft = {"key": "old", "effect": "PreferNoSchedule"}
    return [
        node(
            f"n{index}",
            labels={"zone": draw.choice("abc")},
            taints=[soft] if draw.random() < 0.2 else [],
            allocatable={"cpu": str(draw.choice([8, 16, 32])), "memory": f"{draw.choice([16, 32, 64])}Gi"},
        )
        for index in range(20)
    ]


def random_pod(draw: random.Random, name: str, owner: str) -> Any:
    app = draw.choice(["web", "db", "cache"])
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    spread = {
        "topologyKey": "zone",
        "maxSkew": 2,
        "whenUnsatisfiable": draw.choice(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": {"matchLabels": {"app": app}},
    }
    fields: dict[str, Any] = {}
    if draw.random() < 0.3:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        fields["affinity"] = {"podAntiAffinity": required}
    if draw.random() < 0.3:
        fields["topologySpreadConstraints"] = [spread]
    if draw.random() < 0.2:
        fields["nodeSelector"] = {"zone": draw.choice("ab")}
    requests = {"cpu": f"{draw.randrange(1, 40) * 100}m", "memory": f"{draw.randrange(1, 80) * 100}Mi"}
    return pod(name, requests, labels={"app": app}, schedulerName=owner, **fields)


def by_extender(made: Engine, candidate: Any) -> set[str]:
    """Nodes that the stock scheduler may choose when only the extender filters and scores."""
    names = [name for name in made.snapshot.names if name]
    raw = msgspec.json.encode({"Pod": msgspec.to_builtins(candidate), "NodeNames": names})
    asked = msgspec.json.decode(raw, type=extender.ExtenderArgs)
    passed = extender.filter_nodes(made, asked, 0.0)["NodeNames"]
    again = msgspec.structs.replace(asked, node_names=passed)
    scores = {item["Host"]: item["Score"] for item in extender.prioritize_nodes(made, again, 0.0)}
    best = max(scores.values(), default=-1)
    return {name for name, score in scores.items() if score == best}


@pytest.mark.parametrize("seed", range(5))
def test_the_same_pods_go_to_the_same_nodes(seed: int) -> None:
    draw = random.Random(seed)
    ours = engine(random_nodes(draw), kinds=KINDS)
    draw = random.Random(seed)
    theirs = engine(random_nodes(draw), kinds=KINDS)
    for index in range(80):
        state = draw.getstate()
        mine = random_pod(draw, f"p{index}", "koord-scheduler")
        draw.setstate(state)
        other = random_pod(draw, f"p{index}", "default-scheduler")
        choice = by_extender(theirs, other)
        ours.on_pod(Action.ADD, mine, 0.0)
        ours.schedule_one(0.0)
        if not ours.bindings:
            assert choice == set()
            continue
        binding = ours.bindings.popleft()
        ours.bound(binding, 0.0)
        assert binding.placed.node in choice
        outcome = theirs.place_on(other, binding.placed.node, 0.0)
        assert outcome.node == binding.placed.node
        theirs.bound(theirs.bindings.popleft(), 0.0)


@given(st.dictionaries(st.text(max_size=3), st.integers(-1, 10**6), max_size=8))
def test_only_the_best_get_ten(totals: dict[str, int]) -> None:
    scores = extender.extender_scores(totals)
    peak = max(totals.values(), default=-1)
    assert set(scores) == set(totals)
    for name, score in scores.items():
        assert 0 <= score <= 10
        assert (score == 10) == (totals[name] == peak and peak >= 0)


def beside_the_stock_scheduler() -> Engine:
    """An engine whose extender is on, with three nodes of four cores, gangs and quotas."""
    kinds = {**BASE, "fit": NodeResourcesFit, "gangs": Coscheduling, "quotas": ElasticQuota}
    settings = SchedulerSettings(extender_scheduler_names=("default-scheduler",))
    made = Engine(settings, kinds=kinds)
    for index in range(3):
        made.on_node(Action.ADD, node(f"n{index}"), 0.0)
    return made


def member(name: str, minimum: int = 3) -> Any:
    gang = "gang.scheduling.koordinator.sh/"
    annotations = {gang + "name": "g", gang + "min-available": str(minimum)}
    return pod(name, {"cpu": "3"}, annotations=annotations, schedulerName="default-scheduler")


def passed(made: Engine, asked: Any, now: float = 0.0) -> list[str]:
    found: list[str] = extender.filter_nodes(
        made, extender.ExtenderArgs(pod=asked, node_names=["n0", "n1", "n2"]), now
    )["NodeNames"]
    return found


def test_a_gang_of_the_stock_scheduler_is_bound_whole_or_not_at_all() -> None:
    made = beside_the_stock_scheduler()
    members = [member(f"p{index}") for index in range(3)]
    made.on_pod(Action.ADD, members[0], 0.0)
    assert passed(made, members[0]) == []
    # The watch has not shown the others yet: that they are asked about is enough.
    assert passed(made, members[1]) == []
    assert passed(made, members[2]) == ["n0", "n1", "n2"]
    for index in range(2):
        assert made.place_on(members[index], f"n{index}", 1.0).result is Result.WAITING
        assert made.schedule_one(1.0) is None
    assert not made.bindings
    made.place_on(members[2], "n2", 2.0)
    assert sorted(plan.placed.info.key for plan in made.bindings) == [f"default/p{index}" for index in range(3)]


def test_a_member_that_is_not_waited_for_any_more_takes_the_others_along() -> None:
    made = beside_the_stock_scheduler()
    members = [member(f"p{index}") for index in range(3)]
    for each in members:
        made.on_pod(Action.ADD, each, 0.0)
    for index in range(2):
        made.place_on(members[index], f"n{index}", 1.0)
    made.reject("uid-p0", Reason("too late"))
    assert not made.snapshot.pods
    # All of them are still known, and are placed anew, one of them twice.
    for index in range(3):
        assert passed(made, members[index], 5.0) == ["n0", "n1", "n2"]
    made.place_on(members[0], "n1", 5.0)
    for index in range(3):
        made.place_on(members[index], f"n{index}", 6.0)
    assert {plan.placed.info.key: plan.placed.node for plan in made.bindings} == {
        f"default/p{index}": f"n{index}" for index in range(3)
    }
    again = made.place_on(members[0], "n0", 7.0)
    assert (again.result, again.message) == (Result.ERROR, "the pod is being bound already")


def test_a_bind_is_given_up_to_wake_members_that_were_refused_before() -> None:
    made = beside_the_stock_scheduler()
    members = [member(f"p{index}") for index in range(3)]
    # The stock scheduler tries the first two again at an event only, and the arrival of the last is none.
    assert [passed(made, each) for each in members[:2]] == [[], []]
    assert passed(made, members[2], 10.0) == ["n0", "n1", "n2"]
    made.place_on(members[2], "n2", 10.0)
    made.tick(12.0)
    assert made.waiting()
    made.tick(13.0)
    assert not made.waiting()
    assert made.outcomes[-1].result is Result.UNSCHEDULABLE
    assert "no other member came for 3 s" in made.outcomes[-1].message
    # Now they come one by one, however slowly.
    assert passed(made, members[0], 13.0)
    made.place_on(members[0], "n0", 13.0)
    made.tick(30.0)
    made.place_on(members[2], "n2", 30.0)
    made.tick(50.0)
    made.place_on(members[1], "n1", 50.0)
    assert len(made.bindings) == 3


def test_members_that_come_one_after_another_are_not_given_up() -> None:
    made = beside_the_stock_scheduler()
    members = [member(f"p{index}") for index in range(3)]
    assert [passed(made, each) for each in members[:2]] == [[], []]
    for now, each in ((10.0, members[2]), (12.0, members[0]), (14.0, members[1])):
        made.tick(now)
        assert passed(made, each, now)
        made.place_on(each, f"n{each.metadata.name[1]}", now)
    assert len(made.bindings) == 3


def quota_requests(made: Engine) -> int:
    quota = made.plugins["ElasticQuota"].routes()["quotas/{name}"]("koordinator-default-quota")
    return int(quota["request"].get("cpu", 0))


def test_what_pods_ask_of_their_quota_ends_with_them() -> None:
    made = beside_the_stock_scheduler()
    plain = [pod(f"p{index}", {"cpu": "1"}, schedulerName="default-scheduler") for index in range(4)]
    for each in plain[:2]:
        made.on_pod(Action.ADD, each, 0.0)
    for each in plain[2:]:
        passed(made, each)
    made.tick(1.0)
    assert quota_requests(made) == 4000
    made.on_pod(Action.DELETE, plain[0], 2.0)
    made.on_pod(Action.ADD, plain[2], 2.0)
    made.tick(UNSEEN_SECONDS + 1)
    assert quota_requests(made) == 2000
    made.place_on(plain[1], "n0", 100.0)
    made.on_pod(Action.UPDATE, pod("p1", {"cpu": "1"}, schedulerName="default-scheduler", nodeName="n0"), 101.0)
    assert quota_requests(made) == 2000
    for each in plain:
        made.on_pod(Action.DELETE, each, 102.0)
    assert quota_requests(made) == 0
