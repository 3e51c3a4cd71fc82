"""Thresholds of waits for a CPU by what is usual for the workload: up to twice those of the rule, and no more."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from api.frame import CGROUP, CgroupInfo, Frame, Table
from api.verdicts import Verdict, VerdictState
from detector.baselines.state import baselines_state, restore_baselines
from detector.judging.judge import Judge, JudgeSettings

INFOS = (CgroupInfo(1, "/web", "web", "LS", "Deployment/shop/web", "main"), CgroupInfo(2, "/other", "other", "LS"))
WALL_NS = 1_700_000_000 * 10**9
WARM_TICKS = 240


def frames(lost: float, used: float, waits: int, harmed: float, harmed_ticks: int = 10) -> Iterator[Frame]:
    """A service whose every tenth tick waits so long for its neighbour, and at last every tick much longer."""
    usual = [lost if second % 10 == 0 else lost / 10 for second in range(1, WARM_TICKS + 1)]
    yield from waiting([*usual, *[harmed] * harmed_ticks], used, waits)


def waiting(losses: Sequence[float], used: float | Sequence[float], waits: int | Sequence[int]) -> Iterator[Frame]:
    """A service that waits so long for its neighbour in each second."""
    sums = {"cpu.oncpu_ns": 0.0, "cpu.wait_neighbour_ns": 0.0, "cpu.wait_count": 0.0}
    amounts = np.broadcast_to(used, len(losses)).tolist(), np.broadcast_to(waits, len(losses)).tolist()
    for second, (wait, work, count) in enumerate(zip(losses, *amounts, strict=True), 1):
        sums["cpu.oncpu_ns"] += work * 1e9
        sums["cpu.wait_neighbour_ns"] += wait * 1e9
        sums["cpu.wait_count"] += count
        dense = {name: np.array([amount, 0], np.uint64) for name, amount in sums.items()}
        blame = Table(
            {"cgroup": np.array([1], np.uint64), "culprit": np.array([2], np.uint64)},
            {"cpu.blame_ns": dense["cpu.wait_neighbour_ns"][:1]},
        )
        tables = {CGROUP: Table({"cgroup": np.array([1, 2], np.uint64)}, dense), "cpu.blame": blame}
        yield Frame(second * 10**9, WALL_NS + second * 10**9, INFOS, tables)


def opened(made: Iterator[Frame], judge: Judge | None = None) -> list[Verdict]:
    judge = judge or Judge(JudgeSettings())
    return [verdict for frame in made for verdict in judge.step(frame) if verdict.state is VerdictState.OPEN]


def test_what_is_usual_for_a_small_service_is_no_verdict_and_more_is() -> None:
    (told,) = opened(frames(0.03, 0.02, 20, harmed=0.045))
    assert told.rule == "cpu-contention"
    assert told.time >= WALL_NS / 1e9 + WARM_TICKS
    assert opened(frames(0.03, 0.02, 20, harmed=0.03)) == []


def test_a_service_with_many_short_waits_is_told_above_what_is_usual_for_it() -> None:
    """Its waits of 10 us add up to the rule's threshold; 0.06 s/s are as usual for it as its own peaks."""
    assert opened(frames(0.0625, 1.0, 5000, harmed=0.06)) == []
    assert len(opened(frames(0.0625, 1.0, 5000, harmed=0.09))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_service_of_a_minute_is_told_above_what_it_has_shown_until_then(seed: int) -> None:
    """Waits about as long as it runs, as of a receiver of packets; one tick in seven lies above the small threshold."""
    usual = np.random.default_rng(seed).gamma(10.0, 0.0014, 600).tolist()
    usual[:15] = np.minimum(usual[:15], 0.018).tolist()
    until = [each.time for each in opened(waiting([*usual[:60], *[0.09] * 5], 0.01, 280))]
    assert opened(waiting(usual, 0.01, 280)) == []
    assert until == [WALL_NS / 1e9 + 62]


def test_the_first_ticks_of_a_loss_that_comes_back_after_a_rest_are_not_learned() -> None:
    """Ten seconds of work, late in each of them, after seventy seconds without any: told each time."""
    used, waits = [0.0] * 70 + [0.02] * 10, [0] * 70 + [60] * 10
    losses = [0.0] * 70 + [0.09] * 10
    assert len(opened(waiting(losses * 4, used * 4, waits * 4))) == 4


def test_a_judge_that_is_resumed_remembers_the_rest() -> None:
    made = list(waiting([0.0] * 3 + [0.09] * 3, [0.0] * 3 + [0.02] * 3, [0] * 3 + [60] * 3))
    judge = Judge(JudgeSettings())
    assert opened(iter(made[:4]), judge) == []
    resumed = Judge.resume(judge.settings, judge.checkpoint())
    assert [each.time for each in opened(iter(made[4:]), resumed)] == [made[-1].wall_ns / 1e9]


def test_what_was_learned_hides_no_loss_of_twice_the_threshold() -> None:
    assert len(opened(frames(0.3, 1.0, 5000, harmed=0.11))) == 1


def test_quantiles_of_an_earlier_version_are_made_anew() -> None:
    judge = Judge(JudgeSettings())
    opened(frames(0.03, 0.02, 20, harmed=0.03), judge)
    state = baselines_state(judge.baselines)
    whole = judge.baselines.quantiles[: len(judge.baselines)]
    judge.baselines.quantiles = whole[:, :3]
    restored = restore_baselines(baselines_state(judge.baselines), judge.settings.baselines)
    assert len(state.columns) > 0
    np.testing.assert_allclose(restored.quantiles, whole, rtol=0.1)
