"""Baselines: honest while warming up, robust, aged, bounded, mergeable, and quick."""

import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.baselines.learner import Baselines, merge
from detector.baselines.values import BaselinePolicy, BaselineSample, BaselineState, LoadKind, WorkloadKey

WEB = WorkloadKey("Deployment/shop/web", "app", "m7")
DAY = 86_400.0


def seen(
    value: Sequence[float] | float, load: float = 1.5, key: WorkloadKey = WEB, kind: int = LoadKind.CPU_DEMAND_CORES
) -> BaselineSample:
    values = np.atleast_1d(np.asarray(value, dtype=np.float64))
    count = len(values)
    return BaselineSample([key] * count, np.full(count, load), np.full(count, int(kind)), {"lost": values})


def taught(numbers: Sequence[float], load: float = 1.5, start: float = 0.0, key: WorkloadKey = WEB) -> Baselines:
    baselines = Baselines(BaselinePolicy(warm_samples=20, warm_periods=1))
    for second, number in enumerate(numbers):
        baselines.learn(seen(number, load, key), start + second)
    return baselines


def ordinary(count: int = 200) -> list[float]:
    return np.random.default_rng(7).lognormal(-3, 0.2, count).tolist()


@pytest.mark.parametrize(
    ("samples", "load", "state"),
    [
        pytest.param(0, 1.5, BaselineState.UNKNOWN, id="never seen"),
        pytest.param(10, 1.5, BaselineState.WARMING_UP, id="too few samples"),
        pytest.param(100, 1.5, BaselineState.READY, id="enough"),
        pytest.param(100, 0.6, BaselineState.BORROWED, id="a lower load asks the next higher"),
        pytest.param(100, 3.0, BaselineState.UNKNOWN, id="a higher load never asks a lower"),
        pytest.param(100, 0.2, BaselineState.UNKNOWN, id="two octaves off"),
        pytest.param(100, float("nan"), BaselineState.UNKNOWN, id="load not measured"),
    ],
)
def test_state_says_how_well_founded(samples: int, load: float, state: BaselineState) -> None:
    judged = taught(ordinary(samples)).judge(seen(0.5, load), 200.0)["lost"]
    assert judged.state[0] == state
    assert np.isfinite(judged.score[0]) == (state >= BaselineState.READY)


def test_replicas_of_a_second_teach_no_more_than_one_sample() -> None:
    """Sixty replicas would be sixty seconds old after one, and take what they showed then for what is usual."""
    baselines = Baselines(BaselinePolicy(warm_samples=20, warm_periods=1))
    for second in range(19):
        baselines.learn(seen([0.05] * 60), second)
    assert baselines.judge(seen(0.5), 20.0)["lost"].state[0] == BaselineState.WARMING_UP
    for second in range(19, 100):
        baselines.learn(seen([0.05] * 30 + [0.1] * 30), second)
    judged = baselines.judge(seen(0.5), 100.0)["lost"]
    assert judged.state[0] == BaselineState.READY
    assert judged.samples[0] == 100
    assert judged.expected[0] == pytest.approx(0.05, rel=0.1)


def test_outlier_scores_high_and_ordinary_low() -> None:
    judged = taught(ordinary()).judge(seen([0.05, 0.5]), 200.0)["lost"]
    assert abs(judged.score[0]) < 2
    assert judged.score[1] > 10
    assert judged.expected[0] == pytest.approx(np.exp(-3), rel=0.15)
    assert judged.samples[0] == 200
    assert judged.age_seconds[0] == 200.0


@pytest.mark.parametrize("samples", [12, 30, 60, 300])
def test_few_samples_tell_of_a_tail_that_few_of_them_show(samples: int) -> None:
    """Of a hundred services no more than twenty exceed what is told in more than twenty of their next 1,000 ticks."""
    random = np.random.default_rng(5)
    often = 0
    for _ in range(100):
        judged = taught(random.gamma(8.0, 0.004, samples).tolist()).judge(seen(0.5), float(samples))["lost"]
        assert np.isfinite(judged.extreme[0])
        often += (random.gamma(8.0, 0.004, 1000) > judged.extreme[0]).sum() > 20
    assert often <= 20


def test_a_tail_is_told_of_some_ten_samples_and_not_of_fewer() -> None:
    told = [taught([0.02] * count).judge(seen(0.5), 99.0)["lost"].extreme[0] for count in (9, 11)]
    assert np.isnan(told[0])
    assert 0.02 <= told[1] < 0.03  # as closely as buckets tell


def test_one_burst_among_few_samples_is_no_tail() -> None:
    quiet = [0.001, 0.002] * 10
    judged = taught([*quiet, 0.3, 0.3, 0.3]).judge(seen(0.5), 99.0)["lost"]
    assert judged.extreme[0] < 0.005


def test_a_tenth_of_wild_samples_moves_little() -> None:
    clean, dirty = taught(ordinary()), taught([*ordinary(), *[9.0] * 20])
    before, after = (b.judge(seen(0.5), 300.0)["lost"] for b in (clean, dirty))
    assert after.expected[0] == pytest.approx(before.expected[0], rel=0.1)
    assert after.score[0] > 8


def test_excluded_and_unmeasured_samples_teach_nothing() -> None:
    baselines = Baselines()
    baselines.learn(seen([0.1, 0.2, np.nan]), 0.0, np.array([True, False, False]))
    assert [card.samples for card in baselines.records(0.0)] == [1]


def test_requests_and_cpu_demand_are_different_loads() -> None:
    judged = taught(ordinary()).judge(seen(0.5, kind=LoadKind.REQUESTS_PER_SECOND), 200.0)["lost"]
    assert judged.state[0] == BaselineState.UNKNOWN


def test_old_samples_fade_until_the_baseline_warms_up_anew() -> None:
    baselines = taught(ordinary(40))
    assert baselines.judge(seen(0.5), 2 * DAY)["lost"].state[0] == BaselineState.READY
    faded = baselines.judge(seen(0.5), 12 * DAY)["lost"]
    assert faded.state[0] == BaselineState.WARMING_UP
    assert faded.age_seconds[0] == 12 * DAY


def test_a_new_normal_replaces_the_old_one() -> None:
    baselines = taught([0.01] * 100)
    for second in range(100):
        baselines.learn(seen(1.0), 100 * DAY + second)
    assert baselines.judge(seen(1.0), 100 * DAY + 100)["lost"].expected[0] == pytest.approx(1.0, rel=0.2)


def test_a_clock_that_jumps_back_keeps_learning() -> None:
    baselines = taught(ordinary(30), start=1e6)
    baselines.learn(seen(0.1), 10.0)
    assert baselines.records(1e6)[0].samples == 31


def test_no_room_is_counted() -> None:
    baselines = Baselines(BaselinePolicy(max_cells=1))
    baselines.learn(seen(0.1), 0.0)
    baselines.learn(seen([0.1, 0.2], key=WorkloadKey("other")), 1.0)
    assert (len(baselines), baselines.refused) == (1, 2)


def test_forgetting_makes_room_and_keeps_the_living() -> None:
    baselines = taught(ordinary(30), key=WorkloadKey("gone"))
    for second in range(30):
        baselines.learn(seen(0.05 + second * 1e-3), 60 * DAY + second)
        baselines.learn(seen(0.2, key=WorkloadKey("late")), 60 * DAY + second)
    now = 60 * DAY + 30
    living = [card for card in baselines.records(now) if card.key.workload != "gone"]
    before = baselines.judge(seen(0.5), now)["lost"]
    assert (baselines.forget(now), baselines.forget(now)) == (1, 0)
    assert list(baselines.records(now)) == living
    assert baselines.judge(seen(0.5), now)["lost"].score[0] == before.score[0]
    assert baselines.judge(seen(0.5, key=WorkloadKey("gone")), now)["lost"].state[0] == BaselineState.UNKNOWN
    baselines.learn(seen(0.1, key=WorkloadKey("new")), now)
    assert len(baselines) == 3


def test_forgetting_everything_leaves_a_working_baseline() -> None:
    baselines = taught(ordinary(30))
    assert baselines.forget(90 * DAY) == 1
    baselines.learn(seen(0.1), 90 * DAY)
    assert baselines.judge(seen(0.1), 90 * DAY)["lost"].state[0] == BaselineState.WARMING_UP


samples = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=30)


def contents(baselines: Baselines, now: float) -> list[tuple[object, ...]]:
    return [
        (card.key, card.octave, card.samples, card.buckets, card.first_seconds, card.last_seconds)
        for card in baselines.records(now)
    ]


def weights(baselines: Baselines, now: float) -> list[float]:
    return [count for card in baselines.records(now) for count in (card.weight, *card.counts)]


@settings(max_examples=40, deadline=None)
@given(samples, samples, samples)
def test_merge_is_associative_and_commutative(one: list[float], two: list[float], three: list[float]) -> None:
    now = 5 * DAY
    a, b, c = taught(one), taught(two, start=DAY), taught(three, load=5.0, start=2 * DAY)
    whole = merge([a, b, c], now)
    for other in (merge([c, b, a], now), merge([merge([a, b], now), c], now), merge([a, merge([b, c], now)], now)):
        assert contents(other, now) == contents(whole, now)
        assert weights(other, now) == pytest.approx(weights(whole, now), rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(samples, samples)
def test_merged_nodes_equal_one_node_that_saw_all(one: list[float], two: list[float]) -> None:
    both = taught(one)
    for second, number in enumerate(two):
        both.learn(seen(number), second)
    merged = merge([taught(one), taught(two)], 100.0)
    assert [card.buckets for card in merged.records(100.0)] == [card.buckets for card in both.records(100.0)]
    assert weights(merged, 100.0) == pytest.approx(weights(both, 100.0), rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)))
def test_permuting_containers_permutes_judgements(order: list[int]) -> None:
    keys = [WorkloadKey(f"w{number}") for number in range(6)]
    values = np.arange(1.0, 7.0)
    baselines, shuffled = (Baselines(BaselinePolicy(warm_samples=5, warm_periods=1)) for _ in range(2))
    columns = (np.full(6, 1.5), np.zeros(6, dtype=np.int64))
    for second in range(10):
        baselines.learn(BaselineSample(keys, *columns, {"lost": values * (1 + second % 3)}), second)
        shuffled.learn(
            BaselineSample([keys[i] for i in order], *columns, {"lost": values[order] * (1 + second % 3)}), second
        )
    plain = baselines.judge(BaselineSample(keys, *columns, {"lost": values * 4}), 10)["lost"]
    permuted = shuffled.judge(BaselineSample([keys[i] for i in order], *columns, {"lost": values[order] * 4}), 10)[
        "lost"
    ]
    assert np.array_equal(permuted.score, plain.score[order])
    assert (plain.state == BaselineState.READY).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(-6, 6))
def test_scaling_units_changes_no_score(octaves: int) -> None:
    factor = 2.0**octaves
    plain = taught(ordinary()).judge(seen(0.3), 200.0)["lost"]
    scaled = taught([number * factor for number in ordinary()]).judge(seen(0.3 * factor), 200.0)["lost"]
    assert scaled.score[0] == pytest.approx(plain.score[0], rel=1e-6)


def test_five_hundred_containers_are_judged_in_milliseconds() -> None:
    rng = np.random.default_rng(1)
    keys = [WorkloadKey(f"w{number}") for number in range(500)]
    columns = (rng.uniform(0.1, 8, 500), np.zeros(500, dtype=np.int64))
    window = BaselineSample(keys, *columns, {f"s{i}": rng.lognormal(0, 1, 500) for i in range(10)})
    baselines = Baselines(BaselinePolicy(warm_samples=3, warm_periods=1))
    for second in range(5):
        baselines.learn(window, second)
    spent = []
    for _ in range(12):
        start = time.process_time()
        judged = baselines.judge(window, 10.0)
        spent.append(time.process_time() - start)
    assert all((signal.state >= BaselineState.READY).all() for signal in judged.values())
    assert min(spent) < 0.01


def test_cells_that_may_judge_are_counted() -> None:
    assert (taught(ordinary(10)).ready_count(10.0), taught(ordinary()).ready_count(200.0)) == (0, 1)
    assert taught(ordinary()).ready_count(200.0 + 30 * DAY) == 0


def test_workloads_that_come_and_go_beyond_the_room_for_cells_take_none() -> None:
    """Jobs of ever new names, a hundred at a time, on a node whose cells are all taken."""
    baselines = Baselines(BaselinePolicy(max_cells=50))
    columns = (np.ones(100), np.zeros(100, dtype=np.int64))
    for hour in range(40):
        keys = [WorkloadKey(f"Job/ci/run-{hour}-{number}") for number in range(100)]
        baselines.learn(BaselineSample(keys, *columns, {"lost": np.ones(100)}), hour * 3600.0)
        baselines.forget(hour * 3600.0)
        assert len(baselines.workloads) == len(baselines) == 50
        assert baselines.cells.indexed <= 150
    kept = baselines.judge(BaselineSample([WorkloadKey("Job/ci/run-0-0")], np.ones(1), columns[1][:1], {}), DAY)
    assert kept == {}
    assert baselines.refused == 40 * 100 - 50


def test_forgetting_workloads_without_cells_keeps_what_the_others_learned() -> None:
    baselines = taught(ordinary())
    baselines.learn(seen(0.5, float("nan"), WorkloadKey("Job/ci/never-measured")), 200.0)
    before = baselines.judge(seen(0.5), 200.0)["lost"]
    assert baselines.forget(200.0) == 0
    assert list(baselines.workloads) == [WEB]
    assert baselines.judge(seen(0.5), 200.0)["lost"].score.tolist() == before.score.tolist()
