"""Cold start: a workload new to a node is judged from its first seconds by what is usual for it elsewhere."""

import numpy as np

from api.frame import CGROUP, CgroupInfo, Frame, Table
from controllers.profiles.usual_values import FleetValues
from detector.judging.judge import Judge, JudgeSettings
from koordlet.kube.usual_values import UsualValueReports, cells_of

WORKLOAD = "Deployment/shop/web"
WALL = 1_700_000_000
SETTINGS = JudgeSettings(node_type="cpu")


def frames(seconds: int, turnaround_seconds: float, begin: int = 0) -> list[Frame]:
    """A service that answers a hundred requests a second."""
    info = CgroupInfo(1, "/kubepods/web", "web", qos="LS", workload=WORKLOAD)
    made, draw = [], np.random.default_rng(1)
    requests, sums = 0.0, 0.0
    for second in range(seconds):
        requests += 100
        sums += 100 * turnaround_seconds * 1e9 * draw.lognormal(0, 0.1)
        columns = {
            "turnaround.requests": np.array([requests]).astype(np.uint64),
            "turnaround.sum_ns": np.array([sums]).astype(np.uint64),
            "cpu.oncpu_ns": np.array([second * 5e8]).astype(np.uint64),
            "cpu.wait_neighbour_ns": np.array([0], np.uint64),
        }
        table = Table({"cgroup": np.array([1], np.uint64)}, columns)
        made.append(Frame((begin + second) * 10**9, (WALL + begin + second) * 10**9, (info,), {CGROUP: table}))
    return made


def learned() -> FleetValues:
    """What another node tells the fleet after five minutes."""
    judge, reports, fleet = Judge(SETTINGS), UsualValueReports(), FleetValues()
    assert reports.newest(judge.baselines) == []
    for frame in frames(300, 0.005):
        judge.step(frame)
    for each in reports.newest(judge.baselines):
        fleet.add(each, "elsewhere", WALL + 300.0)
    assert reports.newest(judge.baselines) == [], "stated once"
    return fleet


def first_verdict(judge: Judge, seconds: int = 60) -> int | None:
    """Return the second in which a verdict opens, of a service that answers five times later than is usual for it."""
    return next((at for at, frame in enumerate(frames(seconds, 0.025, 1000)) if judge.step(frame)), None)


def test_a_slow_start_is_told_within_seconds_and_without_the_fleet_never() -> None:
    assert first_verdict(Judge(SETTINGS)) is None
    judge = Judge(SETTINGS)
    cells = cells_of(WORKLOAD, learned().of(WORKLOAD, WALL + 1000.0), WALL + 1000.0)
    assert judge.borrow(cells, WALL + 1000.0) > 0
    told = first_verdict(judge)
    assert told is not None
    assert told <= 5


def test_what_is_usual_elsewhere_makes_no_verdict_of_a_usual_start() -> None:
    judge = Judge(SETTINGS)
    judge.borrow(cells_of(WORKLOAD, learned().of(WORKLOAD, WALL + 1000.0), WALL + 1000.0), WALL + 1000.0)
    assert [verdict for frame in frames(120, 0.005, 1000) for verdict in judge.step(frame)] == []


def test_a_node_that_knows_the_workload_borrows_nothing_and_a_borrower_learns_its_own() -> None:
    cells = cells_of(WORKLOAD, learned().of(WORKLOAD, WALL + 1000.0), WALL + 1000.0)
    judge = Judge(SETTINGS)
    for frame in frames(300, 0.005, 1000):
        judge.step(frame)
    assert judge.borrow(cells, WALL + 1300.0) == 0
    slower = Judge(SETTINGS)
    slower.borrow(cells, WALL + 1000.0)
    before = slower.settings
    assert slower.borrow(cells, WALL + 1000.0) == 0
    assert slower.settings is before, "no new segment of a recording without a change"
    for frame in frames(600, 0.0055, 1000):
        slower.step(frame)
    assert slower.turnarounds is not None
    assert slower.turnarounds.usual.expected[0] > 0.0052
