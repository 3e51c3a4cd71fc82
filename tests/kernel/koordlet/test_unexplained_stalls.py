"""Stalls on a file system without a disk, which no probe sees, are told while they last."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from api.frame import CgroupInfo, Frame, merge
from api.window import Window
from bench.detect.disk import hung, served_file
from detector.symptoms.unexplained_io import UnexplainedIo
from detector.view import View
from koordlet.collectors import Host, Round
from koordlet.collectors.pressure import Pressure
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from probes.blockio import BlockIo
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel]

# Reads pages that are not in the page cache, fifty a second.
READER = """
import os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # in one piece: a part of a large folio stays
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
print("ready", flush=True)
while True:
    offset = random.randrange(size // 4096) * 4096
    os.posix_fadvise(fd, offset, 4096, os.POSIX_FADV_DONTNEED)
    os.pread(fd, 4096, offset)
    time.sleep(0.02)
"""
HARM = 0.8


class Watch:
    """What the collector and the probe say of one cgroup, and what the symptom makes of it."""

    def __init__(self, cgroup: TestCgroup, collector: Pressure, probe: BlockIo) -> None:
        self.info = CgroupInfo(cgroup.cgroup_id, cgroup.path, "victim")
        self._collector, self._probe = collector, probe
        self._before = self._frame()

    def _frame(self) -> Frame:
        now, cgroups = time.monotonic_ns(), (self.info,)
        readings = [self._collector.collect(Round(cgroups, cgroups, now)), self._probe.read()]
        tables, _ = merge(np.array([self.info.id], dtype=np.uint64), readings)
        return Frame(now, time.time_ns(), cgroups, tables)

    def second(self) -> float:
        """Seconds that are unexplained of the next second."""
        time.sleep(1.0)
        before, self._before = self._before, self._frame()
        signal = UnexplainedIo().sense(View(Window([before, self._before]), UnexplainedIo.columns))
        assert signal is not None
        return float(signal.lost[0])


@contextmanager
def watched(tree: CgroupTree, file: Path) -> Iterator[Watch]:
    """A reader of the file in a cgroup."""
    host = HostTree(Path("/"))
    collector, probe = Pressure.open(Host(host, find_hierarchies(host))), BlockIo.open(Kernel(), ProbeLimits())
    try:
        with tree.make_cgroup("unexplained") as cgroup:
            reader = cgroup.spawn([sys.executable, "-S", "-c", READER, str(file)], stdout=subprocess.PIPE)
            try:
                assert reader.stdout is not None
                assert reader.stdout.readline() == b"ready\n"
                yield Watch(cgroup, collector, probe)
            finally:
                reader.kill()
                reader.wait()
    finally:
        probe.close()
        collector.close()


@pytest.fixture(autouse=True)
def needs_pressure(tree: CgroupTree, kernel: Kernel) -> None:
    assert kernel.btf
    with tree.make_cgroup("pressure") as cgroup:
        if cgroup.unified_dir is None or not (cgroup.unified_dir / "io.pressure").exists():
            pytest.skip("no pressure stall information of cgroups: a v1 tree without a v2 tree beside it")
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse")


def test_a_file_system_that_hangs_is_unexplained(tree: CgroupTree, tmp_path: Path) -> None:
    with served_file(tmp_path, "0") as (file, server), watched(tree, file) as watch:
        with hung(server):
            wait_for(lambda: watch.second() >= HARM, 30)
            wait_for(lambda: watch.second() >= HARM, 5)
        wait_for(lambda: watch.second() < HARM, 30)
