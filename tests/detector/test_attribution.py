"""Correlation: second, labelled, and silent without contrast."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from api.verdicts import How, Verdict
from api.window import Window
from detector.correlation import History, correlate
from detector.judging.engine import RuleEngine
from detector.rules import Rule
from detector.view import View
from tests.frames import make_frame

PATHS = {1: "/web", 2: "/flood", 3: "/steady", 4: "/idle"}
RULE = Rule(name="net", any_of=("network_delay",), threshold=0.1, ticks=1, of_ticks=1, cooldown_seconds=0)


def judge(losses: Sequence[float], packets: Sequence[Sequence[int]]) -> list[Verdict]:
    """Verdicts over ticks of one second; `/web` loses, `packets` has each cgroup's of every tick."""
    delay = np.concatenate([[0], np.cumsum(np.array(losses) * 1e9)])
    sent = np.vstack([np.zeros(4), np.cumsum(np.array(packets), axis=0)])
    made = []
    for t in range(len(delay)):
        columns = {"net.qdisc_delay_ns": [delay[t], 0, 0, 0], "net.qdisc_packets": sent[t].tolist()}
        made.append(make_frame(t, PATHS, columns))
    engine = RuleEngine([RULE])
    views = [View(Window(made[: t + 1]), engine.columns) for t in range(1, len(made))]
    return [engine.step(view, view.window.last.monotonic_ns) for view in views][-1]


def test_the_one_that_goes_with_the_loss_is_named_and_labelled() -> None:
    losses = [0, 0, 0, 0, 0, 0, 0, 0.9]
    packets = [[10, 900 if lost else 0, 300, 0] for lost in losses]
    (verdict,) = judge(losses, packets)
    assert [(c.path, c.how) for c in verdict.culprits] == [("/flood", How.CORRELATED)]
    assert verdict.culprits[0].share == pytest.approx(1.0)  # the steady 300 packets were there before
    assert verdict.confidence == 0.0


@pytest.mark.parametrize(
    ("losses", "flood"),
    [
        pytest.param([0, 0, 0, 0, 0, 0, 0, 0.9], 300, id="steady-neighbours"),
        pytest.param([0, 0, 0, 0, 0, 0, 0, 0.9], 0, id="nobody-does-anything"),
    ],
)
def test_nobody_is_blamed_for_what_does_not_go_with_the_loss(losses: Sequence[float], flood: int) -> None:
    (verdict,) = judge(losses, [[10, flood, flood, 0] for _ in losses])
    assert verdict.culprits == ()


@pytest.mark.parametrize(
    ("lost", "blamed"),
    [
        pytest.param([0.9] * 8, False, id="no-calm-tick-to-compare-with"),
        pytest.param([0.0, 0.0, 0.0, 0.9], False, id="too-few-ticks"),
        pytest.param([0.0] * 7 + [0.9], True, id="contrast"),
    ],
)
def test_correlation_needs_contrast(lost: list[float], blamed: bool) -> None:
    harm, activity = np.outer(lost, [1.0, 0.0, 0.0, 0.0]), np.outer(lost, [0.0, 100.0, 0.0, 0.0])
    assert correlate(History(harm, activity), np.array([0]), np.array([0.1])) == [[(1, 1.0)] * blamed]


def named(harm: NDArray[np.float64], activity: NDArray[np.float64]) -> list[int]:
    """Suspects named for the first column's loss."""
    lost = np.zeros_like(activity)
    lost[:, 0] = harm
    (found,) = correlate(History(lost, activity), np.array([0]), np.array([0.1]))
    return [row for row, _ in found]


def test_a_pulse_every_ten_ticks_names_the_one_that_pulses() -> None:
    harm = np.tile([0.0] * 8 + [0.8, 0.9], 6)
    activity = np.zeros((60, 4))
    activity[:, 1], activity[:, 2] = harm * 100, 50.0
    assert named(harm, activity) == [1]
    activity[:, 3] = np.roll(harm, 5) * 100
    assert named(harm, activity) == [], "where many pulse alike, one of them meets the harm by chance"


def test_an_always_active_neighbour_is_not_named_for_a_lasting_loss() -> None:
    harm = np.array([0.0] * 3 + [0.9] * 57)
    activity = np.zeros((60, 3))
    activity[:, 1] = 500.0 + np.sin(np.arange(60))
    assert named(harm, activity) == []


def test_chance_names_nobody_and_a_culprit_is_found_among_many() -> None:
    rng = np.random.default_rng(7)
    by_chance, found, runs = 0, 0, 200
    for _ in range(runs):
        harm = np.zeros(60)
        begin = rng.integers(5, 50)
        harm[begin : begin + rng.integers(4, 10)] = 0.8
        activity = np.where(rng.random((60, 40)) < 0.02, rng.random((60, 40)) * 1e3, rng.random((60, 40)))
        by_chance += bool(named(harm, activity))
        activity[:, 7] += harm * 1500 * rng.uniform(0.7, 1.3, 60)
        found += 7 in named(harm, activity)
    assert by_chance <= runs // 10
    assert found >= runs * 95 // 100


def test_many_victims_at_once_get_what_each_gets_alone() -> None:
    rng = np.random.default_rng(3)
    activity = rng.random((20, 6)) ** 8
    harm = np.where(rng.random((20, 6)) < 0.1, np.nan, np.roll(activity, 1, axis=1) * 2)
    past = History(harm, activity)
    rows, limits = np.arange(6), np.full(6, 0.1)
    together = correlate(past, rows, limits)
    alone = [correlate(past, rows[[row]], limits[[row]])[0] for row in range(6)]
    assert [[other for other, _ in one] for one in together] == [[other for other, _ in one] for one in alone]
    assert any(together)
    assert all(row not in dict(one) for row, one in enumerate(together))


def test_the_roots_tasks_can_be_named_and_the_victims_own_subtree_cannot() -> None:
    delay = np.concatenate([[0], np.cumsum(np.array([0.0] * 7 + [0.9]) * 1e9)])
    paths = {1: "/pod", 2: "/pod/side", 3: "/"}
    made = [
        make_frame(t, paths, {"net.qdisc_delay_ns": [lost, 0, 0], "net.qdisc_packets": [0, int(lost), int(lost)]})
        for t, lost in enumerate(delay)
    ]
    engine = RuleEngine([RULE])
    told = [engine.step(View(Window(made[: t + 1]), engine.columns), made[t].monotonic_ns) for t in range(1, len(made))]
    assert [culprit.path for culprit in told[-1][0].culprits] == ["/"]


@pytest.mark.parametrize(
    ("rule", "columns", "how"),
    [
        pytest.param(
            "ancestor_memory_limit",
            {"memory.stall_ancestor_limit_ns": [0, 9e8, 0], "memstat.limit_bytes": [1e9, 0, 0]},
            How.CORRELATED,
            id="memory-held-may-be-old",
        ),
        pytest.param(
            "ancestor_quota",
            {"cpu.wait_ancestor_quota_ns": [0, 9e8, 0], "throttle.throttled_ns": [9e8, 0, 0]},
            How.DIRECT,
            id="cpu-time-of-the-tick",
        ),
    ],
)
def test_neighbours_below_a_limit_are_named_by_what_they_use_of_it(
    rule: str, columns: dict[str, list[float]], how: How
) -> None:
    paths = {1: "/pod", 2: "/pod/web", 3: "/pod/flood"}
    grown = {"memstat.usage_bytes": [0, 1e8, 9e8], "cpu.oncpu_ns": [0, 1e8, 9e8], **columns}
    made = [
        make_frame(t, paths, {name: (np.array(amounts) * (t if name.endswith("_ns") else 1)).tolist()
                              for name, amounts in grown.items()})
        for t in (0, 1)
    ]  # fmt: skip
    engine = RuleEngine([Rule(name="limit", any_of=(rule,), threshold=0.1, ticks=1, of_ticks=1, cooldown_seconds=0)])
    view = View(Window(made), engine.columns)
    found = {v.victim: v.culprits for v in engine.step(view, view.window.last.monotonic_ns)}
    hows = {culprit.path: culprit.how for culprit in found["/pod/web"]}
    assert hows["/pod/flood"] is how
