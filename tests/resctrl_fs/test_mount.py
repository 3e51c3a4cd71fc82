"""The file system as a program meets it: mounted, with real tasks, through system calls."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resctrl_fs.client import MountedResctrl, mounted
from tests.resctrl_fs.hardware import AMD, INTEL
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no /dev/fuse")


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[MountedResctrl]:
    with mounted(INTEL, tmp_path / "resctrl") as mount:
        yield mount


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    command = ["sh", "-c", "read x; sleep 60; true"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


def tasks_in(path: Path) -> list[int]:
    return [int(line) for line in (path / "tasks").read_text().split()]


def test_files_have_no_size_and_read_whole(fs: MountedResctrl) -> None:
    schemata = fs.path / "schemata"
    assert schemata.stat().st_size == 0
    assert schemata.read_text() == "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"
    descriptor = os.open(schemata, os.O_RDONLY)
    try:
        assert [os.read(descriptor, 20), os.read(descriptor, 4096)] == [
            b"    MB:0=100;1=100\n ",
            b"   L3:0=7ff;1=7ff\n",
        ]
    finally:
        os.close(descriptor)


def test_write_is_a_command_with_an_errno_and_a_status(fs: MountedResctrl) -> None:
    (fs.path / "schemata").write_text("L3:0=3f\n")
    assert fs.last_status() == "ok"
    with pytest.raises(OSError) as refused:
        (fs.path / "schemata").write_text("L3:0=f7\n")
    assert refused.value.errno == errno.EINVAL
    assert fs.last_status() == "The mask f7 has non-consecutive 1-bits"


def test_read_only_files_and_foreign_names(fs: MountedResctrl) -> None:
    with pytest.raises(PermissionError):
        (fs.path / "size").write_text("1\n")
    with pytest.raises(PermissionError):
        (fs.path / "mine").write_text("1\n")
    with pytest.raises(PermissionError):
        (fs.path / "size").unlink()


def test_task_moves_and_takes_its_later_children_along(fs: MountedResctrl, sleeper: subprocess.Popen[bytes]) -> None:
    group = fs.path / "batch"
    group.mkdir()
    assert sleeper.pid in tasks_in(fs.path)
    (group / "tasks").write_text(f"{sleeper.pid}\n")
    assert tasks_in(group) == [sleeper.pid]
    assert sleeper.pid not in tasks_in(fs.path)
    assert sleeper.stdin is not None
    time.sleep(0.03)  # start times have a grain of 10 ms
    sleeper.stdin.write(b"\n")
    sleeper.stdin.flush()
    wait_for(lambda: len(tasks_in(group)) == 2)
    group.rmdir()
    assert sleeper.pid in tasks_in(fs.path)


def test_monitor_group_takes_only_tasks_of_its_control_group(
    fs: MountedResctrl, sleeper: subprocess.Popen[bytes]
) -> None:
    group, monitor = fs.path / "batch", fs.path / "batch" / "mon_groups" / "job"
    group.mkdir()
    monitor.mkdir()
    with pytest.raises(OSError) as refused:
        (monitor / "tasks").write_text(f"{sleeper.pid}\n")
    assert refused.value.errno == errno.EINVAL
    expected = f"Can't move task to different control group\nError while processing task {sleeper.pid}"
    assert fs.last_status() == expected
    (group / "tasks").write_text(f"{sleeper.pid}\n")
    (monitor / "tasks").write_text(f"{sleeper.pid}\n")
    assert (tasks_in(monitor), tasks_in(group)) == ([sleeper.pid], [sleeper.pid])
    monitor.rmdir()
    assert tasks_in(group) == [sleeper.pid]


def test_task_list_stops_at_the_first_failure(fs: MountedResctrl, sleeper: subprocess.Popen[bytes]) -> None:
    (fs.path / "g").mkdir()
    gone = 4_194_304  # above the largest pid_max
    with pytest.raises(OSError) as refused:
        (fs.path / "g" / "tasks").write_text(f"{sleeper.pid},{gone},{os.getpid()}\n")
    assert refused.value.errno == errno.ESRCH
    assert fs.last_status() == f"No task {gone}\nError while processing task {gone}"
    assert tasks_in(fs.path / "g") == [sleeper.pid]


def test_zero_means_the_writer(fs: MountedResctrl) -> None:
    (fs.path / "g").mkdir()
    done = subprocess.run(
        ["sh", "-c", "echo 0 > tasks; echo $$; cat tasks"],
        cwd=fs.path / "g",
        capture_output=True,
        text=True,
        check=True,
    )
    shell, *inside = done.stdout.split()
    assert shell in inside


def test_counters_are_set_from_the_test(fs: MountedResctrl) -> None:
    (fs.path / "g").mkdir()
    data = fs.path / "g" / "mon_data"
    fs.set_value("g", "llc_occupancy", 4 << 20, domain=1)
    assert (data / "mon_L3_00" / "llc_occupancy").read_text() == "0\n"
    assert (data / "mon_L3_01" / "llc_occupancy").read_text() == f"{4 << 20}\n"
    fs.set_unreadable("g", "mbm_total_bytes", "Unavailable", is_once=True)
    assert (data / "mon_L3_00" / "mbm_total_bytes").read_text() == "Unavailable\n"
    assert (data / "mon_L3_00" / "mbm_total_bytes").read_text() == "0\n"
    fs.set_rate("g", "mbm_total_bytes", 1e9, domain=0)
    time.sleep(0.05)
    assert int((data / "mon_L3_00" / "mbm_total_bytes").read_text()) >= 40_000_000
    with pytest.raises(ValueError, match="no monitoring event"):
        fs.set_value("g", "nonsense", 1)
    with pytest.raises(ValueError, match="No such file"):
        fs.set_value("nowhere", "llc_occupancy", 1)


def test_root_group_can_be_named(fs: MountedResctrl) -> None:
    fs.set_value("", "llc_occupancy", 7)
    assert (fs.path / "mon_data" / "mon_L3_01" / "llc_occupancy").read_text() == "7\n"


def test_mount_type_tells_resctrl(fs: MountedResctrl) -> None:
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    assert [line[2] for line in lines if line[1] == str(fs.path)] == ["fuse.resctrl"]


def test_refused_option_and_unmount(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="mba_MBps requires"), mounted(AMD, tmp_path / "r", ["mba_MBps"]):
        pass
    with mounted(AMD, tmp_path / "r", ["cdp"]) as fs:
        assert (fs.path / "info" / "L3DATA").is_dir()
    assert not (tmp_path / "r").is_mount()
    assert fs.server.returncode == 0
