"""Files of the whole host."""

from pathlib import Path

from koordlet.collectors import Round
from koordlet.collectors.hostwide import HostWide, parse_proc_stat
from tests.koordlet.collectors.hosts import PSI, make_host
from tests.trees import make_tree


def test_hostwide(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:  100 kB\nMemAvailable:  40 kB\nHugePages_Total: 0\n",
            "proc/vmstat": "pgsteal_kswapd 7\nallocstall_normal 3\n",
            "proc/stat": "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 0 5 100 0 2 3 4 0 0\n",
            "proc/pressure/cpu": PSI,
        },
    )
    reading = HostWide.open(make_host(tmp_path, 2)).collect(Round((), ()))
    values = {name: column.tolist() for name, column in reading.tables["host"].columns.items()}
    assert values["hostwide.memory_available_bytes"] == [40 * 1024]
    assert values["hostwide.cpu_some_us"] == [123]
    cpus = reading.tables["host.cpu"]
    assert cpus.columns["hostcpu.steal_ns"].tolist() == [40_000_000]
    assert parse_proc_stat("") is None
