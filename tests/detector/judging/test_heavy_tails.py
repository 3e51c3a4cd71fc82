"""Services whose answers take very different times by themselves: their own tails are no verdict, and a slowdown is."""

from collections.abc import Iterator

import numpy as np
import pytest

from api.frame import CGROUP, CgroupInfo, Frame, Table
from api.verdicts import Verdict, VerdictState
from detector.judging.judge import Judge, JudgeSettings

SERVICES, MEDIAN_SECONDS = 20, 0.01
INFOS = tuple(CgroupInfo(n, f"/s{n}", f"s{n}", qos="LS", workload=f"w{n}") for n in range(1, SERVICES + 1))
IDS = np.arange(1, SERVICES + 1).astype(np.uint64)


def frames(requests_per_second: float, sigma: float, ticks: int, slower_from: int = 2**31) -> Iterator[Frame]:
    """Lognormal answers, three times slower from a tick on."""
    draw = np.random.default_rng(11)
    requests, sums = np.zeros(SERVICES), np.zeros(SERVICES)
    for second in range(1, ticks + 1):
        arrived = draw.poisson(requests_per_second, SERVICES)
        slow = 3.0 if second >= slower_from else 1.0
        requests += arrived
        sums += [1e9 * slow * draw.lognormal(np.log(MEDIAN_SECONDS), sigma, each).sum() for each in arrived.tolist()]
        columns = {
            "turnaround.requests": requests.astype(np.uint64),
            "turnaround.sum_ns": sums.astype(np.uint64),
        }
        now_ns = second * 10**9
        tables = {CGROUP: Table({"cgroup": IDS}, columns)}
        yield Frame(now_ns, 1_700_000_000 * 10**9 + now_ns, INFOS, tables)


def opened(judge: Judge, made: Iterator[Frame]) -> list[Verdict]:
    return [verdict for frame in made for verdict in judge.step(frame) if verdict.state is VerdictState.OPEN]


@pytest.mark.parametrize(
    ("requests_per_second", "sigma"),
    [pytest.param(5.0, 1.0, id="few-requests"), pytest.param(20.0, 1.5, id="p99-is-thirty-times-the-median")],
)
def test_a_services_own_tail_is_no_verdict(requests_per_second: float, sigma: float) -> None:
    assert opened(Judge(JudgeSettings()), frames(requests_per_second, sigma, 600)) == []


def test_a_slowdown_is_told_within_seconds_where_the_tail_is_ordinary() -> None:
    told = opened(Judge(JudgeSettings()), frames(100.0, 0.5, 140, slower_from=121))
    assert {verdict.victim for verdict in told} == {info.path for info in INFOS}
    assert max(verdict.time for verdict in told) - 1_700_000_000 <= 125


def test_baselines_learn_the_tail_that_they_judge_by() -> None:
    """Were each tick above the threshold left out, every tick of the tail would be above all that was learned."""
    judge = Judge(JudgeSettings())
    above = judged = 0
    for frame in frames(20.0, 1.5, 900):
        judge.step(frame)
        seen = judge.turnarounds
        if seen is not None and np.isfinite(seen.usual.upper).all():
            judged += SERVICES
            above += int((seen.took_seconds > seen.requests * seen.usual.upper).sum())
    assert judged > 10_000
    assert above / judged < 0.016
