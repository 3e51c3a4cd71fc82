"""Cgroups that come and go all the time: no key, descriptor or byte stays behind, and nothing runs backwards."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from api.frame import CGROUP
from koordlet.agent.agent import Agent, resident_bytes
from koordlet.config import AgentSettings
from probes.cpu import Cpu
from probes.probe import Kernel
from tests.cgroups import CgroupTree

pytestmark = [pytest.mark.kernel, pytest.mark.beside, pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = float(os.environ.get("CHURN_SECONDS", "60"))
PER_SECOND = 200
ENOUGH = 0.2 * SECONDS * PER_SECOND
"""Cgroups that must have come and gone; an emulated machine makes fewer than asked and gets more time for them."""


_CHURN = """
import os, sys, time
directory, per_second = sys.argv[1], float(sys.argv[2])
number, due = 0, time.monotonic()
while True:
    path = f"{directory}/churn-{number}"
    os.mkdir(path)
    pid = os.fork()
    if pid == 0:
        with open(f"{path}/cgroup.procs", "w") as procs:
            procs.write("0")
        os._exit(0)
    os.waitpid(pid, 0)
    while True:
        try:
            os.rmdir(path)
            break
        except OSError:  # the last process is still on its way out
            time.sleep(0.0002)
    number += 1
    os.write(1, b".")
    due += 1 / per_second
    time.sleep(max(0.0, due - time.monotonic()))
"""
"""Script that makes a cgroup, runs a process in it and removes it, at a given rate; prints a dot for each."""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def remove_leftovers(directory: Path) -> None:
    """The worker may have been killed between fork and wait: its last child is still on its way out."""
    for leftover in directory.glob("churn-*"):
        deadline = time.monotonic() + 5
        while leftover.exists():
            try:
                leftover.rmdir()
            except OSError:
                assert time.monotonic() < deadline, f"{leftover} stays busy"
                time.sleep(0.01)


def test_nothing_leaks(kernel: Kernel, tree: CgroupTree) -> None:
    agent = Agent(AgentSettings())
    with tree.make_cgroup("churned") as parent, tempfile.TemporaryFile() as dots:
        worker: subprocess.Popen[bytes] | None = None
        try:
            for _ in range(5):  # all files are open then, those that are read in turn too
                agent.collect(everything=True)
            before = descriptors()
            command = [sys.executable, "-S", "-E", "-c", _CHURN, str(parent.cpu_dir), str(PER_SECOND)]
            worker = subprocess.Popen(command, stdout=dots)
            warm = 0
            began = time.monotonic()
            while (passed := time.monotonic() - began) < SECONDS or (
                passed < 4 * SECONDS and os.fstat(dots.fileno()).st_size <= ENOUGH
            ):
                agent.collect()
                window = agent.store.window()
                assert window is not None
                delta = window.delta()
                for name, column in delta.table.columns.items():
                    if column.dtype.kind in "ui":
                        assert column.size == 0 or int(column.max()) < 1 << 62, f"{name} ran backwards"
                if not warm and passed > SECONDS / 2:
                    warm = resident_bytes()
                time.sleep(0.25)
            worker.kill()
            worker.wait()
            remove_leftovers(parent.cpu_dir)
            made = os.fstat(dots.fileno()).st_size
            print(f"{made / (time.monotonic() - began):.0f} cgroups a second")
            for _ in range(4):
                agent.collect(everything=True)
                time.sleep(0.3)
            living = set(agent.collect(everything=True).cgroup.ids.tolist())
            assert made > ENOUGH
            cpu = agent.probes.opened["cpu"]
            assert isinstance(cpu, Cpu)
            reading = cpu.read()
            kept = set(reading.tables[CGROUP].ids.tolist())
            assert kept <= living
            assert set(reading.tables["cpu.blame"].ids.tolist()) <= living
            assert descriptors() - before <= 8
            assert resident_bytes() - warm < 20e6
            assert len(np.unique(reading.tables[CGROUP].ids)) == len(kept)
        finally:
            if worker is not None and worker.poll() is None:
                worker.kill()
                worker.wait()
            agent.close()


def test_a_cgroup_that_took_anothers_place_is_named_in_the_same_tick(kernel: Kernel, tree: CgroupTree) -> None:
    """The directory's link count is as it was, so only the probes' reports show it."""
    agent = Agent(AgentSettings())
    try:
        with tree.make_cgroup("places") as parent:
            agent.collect()
            for number in range(8):
                with parent.make_cgroup(f"job-{number}") as job:
                    job.spawn(["sleep", "0"]).wait()
                    assert job.path in {info.path for info in agent.collect().cgroups}
    finally:
        agent.close()
