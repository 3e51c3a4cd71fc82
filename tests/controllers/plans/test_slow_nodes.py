"""Slow nodes of a simulated fleet: a planted one is found, none is invented, and what is said of it is read."""

import numpy as np
import pytest

from controllers.capacity.slowness import slow_ratio
from controllers.kinds import NODE, NODE_METRIC
from controllers.plans.slow_nodes import SlowNodes
from controllers.runtime.view import ClusterCopy
from tests.capacity import NOW, a_node
from tests.controllers.profiles.fleet import CORES, PERIOD, reports
from tests.managed import added, built, copy_of

NODES, TURNS = 40, 30
LATER = NOW + TURNS * PERIOD


def fleet(slow: dict[int, float], *, seed: int = 1, annotations: dict[int, str] | None = None) -> ClusterCopy:
    stated = {node: {"node.koordinator.sh/slow-ratio": text} for node, text in (annotations or {}).items()}
    nodes = [a_node(f"n{node}", CORES, annotations=stated.get(node, {})) for node in range(NODES)]
    copy = copy_of(built(SlowNodes, enabled=True), {NODE: nodes})
    copy.view("it", full=True)
    draw = np.random.default_rng(seed)
    each = [list(reports(node, TURNS, draw, slow.get(node, 1.0))) for node in range(NODES)]
    for turn in range(TURNS):
        copy.apply(NODE_METRIC, added([own[turn] for own in each]))
    return copy


def marked(copy: ClusterCopy) -> dict[str, str | None]:
    plan = built(SlowNodes, enabled=True).plan(copy.view("it", full=True), LATER)
    return {
        write.key.name: write.body["metadata"]["annotations"]["node.koordinator.sh/slow-ratio"] for write in plan.writes
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_planted_node_is_found_and_none_is_invented(seed: int) -> None:
    found = marked(fleet({7: 1.4}, seed=seed))
    assert set(found) == {"n7"}
    assert float(found["n7"] or 0) == pytest.approx(1.4, abs=0.15)
    assert marked(fleet({}, seed=seed)) == {}


def test_a_little_slower_is_not_slow_and_ends_only_well_below() -> None:
    assert marked(fleet({3: 1.05})) == {}
    assert marked(fleet({3: 1.4}, annotations={3: "1.40"})) == {}, "as it is said already"
    assert marked(fleet({}, annotations={3: "1.40"})) == {"n3": None}


def test_when_a_third_of_the_fleet_is_slow_a_tenth_is_marked_and_stays_so() -> None:
    slow = dict.fromkeys(range(13), 1.5)
    first = marked(fleet(slow))
    assert len(first) == 4
    others = [node for node in slow if f"n{node}" not in first][:4]
    assert set(marked(fleet(slow, annotations=dict.fromkeys(others, "1.10")))) == {f"n{node}" for node in others}


def test_a_mark_beyond_the_tenth_is_taken_away_for_that() -> None:
    copy = fleet(dict.fromkeys(range(5), 1.5), annotations=dict.fromkeys(range(5), "1.50"))
    plan = built(SlowNodes, enabled=True).plan(copy.view("it", full=True), LATER)
    ended = [
        each for each in plan.writes if each.body["metadata"]["annotations"]["node.koordinator.sh/slow-ratio"] is None
    ]
    assert [write.reason for write in ended] == ["more nodes are slow than may be marked"]


def test_a_mark_that_nothing_is_known_of_ends_after_a_day() -> None:
    node = a_node("n0", CORES, annotations={"node.koordinator.sh/slow-ratio": "1.40"})
    controller = built(SlowNodes, enabled=True)
    copy = copy_of(controller, {NODE: [node]})
    assert not controller.plan(copy.view("it", full=True), NOW).writes, "a manager that has just begun"
    assert not controller.plan(copy.view("it", full=True), NOW + 86_000).writes
    (write,) = controller.plan(copy.view("it", full=True), NOW + 87_000).writes
    assert write.body["metadata"]["annotations"] == {"node.koordinator.sh/slow-ratio": None}


def test_an_event_and_a_sentence_name_the_workloads() -> None:
    copy = fleet({7: 1.5})
    (write,) = built(SlowNodes, enabled=True).plan(copy.view("it", full=True), LATER).writes
    assert write.event is not None
    assert "Deployment/d/w" in write.event.note
    view = copy.view("it", full=True)
    (line,) = built(SlowNodes, enabled=True).explain(view, "nodes", write.key, LATER)
    assert "slower here than in the fleet" in line


@pytest.mark.parametrize(("text", "ratio"), [("1.5", 1.5), ("0.2", 1.0), ("nan", 1.0), ("x", 1.0), ("99", 4.0)])
def test_what_capacity_reads(text: str, ratio: float) -> None:
    assert slow_ratio({"node.koordinator.sh/slow-ratio": text}) == ratio
    assert slow_ratio({}) == 1.0
