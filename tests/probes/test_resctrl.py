"""The probe against a stand-in of the kernel's file system, with real threads in made-up cgroups."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from api.frame import Reading
from api.plugin import Unsupported
from api.settings import SettingsError
from probes.probe import ProbeLimits
from probes.resctrl import RESERVED_MONITORS, Resctrl, ResctrlOptions
from tests.resctrl_fs.client import MountedResctrl, mounted
from tests.resctrl_fs.hardware import INTEL, MONITOR_ONLY, Monitoring

OBSERVE = ResctrlOptions()
MANAGE = ResctrlOptions(monitor_groups=True, match="/pod*", turn_seconds=10.0, sync_seconds=0.0)
needs_fuse = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no /dev/fuse to mount the stand-in")


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[MountedResctrl]:
    with mounted(INTEL, tmp_path / "resctrl") as mount:
        yield mount


MakePod = Callable[[str], tuple[Path, int]]


@pytest.fixture
def make_pod(tmp_path: Path) -> Iterator[MakePod]:
    """Make a cgroup directory that lists one sleeping process; returns the directory and the process."""
    sleepers: list[subprocess.Popen[bytes]] = []

    def make(name: str) -> tuple[Path, int]:
        sleepers.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        directory = tmp_path / "cgroups" / name / "container"
        directory.mkdir(parents=True)
        (directory / "cgroup.threads").write_text(f"{sleepers[-1].pid}\n")
        return tmp_path / "cgroups" / name, sleepers[-1].pid

    (tmp_path / "cgroups").mkdir()
    yield make
    for process in sleepers:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def _row(reading: Reading, cgroup: Path) -> dict[str, float]:
    table = reading.tables["cgroup"]
    rows = np.flatnonzero(table.ids == cgroup.stat().st_ino)
    return {name: float(column[rows[0]]) for name, column in table.columns.items()} if len(rows) else {}


def _group_rows(reading: Reading) -> dict[str, tuple[float, float]]:
    table = reading.tables["host.resctrl_group"]
    columns = [table.columns[f"resctrl.group_{name}"] for name in ("llc_occupancy_bytes", "mbm_total_bytes")]
    return {
        str(name): (float(columns[0][row]), float(columns[1][row]))
        for row, name in enumerate(table.keys["resctrl_group"])
    }


@needs_fuse
def test_observing_reads_what_is_there_and_writes_nothing(
    fs: MountedResctrl, make_pod: MakePod, tmp_path: Path
) -> None:
    make_pod("pod-a")
    (fs.path / "batch").mkdir()
    (fs.path / "mon_groups" / "theirs").mkdir()
    fs.set_value("batch", "llc_occupancy", 1000, domain=0)
    fs.set_value("batch", "llc_occupancy", 24, domain=1)
    fs.set_value("mon_groups/theirs", "mbm_total_bytes", 7, domain=0)
    probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", OBSERVE)
    reading = probe.read()
    assert _group_rows(reading) == {"/": (0, 7), "batch": (1024, 0), "mon_groups/theirs": (0, 7)}
    assert "cgroup" not in reading.tables
    probe.close()
    assert sorted(path.name for path in (fs.path / "mon_groups").iterdir()) == ["theirs"]


@needs_fuse
def test_each_pod_gets_a_monitor_group_with_its_threads(fs: MountedResctrl, make_pod: MakePod, tmp_path: Path) -> None:
    pod, pid = make_pod("pod-a")
    probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
    probe.read_at(0.0)
    group = f"mon_groups/koord-{pod.stat().st_ino}"
    assert (fs.path / group / "tasks").read_text().split() == [str(pid)]
    fs.set_value(group, "llc_occupancy", 4096, domain=0)
    fs.set_value(group, "mbm_total_bytes", 1009, domain=1)
    row = _row(probe.read_at(1.0), pod)
    assert row["resctrl.llc_occupancy_bytes"] == 4096
    assert row["resctrl.mbm_total_bytes"] == 1009
    assert row["resctrl.sampled"] == 0
    probe.close()
    assert not list((fs.path / "mon_groups").iterdir())


@needs_fuse
def test_a_failed_reading_is_nan_and_never_zero(fs: MountedResctrl, make_pod: MakePod, tmp_path: Path) -> None:
    pod, _ = make_pod("pod-a")
    probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
    probe.read_at(0.0)
    group = f"mon_groups/koord-{pod.stat().st_ino}"
    fs.set_value(group, "mbm_total_bytes", 500)
    assert _row(probe.read_at(1.0), pod)["resctrl.mbm_total_bytes"] == 1000
    fs.set_unreadable(group, "mbm_total_bytes", "Unavailable", domain=0)
    fs.set_unreadable(group, "llc_occupancy", "Error", domain=1)
    failed = _row(probe.read_at(2.0), pod)
    assert np.isnan(failed["resctrl.mbm_total_bytes"])
    assert np.isnan(failed["resctrl.llc_occupancy_bytes"])
    fs.set_value(group, "mbm_total_bytes", 600, domain=0)
    assert _row(probe.read_at(3.0), pod)["resctrl.mbm_total_bytes"] == 1100
    probe.close()


@needs_fuse
def test_a_group_follows_its_pod_into_a_control_group(fs: MountedResctrl, make_pod: MakePod, tmp_path: Path) -> None:
    pod, pid = make_pod("pod-a")
    (fs.path / "batch").mkdir()
    probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
    probe.read_at(0.0)
    (fs.path / "batch" / "tasks").write_text(f"{pid}\n")
    probe.read_at(1.0)
    name = f"koord-{pod.stat().st_ino}"
    assert not (fs.path / "mon_groups" / name).exists()
    assert (fs.path / "batch/mon_groups" / name / "tasks").read_text().split() == [str(pid)]
    probe.close()
    assert (fs.path / "batch").is_dir()
    assert not (fs.path / "batch/mon_groups" / name).exists()


@needs_fuse
def test_threads_that_join_from_outside_are_caught(fs: MountedResctrl, make_pod: MakePod, tmp_path: Path) -> None:
    pod, pid = make_pod("pod-a")
    _, guest = make_pod("elsewhere")
    probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
    probe.read_at(0.0)
    (pod / "container/cgroup.threads").write_text(f"{pid}\n{guest}\n")
    probe.read_at(1.0)
    group = fs.path / "mon_groups" / f"koord-{pod.stat().st_ino}"
    assert sorted(map(int, (group / "tasks").read_text().split())) == sorted([pid, guest])
    probe.close()


@needs_fuse
def test_more_pods_than_monitor_ids_take_turns(make_pod: MakePod, tmp_path: Path) -> None:
    machine = replace(MONITOR_ONLY, monitoring=Monitoring((0,), 1 + RESERVED_MONITORS + 2))
    pods = [make_pod(f"pod-{number}")[0] for number in range(3)]
    with mounted(machine, tmp_path / "few") as fs:
        probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
        probe.read_at(0.0)
        served = {path.name for path in (fs.path / "mon_groups").iterdir()}
        assert len(served) == 2
        for name in served:
            fs.set_value(f"mon_groups/{name}", "mbm_total_bytes", 1000)
        probe.read_at(10.0)
        probe.read_at(15.0)
        reading = probe.read_at(18.0)
        after = {path.name for path in (fs.path / "mon_groups").iterdir()}
        assert len(after) == 2
        assert len(served - after) == 1
        resting = next(pod for pod in pods if f"koord-{pod.stat().st_ino}" in served - after)
        assert _row(reading, resting)["resctrl.mbm_total_bytes"] == pytest.approx(1000 + 3 * 1000 / 15)
        assert set(reading.tables["cgroup"].columns["resctrl.sampled"].tolist()) == {1.0}
        probe.close()


@needs_fuse
def test_exhaustion_by_others_is_waited_out(fs: MountedResctrl, make_pod: MakePod, tmp_path: Path) -> None:
    pod, _ = make_pod("pod-a")
    number = 0
    while True:
        try:
            (fs.path / "mon_groups" / f"theirs-{number}").mkdir()
        except OSError:
            break
        number += 1
    probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
    assert _row(probe.read_at(0.0), pod) == {}
    for freed in range(RESERVED_MONITORS + 1):
        (fs.path / "mon_groups" / f"theirs-{freed}").rmdir()
    assert _row(probe.read_at(1.0), pod)["resctrl.sampled"] == 0
    probe.close()
    assert len(list((fs.path / "mon_groups").iterdir())) == number - RESERVED_MONITORS - 1


@needs_fuse
def test_what_a_killed_run_left_is_removed_and_nothing_else(fs: MountedResctrl, tmp_path: Path) -> None:
    (tmp_path / "cgroups").mkdir()
    (fs.path / "batch").mkdir()
    for name in ("mon_groups/koord-7", "batch/mon_groups/koord-8", "mon_groups/koord-mine", "mon_groups/theirs"):
        (fs.path / name).mkdir()
    Resctrl.open_at(fs.path, tmp_path / "cgroups", OBSERVE).close()
    assert (fs.path / "mon_groups/koord-7").is_dir()
    Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
    assert sorted(path.name for path in (fs.path / "mon_groups").iterdir()) == ["koord-mine", "theirs"]
    assert not list((fs.path / "batch/mon_groups").iterdir())


@needs_fuse
def test_a_pod_that_goes_takes_its_group_along(fs: MountedResctrl, make_pod: MakePod, tmp_path: Path) -> None:
    pod, _ = make_pod("pod-a")
    probe = Resctrl.open_at(fs.path, tmp_path / "cgroups", MANAGE)
    probe.read_at(0.0)
    identity = pod.stat().st_ino
    probe.forget(np.array([identity], dtype=np.uint64))
    assert not (fs.path / "mon_groups" / f"koord-{identity}").exists()
    pod.rename(tmp_path / "gone")
    assert len(probe.read_at(1.0).tables["cgroup"]) == 0
    probe.close()


def test_hosts_without_resctrl_say_so(tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as refusal:
        Resctrl.open_at(tmp_path / "absent", tmp_path, OBSERVE)
    assert refusal.value.remedy
    (tmp_path / "info").mkdir()
    with pytest.raises(Unsupported, match="no info/L3_MON"):
        Resctrl.open_at(tmp_path, tmp_path, OBSERVE)


def test_options_default_to_observing() -> None:
    assert ResctrlOptions.of(ProbeLimits()) == OBSERVE
    assert not OBSERVE.monitor_groups
    with pytest.raises(SettingsError, match="monitor_groups"):
        ResctrlOptions.of(ProbeLimits(options={"resctrl": {"monitor_groups": "yes"}}))
