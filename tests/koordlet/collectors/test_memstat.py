"""Memory files of both versions."""

from pathlib import Path

import pytest

from api.frame import CGROUP, CgroupInfo
from koordlet.collectors import Round
from koordlet.collectors.memstat import MemStat, parse_limit, parse_memory_stat
from tests.koordlet.collectors.hosts import A, B, make_host
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


def read(collector: MemStat, column: str, *cgroups: CgroupInfo, due: tuple[CgroupInfo, ...] = ()) -> list[float]:
    found: list[float] = collector.collect(Round(cgroups, due)).tables[CGROUP].columns[column].tolist()
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


def test_pages_that_come_back_are_counted_in_each_tick_until_they_do_not(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, 1)
    collector = MemStat.open(make_host(tmp_path, 2))
    seen = []
    for refaults, due in ((0, (A, B)), (5, (A,)), (9, ()), (9, ()), (12, ())):
        for name in ("a", "b"):
            write(tmp_path, name, 1, refaults=refaults)
        seen.append(read(collector, "memstat.refaults", A, B, due=due))
    assert seen == [[0, 0], [5, 0], [9, 0], [9, 0], [9, 0]]
