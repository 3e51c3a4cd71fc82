from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.qos import QoSClass
from koordlet.strategies.eviction_order import (
    USED,
    EvictionGoal,
    RecentEvictions,
    by_eviction_order,
    by_priority,
    evictable,
    opted_in,
    priority_of,
    stop_level,
)
from koordlet.strategies.overcommitment import overcommitment_releases
from koordlet.strategies.view import Group
from tests.koordlet.strategies.views import pod, view

OPT_IN = {"koordinator.sh/eviction-enabled": "true"}


@pytest.mark.parametrize(
    ("candidate", "allowed"),
    [
        pytest.param(pod("a", "BE"), True, id="no-policy"),
        pytest.param(pod("a", "BE", annotations={"koordinator.sh/eviction-policy": '["X"]'}), True, id="named"),
        pytest.param(pod("a", "BE", annotations={"koordinator.sh/eviction-policy": '["Y"]'}), False, id="other"),
        pytest.param(pod("a", "BE", annotations={"koordinator.sh/eviction-policy": "X"}), False, id="unreadable"),
        pytest.param(pod("a", "BE", annotations={"koordinator.sh/eviction-policy": "[]"}), False, id="none"),
        pytest.param(pod("a", "BE", active=False), False, id="on-its-way-out"),
        pytest.param(pod("a", "LSR"), False, id="LSR"),
        pytest.param(pod("a", "LSE"), False, id="LSE"),
        pytest.param(pod("a", "SYSTEM"), False, id="SYSTEM"),
        pytest.param(pod("a", "BE", priority=2_000_001_000), False, id="system-critical"),
    ],
)
def test_evictable(candidate: Group, allowed: bool) -> None:
    assert evictable(candidate, "X") is allowed


def test_opting_in_takes_label_and_priority() -> None:
    pods = [
        pod("in", "LS", priority=5000, labels=OPT_IN),
        pod("silent", "LS", priority=5000),
        pod("high", "LS", priority=7001, labels=OPT_IN),
        pod("protected", "LSR", priority=5000, labels=OPT_IN),
    ]
    assert [found.uid for found in opted_in(view(*pods), "X", 7000)] == ["in"]


@pytest.mark.parametrize(
    ("candidate", "priority"),
    [
        pytest.param(pod("a", "LS", priority=42), 42, id="number"),
        pytest.param(pod("a", "LS"), 9500, id="prod-by-default"),
        pytest.param(pod("a", "BE", priority=0), 5500, id="zero-is-no-number"),
        pytest.param(pod("a", "BE", labels={"koordinator.sh/priority-class": "koord-mid"}), 7500, id="label"),
    ],
)
def test_priority(candidate: Group, priority: int) -> None:
    assert priority_of(candidate) == priority


def test_eviction_order() -> None:
    pods = [
        pod("big", priority=5000, cores=4),
        pod("small", priority=5000, cores=1),
        pod("low", priority=4999, cores=1),
        pod("sub", priority=5000, cores=1, labels={"koordinator.sh/priority": "10"}),
        pod("asked", priority=9000, cores=1, annotations={"koordinator.sh/eviction-priority": "-1"}),
        pod("odd", priority=5000, cores=2, annotations={"koordinator.sh/eviction-priority": "soon"}),
    ]
    ordered = by_eviction_order(pods, lambda pod: pod.cpu_millicores or 0)
    assert [pod.uid for pod in ordered] == ["asked", "low", "sub", "big", "odd", "small"]


def test_best_effort_order() -> None:
    pods = [
        pod("none", "BE", priority=5000),
        pod("nothing", "BE", priority=5000),
        pod("big", "BE", priority=5000, memory_bytes=4),
        pod("low", "BE", priority=4000, memory_bytes=1),
        pod("small", "BE", priority=5000, memory_bytes=1),
    ]
    ordered = by_priority(pods, lambda pod: pod.memory_bytes or 0)
    assert [pod.uid for pod in ordered] == ["low", "big", "small", "nothing", "none"]


some_pods = st.lists(
    st.builds(
        pod,
        st.text("abc", min_size=1, max_size=3),
        st.sampled_from(QoSClass),
        priority=st.one_of(st.none(), st.integers(0, 9999)),
        cpu_millicores=st.one_of(st.none(), st.floats(0, 1e5)),
        labels=st.sampled_from([{}, OPT_IN, {"koordinator.sh/priority": "x"}, {"koordinator.sh/priority": "7"}]),
        requests=st.dictionaries(st.sampled_from(["kubernetes.io/batch-cpu", "cpu"]), st.integers(0, 1000)),
    ),
    max_size=8,
    unique_by=lambda pod: pod.path,
)


@given(some_pods, st.randoms(use_true_random=False))
def test_an_order_is_a_permutation_and_does_not_depend_on_the_view(pods: list[Group], random: Any) -> None:
    for order in (by_eviction_order, by_priority):
        ordered = order(pods, lambda pod: pod.cpu_millicores or 0)
        assert sorted(pod.path for pod in ordered) == sorted(pod.path for pod in pods)
        again = order(sorted(ordered, key=lambda pod: pod.path), lambda pod: pod.cpu_millicores or 0)
        assert [priority_of(pod) for pod in again] == [priority_of(pod) for pod in ordered]


@given(some_pods, st.integers(0, 5000))
def test_no_more_are_chosen_than_needed(pods: list[Group], release: int) -> None:
    goal = EvictionGoal("X", USED, release, pods, "")
    chosen = [
        pod for pod, _ in RecentEvictions(1.0).choose(view(*pods), [goal], lambda pod: int(pod.cpu_millicores or 0), 0)
    ]
    useful = [pod for pod in pods if int(pod.cpu_millicores or 0)]
    assert chosen == useful[: len(chosen)]
    amounts = [int(pod.cpu_millicores or 0) for pod in chosen]
    assert sum(amounts[:-1]) < release or not chosen
    assert sum(amounts) >= release or chosen == useful


def test_what_one_task_releases_counts_for_the_next_and_for_a_while() -> None:
    pods = [pod(name, "BE", cores=2, requests={"kubernetes.io/batch-cpu": 1000}) for name in "abc"]
    goals = [
        EvictionGoal("first", "kubernetes.io/batch-cpu", 1000, pods, ""),
        EvictionGoal("second", "kubernetes.io/batch-cpu", 1000, pods, ""),
        EvictionGoal("third", USED, 3000, pods, ""),
    ]
    evictions = RecentEvictions(20.0)
    chosen = evictions.choose(view(*pods), goals, lambda pod: int(pod.cpu_millicores or 0), 0.0)
    assert [(pod.uid, goal.feature) for pod, goal in chosen] == [("a", "first"), ("b", "third")]
    begun = {pod.path: 0.0 for pod, _ in chosen}
    seen = view(*pods, evictions=begun)
    assert evictions.choose(seen, goals, lambda pod: int(pod.cpu_millicores or 0), 60.0) == []
    later = evictions.choose(view(*pods), goals[:1], lambda _: 0, 60.0)
    assert [pod.uid for pod, _ in later] == ["a"], "it never began: it is chosen again"


def test_the_credit_of_an_eviction_ends() -> None:
    pods = [pod(name, "BE", cores=2) for name in "ab"]
    goal = EvictionGoal("X", USED, 2000, pods, "")
    seen = view(*pods, evictions={pods[0].path: 0.0})
    evictions = RecentEvictions(1.0)
    assert evictions.choose(seen, [goal], lambda pod: int(pod.cpu_millicores or 0), 119.0) == []
    chosen = evictions.choose(seen, [goal], lambda pod: int(pod.cpu_millicores or 0), 120.0)
    assert [pod.uid for pod, _ in chosen] == ["a"], "it restarted in place and holds as much as before"


def test_an_eviction_that_is_asked_for_counts_and_one_that_was_refused_gives_way() -> None:
    pods = [pod(name, "BE", cores=2) for name in "abc"]
    goal = EvictionGoal("X", USED, 2000, pods, "")

    def choose(**seen: Any) -> list[str]:
        found = RecentEvictions(1.0).choose(view(*pods, **seen), [goal], lambda pod: int(pod.cpu_millicores or 0), 1.0)
        return [pod.uid for pod, _ in found]

    assert choose(evictions_asked=frozenset({pods[0].path})) == []
    assert choose(evictions_refused=frozenset({pods[0].path})) == ["b"]


def test_evictions_of_others_count() -> None:
    pods = [pod(name, "BE", cores=2) for name in "ab"]
    seen = view(*pods, evictions={pods[0].path: 0.0})
    goal = EvictionGoal("X", USED, 2000, pods, "")
    assert RecentEvictions(1.0).choose(seen, [goal], lambda pod: int(pod.cpu_millicores or 0), 1.0) == []


def test_cooling_starts_with_the_agent() -> None:
    evictions = RecentEvictions(20.0)
    assert [evictions.cooling(now) for now in (100.0, 119.9, 120.0)] == [True, True, False]


@pytest.mark.parametrize(
    ("requests", "allocatable", "releases"),
    [
        pytest.param([1200], {"batch": 1000}, {"batch": 200}, id="down-to-the-lower-level"),
        pytest.param([1100], {"batch": 1000}, {}, id="at-the-threshold"),
        pytest.param([600, 600], {"batch": 0}, {"batch": 1200}, id="nothing-is-allocatable"),
        pytest.param([600, 600], {}, {}, id="unknown-is-not-zero"),
    ],
)
def test_ledger(requests: list[int], allocatable: dict[str, int], releases: dict[str, int]) -> None:
    pods = [pod(f"p{i}", "BE", requests={"batch": request}) for i, request in enumerate(requests)]
    assert overcommitment_releases(pods, lambda _: "batch", allocatable, 110, 100) == releases


@pytest.mark.parametrize(("threshold", "lower", "level"), [(70, None, 68), (70, 50, 50), (1, None, 0), (None, 5, 0)])
def test_below(threshold: int | None, lower: int | None, level: int) -> None:
    assert stop_level(threshold, lower, "key") == level


def test_a_lower_level_at_the_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="key 70 must be below the threshold 70"):
        stop_level(70, 70, "key")
