"""PSI of cgroups."""

from pathlib import Path

import pytest

from api.frame import CgroupInfo
from api.plugin import Unsupported
from koordlet.collectors import Round
from koordlet.collectors.pressure import Pressure
from koordlet.host.pressure import parse_pressure
from tests.koordlet.collectors.hosts import PSI, A, columns, make_host
from tests.trees import make_tree


def test_pressure(tmp_path: Path) -> None:
    assert parse_pressure(PSI.encode()) == (123, 45)
    assert parse_pressure(PSI.encode().splitlines(keepends=True)[0]) == (123, 0)
    make_tree(tmp_path, {"proc/pressure/cpu": PSI, "cpu.pressure": PSI})
    for resource in ("cpu", "memory", "io"):
        make_tree(tmp_path, {f"a/{resource}.pressure": PSI})
    found, _ = columns(Pressure.open(make_host(tmp_path, 2)), A)
    assert found["pressure.memory_full_us"] == [45]


def test_pressure_switched_off_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="PSI"):
        Pressure.open(make_host(tmp_path, 2))


TOP, POD, WEB, IDLE = (
    CgroupInfo(number, path, path) for number, path in ((1, "/"), (2, "/pod"), (3, "/pod/web"), (4, "/idle"))
)
CHILD = CgroupInfo(5, "/idle/child", "child")
ALL = (WEB, CHILD, IDLE, POD, TOP)


class Stalls:
    """A v2 tree whose files say what was put there, and the collector that reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_ns = 0
        for info in ALL:
            self.put(info, 0)
        make_tree(root, {"proc/pressure/cpu": PSI})
        self.collector = Pressure.open(make_host(root, 2))

    def put(self, info: CgroupInfo, total: int) -> None:
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n"
        for resource in ("cpu", "memory", "io"):
            make_tree(self.root, {f"{info.path}/{resource}.pressure".lstrip("/"): text})

    def tick(self, *due: CgroupInfo) -> tuple[dict[str, float], dict[str, float]]:
        """Totals and reading times by path."""
        self.now_ns += 1
        reading = self.collector.collect(Round(ALL, due, self.now_ns))
        totals = reading.tables["cgroup"].columns["pressure.io_some_us"]
        times = reading.read_ns["pressure.io_some_us"]
        paths = [info.path for info in ALL]
        return dict(zip(paths, totals.tolist(), strict=True)), dict(zip(paths, times.tolist(), strict=True))


def test_what_stalls_is_read_out_of_turn(tmp_path: Path) -> None:
    stalls = Stalls(tmp_path)
    stalls.tick(*ALL)
    for info in (TOP, POD, WEB):
        stalls.put(info, 70)
    totals, times = stalls.tick()
    assert totals == {"/": 70, "/pod": 70, "/pod/web": 70, "/idle": 0, "/idle/child": 0}
    assert set(times.values()) == {stalls.now_ns}


def test_nothing_is_read_below_a_total_that_stands_still(tmp_path: Path) -> None:
    stalls = Stalls(tmp_path)
    stalls.tick(*ALL)
    stalls.put(TOP, 70)
    stalls.put(CHILD, 70)  # which the kernel would have counted in /idle too
    assert stalls.tick()[0]["/idle/child"] == 0


def test_below_a_cgroup_without_pressure_the_others_are_still_read(tmp_path: Path) -> None:
    stalls = Stalls(tmp_path)
    for resource in ("memory", "io"):
        (tmp_path / f"idle/{resource}.pressure").unlink()
    stalls.tick(*ALL)
    for info in (TOP, CHILD):
        stalls.put(info, 70)
    for resource in ("memory", "io"):
        (tmp_path / f"idle/{resource}.pressure").unlink(missing_ok=True)
    assert stalls.tick()[0]["/idle/child"] == 70


def test_a_cgroup_whose_pressure_is_switched_off_later_hides_none_below_it(tmp_path: Path) -> None:
    stalls = Stalls(tmp_path)
    stalls.tick(*ALL)
    for info in (TOP, CHILD):
        stalls.put(info, 70)
    make_tree(tmp_path, {f"idle/{resource}.pressure": "" for resource in ("memory", "io")})
    assert stalls.tick()[0]["/idle/child"] == 70


def test_cpu_pressure_is_read_in_turn(tmp_path: Path) -> None:
    stalls = Stalls(tmp_path)
    stalls.tick(*ALL)
    for info in ALL:
        stalls.put(info, 70)
    reading = stalls.collector.collect(Round(ALL, (WEB,), 9))
    assert reading.tables["cgroup"].columns["pressure.cpu_some_us"].tolist() == [70, 0, 0, 0, 0]
