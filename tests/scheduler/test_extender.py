"""The stock scheduler with our extender places the same pods on the same nodes as this scheduler does."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import extender
from scheduler.engine import Engine
from scheduler.framework import Action
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.nodeaffinity import NodeAffinity
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.plugins.tainttoleration import TaintToleration
from tests.schedobjects import engine, node, pod

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
        outcome = theirs.place_on(theirs.classes.info(other), binding.placed.node, 0.0)
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
