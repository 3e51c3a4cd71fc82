"""cpu.stat of both versions, and which cgroups are read out of turn."""

from pathlib import Path

import pytest

from api.frame import CGROUP
from koordlet.collectors import Round
from koordlet.collectors.cpustat import CpuStat, parse_cpu_stat, parse_cpu_stat_v2
from tests.koordlet.collectors.hosts import A, B, columns, make_host
from tests.trees import make_tree


def test_cpu_stat_v1(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "cpu/a/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 77\n",
            "cpuacct/a/cpuacct.usage": "5000\n",
        },
    )
    found, _ = columns(CpuStat.open(make_host(tmp_path, 1)), A)
    assert found == {
        "cpustat.periods": [10],
        "cpustat.throttled_periods": [4],
        "cpustat.throttled_ns": [77],
        "cpustat.usage_ns": [5000],
    }


def test_cpu_stat_v2_is_in_ns_too(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a/cpu.stat": "usage_usec 9\nnr_periods 1\nnr_throttled 1\nthrottled_usec 3\n"})
    found, _ = columns(CpuStat.open(make_host(tmp_path, 2)), A)
    assert found["cpustat.throttled_ns"] == [3000]
    assert found["cpustat.usage_ns"] == [9000]


def test_forced_idle_is_read_where_the_kernel_has_core_scheduling(tmp_path: Path) -> None:
    stat = "usage_usec 9\ncore_sched.force_idle_usec {}\nnr_periods 1\nnr_throttled 1\nthrottled_usec 3\n"
    make_tree(tmp_path, {"cpu.stat": "usage_usec 20\ncore_sched.force_idle_usec 4\n", "a/cpu.stat": stat.format(4)})
    found, _ = columns(CpuStat.open(make_host(tmp_path, 2)), A)
    assert found["cpustat.forced_idle_ns"] == [4000]
    (tmp_path / "cpu.stat").write_text("usage_usec 20\n")
    assert "cpustat.forced_idle_ns" not in columns(CpuStat.open(make_host(tmp_path, 2)), A)[0]


def test_only_cgroups_with_a_quota_are_read_out_of_turn(tmp_path: Path) -> None:
    for name, periods in (("a", 5), ("b", 0)):
        make_tree(tmp_path, {f"{name}/cpu.stat": f"usage_usec 1\nnr_periods {periods}\nnr_throttled 0\n"})
    collector = CpuStat.open(make_host(tmp_path, 2))
    collector.collect(Round((A, B), (A, B)))
    for name in ("a", "b"):
        (tmp_path / name / "cpu.stat").write_text("usage_usec 2\nnr_periods 9\nnr_throttled 0\n")
    found = collector.collect(Round((A, B), ())).tables[CGROUP].columns["cpustat.periods"]
    assert found.tolist() == [9, 0]


def test_bad_stat_lines_are_refused() -> None:
    with pytest.raises(ValueError, match="words"):
        parse_cpu_stat(b"nr_periods")
    with pytest.raises(KeyError):
        parse_cpu_stat_v2(b"nr_periods 1\n")


def test_without_a_probe_every_cgroup_is_read_in_each_tick(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_tree(tmp_path, {f"{name}/cpu.stat": "usage_usec 1\nnr_periods 0\nnr_throttled 0\n"})
    collector = CpuStat.open(make_host(tmp_path, 2))
    first = collector.collect(Round((A, B), (A, B), 10))
    assert first.read_ns["cpustat.usage_ns"].tolist() == [10.0, 10.0]
    in_turn = collector.collect(Round((A, B), (A,), 20))
    assert in_turn.read_ns["cpustat.usage_ns"].tolist() == [20.0, 10.0]
    each = collector.collect(Round((A, B), (A,), 30, frozenset({"cpustat"})))
    assert each.read_ns["cpustat.usage_ns"].tolist() == [30.0, 30.0]
