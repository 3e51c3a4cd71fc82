"""A verdict about a CPU opens by what a cgroup waits below its own share; what fair division costs is no harm."""

from collections.abc import Iterator

import numpy as np
import pytest

from api.frame import CGROUP, HOST, CgroupInfo, Frame, Table
from api.verdicts import VerdictState
from detector.judging.diagnosis import Reason
from detector.judging.judge import Judge, JudgeSettings

INFOS = (CgroupInfo(1, "/web", "web", "LS"), CgroupInfo(2, "/other", "other", "LS"))


def frames(
    used: tuple[float, float], waits: float, weights: tuple[float, float] | None, request: float = np.nan
) -> Iterator[Frame]:
    """Two services on two CPUs; each waits so many seconds a second for the other."""
    for second in range(1, 8):
        grown = {
            "cpu.oncpu_ns": [each * second * 1e9 for each in used],
            "cpu.wait_neighbour_ns": [waits * second * 1e9] * 2,
            "cpu.wait_ns": [waits * second * 1e9] * 2,
            "cpu.wait_count": [100 * second] * 2,
        }
        dense = {name: np.array(values, np.uint64) for name, values in grown.items()}
        if weights is not None:
            dense |= {"cpu.weight": np.array(weights), "cpu.request_cores": np.array([request, np.nan])}
        blame = Table(
            {"cgroup": np.array([1, 2], np.uint64), "culprit": np.array([2, 1], np.uint64)},
            {"cpu.blame_ns": dense["cpu.wait_neighbour_ns"]},
        )
        tables = {
            CGROUP: Table({"cgroup": np.array([1, 2], np.uint64)}, dense),
            "cpu.blame": blame,
            HOST: Table({}, {"hostwide.cpus": np.array([2.0])}),
        }
        yield Frame(second * 10**9, second * 10**9, INFOS, tables)


def victims(made: Iterator[Frame], judge: Judge | None = None) -> set[str]:
    judge = judge or Judge(JudgeSettings())
    return {each.victim for frame in made for each in judge.step(frame) if each.state is VerdictState.OPEN}


EQUAL = (100.0, 100.0)


@pytest.mark.parametrize(
    ("used", "weights", "request_cores", "told"),
    [
        pytest.param((1.0, 1.0), EQUAL, np.nan, set(), id="two-equals-that-want-all"),
        pytest.param((1.0, 1.0), None, np.nan, {"/web", "/other"}, id="weights-are-not-known"),
        pytest.param((0.5, 1.5), EQUAL, np.nan, {"/web"}, id="one-has-less-than-its-half"),
        pytest.param((1.0, 1.0), (300.0, 100.0), np.nan, {"/web"}, id="of-more-weight"),
        pytest.param((1.0, 1.0), EQUAL, 1.5, {"/web"}, id="of-a-greater-request"),
        pytest.param((0.98, 1.02), EQUAL, np.nan, set(), id="a-little-less-than-its-half"),
    ],
)
def test_what_opens_is_below_the_share(
    used: tuple[float, float], weights: tuple[float, float] | None, request_cores: float, told: set[str]
) -> None:
    assert victims(frames(used, 1.0, weights, request_cores)) == told


def test_the_reason_is_told() -> None:
    judge = Judge(JudgeSettings())
    assert not victims(frames((1.0, 1.0), 1.0, EQUAL), judge)
    (found,) = [each for each in judge.diagnose("/web") if each.rule == "cpu-contention"]
    assert found.reason is Reason.BEYOND_SHARE
    assert found.counted == 0.0
    assert found.symptoms[0].lost == pytest.approx(1.0)
