"""A verdict about a CPU opens by what a cgroup waits below its own share; what fair division costs is no harm."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from api.frame import CGROUP, HOST, CgroupInfo, Frame, Table
from api.verdicts import VerdictState
from detector.judging.diagnosis import Reason
from detector.judging.judge import Judge, JudgeSettings
from detector.rules import Rule

INFOS = (CgroupInfo(1, "/web", "web", "LS"), CgroupInfo(2, "/other", "other", "LS"))


def frames(
    used: tuple[float, float],
    waits: float,
    weights: tuple[float, float] | None,
    request: float = np.nan,
    lost_on_cpu: float = 0.0,
) -> Iterator[Frame]:
    """Two services on two CPUs; each waits so many seconds a second for the other, and of what it holds so much is
    stolen."""
    for second in range(1, 8):
        grown = {
            "cpu.oncpu_ns": [(each - lost_on_cpu) * second * 1e9 for each in used],
            "cpu.held_ns": [each * second * 1e9 for each in used],
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


def test_what_a_hypervisor_steals_no_neighbour_has() -> None:
    assert not victims(frames((1.0, 1.0), 1.0, EQUAL, lost_on_cpu=0.33))


def test_the_reason_is_told() -> None:
    judge = Judge(JudgeSettings())
    assert not victims(frames((1.0, 1.0), 1.0, EQUAL), judge)
    (found,) = [each for each in judge.diagnose("/web") if each.rule == "cpu-contention"]
    assert found.reason is Reason.BEYOND_SHARE
    assert found.counted == 0.0
    assert found.symptoms[0].lost == pytest.approx(1.0)


@dataclass(frozen=True)
class Of:
    """A cgroup in each second; amounts in seconds per second."""

    path: str
    used: float = 0.0
    waits: float = 0.0
    throttled: float = 0.0
    weight: float = 100.0
    request: float = np.nan
    qos: str = "LS"


def scene(
    *cgroups: Of, cpus: int = 2, seconds: int = 8, weights_from: int = 1, without_host: int = 0
) -> Iterator[Frame]:
    """Frames of cgroups that all wait for the one that uses most."""
    infos = tuple(
        CgroupInfo(place + 1, each.path, each.path, each.qos, workload=each.path) for place, each in enumerate(cgroups)
    )
    ids = np.arange(1, len(cgroups) + 1, dtype=np.uint64)
    most = max(range(len(cgroups)), key=lambda place: cgroups[place].used)
    victims = np.arange(len(cgroups)) != most
    for second in range(1, seconds):
        grown = {
            "cpu.oncpu_ns": [each.used for each in cgroups],
            "cpu.wait_neighbour_ns": [each.waits for each in cgroups],
            "cpu.wait_own_quota_ns": [each.throttled for each in cgroups],
            "cpu.wait_ns": [each.waits + each.throttled for each in cgroups],
        }
        dense = {name: (np.array(values) * second * 1e9).astype(np.uint64) for name, values in grown.items()}
        dense["cpu.wait_count"] = np.full(len(cgroups), 100 * second, dtype=np.uint64)
        if second >= weights_from:
            dense["cpu.weight"] = np.array([each.weight for each in cgroups])
            dense["cpu.request_cores"] = np.array([each.request for each in cgroups])
        blame = Table(
            {"cgroup": ids[victims], "culprit": np.full(len(cgroups) - 1, most + 1, dtype=np.uint64)},
            {"cpu.blame_ns": dense["cpu.wait_neighbour_ns"][victims]},
        )
        tables = {CGROUP: Table({"cgroup": ids}, dense), "cpu.blame": blame}
        if second != without_host:
            tables[HOST] = Table({}, {"hostwide.cpus": np.array([float(cpus)])})
        yield Frame(second * 10**9, 10**18 + second * 10**9, infos, tables)


WEB, OTHER = Of("/web", 1.0, 1.0), Of("/other", 1.0, 1.0)


def test_waits_under_a_quota_are_no_wish_for_the_cpus_of_others() -> None:
    limited = Of("/limited", 0.2, throttled=7.8)
    assert "/web" in victims(scene(Of("/web", 0.65, 0.5), Of("/other", 1.15, 0.3), limited))


def test_nothing_opens_at_once_before_weights_are_read() -> None:
    assert victims(scene(WEB, OTHER, weights_from=3)) == set()


def test_a_frame_without_the_hosts_table_opens_nothing() -> None:
    assert victims(scene(WEB, OTHER, without_host=5)) == set()


def test_a_weight_that_is_not_known_limits_no_claim() -> None:
    assert "/web" in victims(scene(Of("/web", 1.0, 1.0, weight=np.nan), Of("/other", 1.0, 1.0, weight=1000.0)))


def test_the_request_of_a_cgroup_above_counts() -> None:
    above = Of("/pod", weight=50.0, request=1.5), Of("/pod/c", weight=50.0)
    assert "/pod/c/scope" in victims(scene(Of("/pod/c/scope", 1.0, 1.0), *above, OTHER))


def test_the_other_symptom_of_a_rule_counts_whole() -> None:
    judge = Judge(JudgeSettings(rules=(Rule(name="either", any_of=("cpu_contention", "own_quota")),)))
    assert "/web" in victims(scene(Of("/web", 1.0, 0.5, throttled=0.4), OTHER), judge)
    (found,) = judge.diagnose("/web")
    assert found.counted == pytest.approx(0.4)


def test_fair_division_is_not_learned_as_usual() -> None:
    """Else harm below the share that comes later would have to exceed what fair division cost."""
    judge = Judge(JudgeSettings())
    for frame in scene(Of("/web", 1.0, 0.3), Of("/other", 1.0, 0.3), seconds=900):
        judge.step(frame)
    (before,) = [each for each in judge.diagnose("/web") if each.rule == "cpu-contention"]
    assert (before.reason, before.threshold) == (Reason.BEYOND_SHARE, pytest.approx(0.05))
