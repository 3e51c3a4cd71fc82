"""Memory files of both versions."""

import time
from pathlib import Path

import pytest

from api.frame import CGROUP, CgroupInfo
from koordlet.collectors import Round
from koordlet.collectors.memstat import MOST_REFAULTING, MemStat, parse_limit, parse_memory_stat
from tests.koordlet.collectors.hosts import A, make_host
from tests.trees import make_tree


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        pytest.param(b"max\n", float("inf"), id="v2-unlimited"),
        pytest.param(b"9223372036854771712\n", float("inf"), id="v1-unlimited"),
        pytest.param(b"4096\n", 4096.0, id="limited"),
    ],
)
def test_memory_limit(content: bytes, limit: float) -> None:
    assert parse_limit(content) == (limit,)


def test_memory_stat_of_both_versions() -> None:
    v1 = (
        b"cache 1\nrss 2\ntotal_cache 10\ntotal_rss 20\ntotal_pgmajfault 3\ntotal_workingset_refault_file 4\n"
        b"total_active_anon 20\ntotal_unevictable 6\n"
    )
    v2 = (
        b"anon 20\nfile 10\npgmajfault 3\nworkingset_refault_anon 1\nworkingset_refault_file 3\n"
        b"active_anon 14\ninactive_anon 6\nunevictable 6\n"
    )
    assert tuple(parse_memory_stat(v1)) == tuple(parse_memory_stat(v2)) == (4, 3, 10, 20, 26)


POD, OLD, NEW = CgroupInfo(20, "/pod", "pod"), CgroupInfo(21, "/pod/old", "old"), CgroupInfo(22, "/pod/new", "new")


def write(root: Path, path: str, usage: int, limit: str = "max", refaults: int = 0) -> None:
    stat = f"anon 0\nfile 0\nworkingset_refault_file {refaults}\n"
    files = {"memory.current": f"{usage}\n", "memory.max": f"{limit}\n", "memory.stat": stat}
    for name, content in files.items():
        file = root / path / name
        if file.exists():
            file.write_text(content)
        else:
            make_tree(root, {f"{path}/{name}": content})


def read(
    collector: MemStat, column: str, *cgroups: CgroupInfo, due: tuple[CgroupInfo, ...] = (), seconds: int | None = None
) -> list[float]:
    work = Round(cgroups, due, time.monotonic_ns() if seconds is None else seconds * 10**9)
    found: list[float] = collector.collect(work).tables[CGROUP].columns[column].tolist()
    return found


@pytest.mark.parametrize(("limit", "of_pod"), [("1000", 950), ("5000", 900), ("max", 900)])
def test_usage_below_a_limit_that_is_nearly_reached_is_read_in_each_tick(
    tmp_path: Path, limit: str, of_pod: int
) -> None:
    write(tmp_path, "pod", 900, limit)
    write(tmp_path, "pod/old", 50)
    collector = MemStat.open(make_host(tmp_path, 2))
    read(collector, "memstat.usage_bytes", POD, OLD, due=(POD, OLD))
    write(tmp_path, "pod", 950, limit)
    write(tmp_path, "pod/new", 900)
    assert read(collector, "memstat.usage_bytes", POD, OLD, NEW) == [of_pod, 50, 900]


@pytest.mark.parametrize(
    ("of_pod", "of_child", "refaults", "child_read"),
    [
        pytest.param(990, 940, 9, 940, id="read-where-pages-come-back-though-it-was-far-from-full"),
        pytest.param(300, 250, 1, 50, id="not-read-far-from-full-though-pages-come-back"),
    ],
)
def test_usage_below_a_limit_under_which_pages_come_back(
    tmp_path: Path, of_pod: int, of_child: int, refaults: int, child_read: int
) -> None:
    write(tmp_path, "pod", 100, "1000")
    write(tmp_path, "pod/old", 50)
    collector = MemStat.open(make_host(tmp_path, 2))
    read(collector, "memstat.usage_bytes", POD, OLD, due=(POD, OLD))
    write(tmp_path, "pod", of_pod, "1000", refaults=refaults)
    write(tmp_path, "pod/old", of_child, refaults=refaults)
    assert read(collector, "memstat.usage_bytes", POD, OLD) == [100, 50]
    assert read(collector, "memstat.usage_bytes", POD, OLD) == [of_pod, child_read]


def refaults_read(
    collector: MemStat,
    root: Path,
    counts: dict[str, int],
    *cgroups: CgroupInfo,
    due: tuple[CgroupInfo, ...] = (),
    seconds: int | None = None,
) -> list[float]:
    for path, count in counts.items():
        write(root, path, 1, refaults=count)
    return read(collector, "memstat.refaults", *cgroups, due=due, seconds=seconds)


def test_pages_that_come_back_are_found_from_above_in_the_same_tick(tmp_path: Path) -> None:
    collector, every = MemStat.open(make_host(tmp_path, 2)), (POD, OLD, NEW, A)
    calm = {"pod": 0, "pod/old": 0, "pod/new": 0, "a": 0}
    assert refaults_read(collector, tmp_path, calm, *every, due=every) == [0, 0, 0, 0]
    assert refaults_read(collector, tmp_path, {"pod": 5, "pod/new": 5}, *every) == [5, 0, 5, 0]
    assert refaults_read(collector, tmp_path, {"pod": 9, "pod/old": 4}, *every) == [9, 4, 5, 0]


def test_where_the_parents_pages_do_not_come_back_nothing_below_is_read_but_in_turn(tmp_path: Path) -> None:
    collector, every = MemStat.open(make_host(tmp_path, 2)), (POD, OLD, NEW)
    assert refaults_read(collector, tmp_path, {"pod": 1, "pod/old": 0, "pod/new": 1}, *every, due=every) == [1, 0, 1]
    assert refaults_read(collector, tmp_path, {"pod/old": 3, "pod/new": 4}, *every) == [1, 0, 1]
    assert refaults_read(collector, tmp_path, {}, *every, due=(OLD,)) == [1, 3, 1]


def test_of_many_siblings_those_with_the_most_that_came_back_are_read_first(tmp_path: Path) -> None:
    jobs = tuple(CgroupInfo(100 + number, f"/pod/{number}", "job") for number in range(2 * MOST_REFAULTING))
    collector, every = MemStat.open(make_host(tmp_path, 2)), (POD, *jobs)
    counts = {"pod": 0} | {job.path[1:]: 0 for job in jobs}
    refaults_read(collector, tmp_path, counts, *every, due=every)
    heavy = (jobs[0], jobs[-1])
    refaults_read(collector, tmp_path, {"pod": 200} | {job.path[1:]: 100 for job in heavy}, *every, due=heavy)
    again = refaults_read(collector, tmp_path, {"pod": 400} | {job.path[1:]: 200 for job in heavy}, *every)
    assert [again[1], again[-1]] == [200, 200]


def test_growth_in_the_last_reading_of_a_tick_counts_too(tmp_path: Path) -> None:
    jobs = tuple(CgroupInfo(100 + number, f"/pod/{number}", "job") for number in range(2 * MOST_REFAULTING))
    collector, last_read = MemStat.open(make_host(tmp_path, 2)), jobs[1 - MOST_REFAULTING]
    counts = {"pod": 0} | {job.path[1:]: 0 for job in jobs}
    refaults_read(collector, tmp_path, counts, POD, *jobs, due=(POD, *jobs))
    assert sum(refaults_read(collector, tmp_path, {"pod": 9, last_read.path[1:]: 9}, POD, *jobs)) == 18
    assert sum(refaults_read(collector, tmp_path, {"pod": 19, last_read.path[1:]: 19}, POD, *reversed(jobs))) == 38


def test_growth_since_a_turn_counts_by_the_second(tmp_path: Path) -> None:
    jobs = tuple(CgroupInfo(100 + number, f"/pod/{number}", "job") for number in range(2 * MOST_REFAULTING))
    slow, heavy, every = jobs[: MOST_REFAULTING + 1], jobs[40], (POD, *jobs)
    collector = MemStat.open(make_host(tmp_path, 2))
    refaults_read(collector, tmp_path, {"pod": 0} | {job.path[1:]: 0 for job in jobs}, *every, due=every, seconds=1)
    refaults_read(collector, tmp_path, {}, *every, due=(heavy,), seconds=10)
    grown = {"pod": 20_000, heavy.path[1:]: 100} | {job.path[1:]: 500 for job in slow}
    refaults_read(collector, tmp_path, grown, *every, due=slow, seconds=11)
    again = {"pod": 30_000, heavy.path[1:]: 200} | {job.path[1:]: 550 for job in slow}
    assert refaults_read(collector, tmp_path, again, *every, seconds=12)[1 + jobs.index(heavy)] == 200
