"""The detection bench leaves nothing behind when it is interrupted."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from bench.detect import stage
from bench.detect.loads import LoadEndedError
from bench.detect.stage import memory_bytes
from bench.detect.subject import Subject
from tests.cgroups import CgroupTree
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(600)]

READY_SECONDS = 240.0


@pytest.mark.beside
@pytest.mark.parametrize(
    ("scenario", "tool"), [("cpu-hog", "sysbench"), ("read-flood", "fio"), ("packet-flood", "iperf3")]
)
def test_ctrl_c_leaves_nothing_behind(tree: CgroupTree, tmp_path: Path, scenario: str, tool: str) -> None:
    if not shutil.which(tool):
        pytest.skip(f"no {tool}: run deploy/provision.sh test")
    output = tmp_path / "figures.json"
    argv = [sys.executable, "-m", "bench.detect", "--only", scenario, "--repeat", "2", "--json", str(output)]
    bench = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    top = tree.mount_of("cpu") / f"koord-test-{bench.pid}-{scenario}"
    procs = top / "victim" / "cgroup.procs"
    wait_for(lambda: (procs.exists() and procs.read_text()) or bench.poll() is not None, READY_SECONDS)
    assert bench.poll() is None, bench.stderr and bench.stderr.read()
    inside = [int(word) for word in procs.read_text().split()]
    bench.send_signal(signal.SIGINT)
    _, said = bench.communicate(timeout=READY_SECONDS)
    assert bench.returncode == 1
    assert "ended early" in said
    assert output.exists()
    assert not [pid for pid in inside if Path(f"/proc/{pid}").exists()]
    assert not [left for mount in tree.mounts.values() for left in mount.glob(f"koord-test-{bench.pid}-*")]
    assert f"koord-detect-{bench.pid}" not in Path("/proc/mounts").read_text()
    assert not list(Path("/run/netns").glob(f"koord-detect-{bench.pid}-*"))
    assert not [path for path in Path("/sys/block").glob("loop*/loop/backing_file") if _backs(path, bench.pid)]


def test_a_load_that_ends_is_told_unless_it_was_stopped(tree: CgroupTree) -> None:
    assert tree.mounts
    with stage.Stage("ends", cast("Subject", None)) as staged:
        staged.start("lasting", ["sleep", "60"], staged.near)
        staged.start("ending", ["false"], staged.near).wait()
        with pytest.raises(LoadEndedError, match=r"^ending ended with status 1$"):
            staged.check_running()
        staged.stop("ending")
        staged.check_running()
        staged.stop("lasting")
        staged.check_running()


def test_memory_is_taken_where_no_huge_pages_are_found(
    tree: CgroupTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tree.mounts
    huge_pages = tmp_path / "nr_hugepages"
    huge_pages.write_text("0")
    monkeypatch.setattr(stage, "_HUGE_PAGES", huge_pages)
    before = memory_bytes()
    with stage.Stage("memory", cast("Subject", None)) as staged:
        staged.leave_memory(before["MemAvailable:"] - (256 << 20))
        assert memory_bytes()["Shmem:"] - before["Shmem:"] > 128 << 20, "others give and take a little meanwhile"
    wait_for(lambda: memory_bytes()["Shmem:"] - before["Shmem:"] < 64 << 20)
    wait_for(lambda: huge_pages.read_text().strip() == "0")


def _backs(path: Path, pid: int) -> bool:
    try:
        return f"koord-detect-{pid}-" in path.read_text()
    except OSError:
        return False
