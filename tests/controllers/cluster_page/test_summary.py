"""What is made of reports and profiles: sums, who should not meet, and values that anybody may have written."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.crds import WORKLOAD_PROFILE as WORKLOAD_PROFILE_DEFINITION
from api.crds import NodeMetric
from controllers.cluster_page.page import render
from controllers.cluster_page.summary import PAIRS, decoded
from controllers.kinds import ShownProfile
from tests.api.pages.test_markup import read
from tests.capacity import a_node
from tests.controllers.cluster_page.states import (
    BATCH,
    DB,
    WEB,
    a_metric,
    a_pod,
    a_profile,
    a_verdict,
    busy,
    cluster,
)


def test_nodes_stand_by_what_their_victims_lose() -> None:
    nodes = busy().nodes
    assert [row.name for row in nodes[:2]] == ["node-2", "node-3"]
    assert nodes[0].lost == pytest.approx(0.38)
    assert nodes[0].cpu_used == pytest.approx(0.975)
    assert {row.name: row.slow_ratio for row in nodes}["node-3"] == 1.32
    assert {row.name: row.age_seconds for row in nodes}["node-7"] is None, "never reported"


def test_a_pair_is_expected_to_lose_the_product_of_its_figures() -> None:
    found = {(row.victim, row.neighbour): row for row in busy().pairs}
    pair = found[WEB, BATCH]
    assert pair.expected == pytest.approx(1.9 * 0.22 + 0.4 * 0.4)
    assert pair.error == pytest.approx(((0.2 * 0.22) ** 2 + (0.1 * 0.4) ** 2) ** 0.5)
    assert pair.now == pytest.approx(0.38 * 0.8)
    assert pair.together == ["node-2", "node-3"]
    assert found[DB, BATCH].resources == pytest.approx({"block-io": 0.9 * 0.06, "cpu": 0.3 * 0.22})
    assert busy().pairs[0] is not None
    assert (busy().pairs[0].victim, busy().pairs[0].neighbour) == (WEB, BATCH)


def test_without_profiles_open_verdicts_make_the_pairs() -> None:
    metrics = [a_metric("n1", [a_pod(WEB, 0, [a_verdict(0.2, {BATCH: 1.0, "kernel": 0.5})]), a_pod(BATCH)])]
    (pair,) = cluster([a_node("n1", 8)], metrics).pairs
    assert (pair.victim, pair.neighbour, pair.expected) == (WEB, BATCH, 0.0)
    assert pair.now == pytest.approx(0.2)
    assert pair.resources == pytest.approx({"cpu": 0.2})


def test_losses_and_costs_are_summed_by_workload() -> None:
    rows = {row.name: row for row in busy().workloads}
    assert rows[WEB].lost == pytest.approx(0.38)
    assert rows[BATCH].costs == pytest.approx(0.38 * 0.8 + 0.07 * 0.5)
    assert (rows[BATCH].replicas, rows[BATCH].nodes) == (3, 2)


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), min_size=2, max_size=12),
)
def test_the_worst_pair_of_all_is_named_first(figures: list[tuple[float, float]]) -> None:
    profiles = [a_profile(f"Job/a/w{place}", cpu=(own, 0, strength)) for place, (own, strength) in enumerate(figures)]
    worst = max(own for own, _ in figures) * max(strength for _, strength in figures)
    pairs = cluster([], [], profiles).pairs
    if worst >= 0.001:
        assert pairs[0].expected == pytest.approx(worst)
    assert len(pairs) <= PAIRS


def test_many_workloads_make_few_rows() -> None:
    profiles = [a_profile(f"Job/a/w{place}", cpu=(place / 10, 0, place / 100)) for place in range(2000)]
    state = cluster([], [], profiles)
    assert len(state.pairs) == PAIRS
    assert state.pairs[0].expected == pytest.approx(199.9 * 19.99)
    assert len(render(state)) < 300_000


def test_of_several_profiles_of_a_workload_the_largest_figures_count() -> None:
    state = cluster([], [], [a_profile(WEB, cpu=(1.0, 0.1, 0.5)), a_profile(WEB, cpu=(2.0, 0.3, 0.1))])
    (row,) = state.workloads
    assert (row.traits["cpu"].sensitivity, row.traits["cpu"].error, row.traits["cpu"].aggressiveness) == (2.0, 0.3, 0.5)


def test_whole_profiles_are_read_like_partial_ones() -> None:
    shown = a_profile(WEB, cpu=(1.0, 0.1, 0.5))
    whole = msgspec.convert(msgspec.to_builtins(shown), WORKLOAD_PROFILE_DEFINITION.model)
    assert decoded([whole, shown]) == [shown, shown]


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
verdicts = st.fixed_dictionaries(
    {
        "resource": st.text(max_size=20),
        "lostSecondsPerSecond": st.floats(),
        "culprits": st.lists(st.text(max_size=40) | st.just("Job/a/b"), max_size=3),
        "shares": st.lists(st.floats(), max_size=4),
    }
)
stated = st.fixed_dictionaries(
    {},
    optional={
        "workload": anything | st.just("Job/a/b"),
        "interference": anything | st.fixed_dictionaries({"verdicts": st.lists(verdicts, max_size=3)}),
    },
)


@settings(max_examples=150)
@given(st.text(min_size=1), stated, stated, st.text(max_size=10), st.floats(), st.floats())
def test_nothing_that_a_node_or_a_profile_states_breaks_the_page(
    name: str, pod: dict[str, object], node: dict[str, object], cpu: str, sensitivity: float, strength: float
) -> None:
    document = {
        "metadata": {"name": name},
        "status": {
            "updateTime": "2027-01-15T08:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu}}},
            "podsMetric": [{"name": name, "namespace": name, "extensions": pod}],
            "extensions": node,
        },
    }
    metric = msgspec.convert(document, NodeMetric)
    resource = {"name": "cpu", "aggressiveness": strength}
    resource["sensitivity"] = [{"loadFrom": 0, "loadTo": 1, "lostSecondsPerPressure": sensitivity, "error": strength}]
    profile = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": name},
            "spec": {"workload": {"kind": "Job", "name": name}, "container": name},
            "status": {"resources": [resource]},
        },
        ShownProfile,
    )
    found = read(
        render(cluster([a_node(name, cpu, annotations={"node.koordinator.sh/slow-ratio": cpu})], [metric], [profile]))
    )
    assert found.elements.count("script") == 1
    assert not [key for key, _ in found.attributes if key.startswith("on") or key in ("src", "style")]
    assert "nan" not in [value for key, value in found.attributes if key == "width"]
