"""Cgroups that come and go all the time: no key, descriptor or byte stays behind, and nothing runs backwards."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from api.frame import CGROUP
from koordlet.agent import Agent, resident_bytes
from koordlet.config import AgentSettings
from probes.cpu import Cpu
from probes.probe import Kernel
from tests.cgroups import CgroupTree

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = float(os.environ.get("CHURN_SECONDS", "60"))
PER_SECOND = 200


def churn(directory: Path, stop: threading.Event, made: list[int]) -> None:
    """Make a cgroup, run a process in it, remove it, `PER_SECOND` times a second."""
    number, due = 0, time.monotonic()
    while not stop.is_set():
        path = directory / f"churn-{number}"
        path.mkdir()
        pid = os.fork()
        if pid == 0:
            try:
                (path / "cgroup.procs").write_text("0")
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        deadline = time.monotonic() + 5
        while True:
            try:
                path.rmdir()
                break
            except OSError:  # the last process is still on its way out
                assert time.monotonic() < deadline
                time.sleep(0.0005)
        number += 1
        made.append(number)
        due += 1 / PER_SECOND
        time.sleep(max(0.0, due - time.monotonic()))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_leaks(kernel: Kernel, tree: CgroupTree) -> None:
    agent = Agent(AgentSettings())
    stop, made = threading.Event(), list[int]()
    with tree.make_cgroup("churned") as parent:
        worker = threading.Thread(target=churn, args=(parent.cpu_dir, stop, made))
        try:
            for _ in range(5):
                agent.tick()
            before = descriptors()
            worker.start()
            warm = 0
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                agent.tick()
                window = agent.store.window()
                assert window is not None
                delta = window.delta()
                for name, column in delta.table.columns.items():
                    if column.dtype.kind in "ui":
                        assert column.size == 0 or int(column.max()) < 1 << 62, f"{name} ran backwards"
                if not warm and time.monotonic() > deadline - SECONDS / 2:
                    warm = resident_bytes()
                time.sleep(0.25)
            stop.set()
            worker.join()
            for _ in range(4):
                agent.tick(everything=True)
                time.sleep(0.3)
            living = set(agent.tick(everything=True).cgroup.ids.tolist())
            assert len(made) > 0.5 * SECONDS * PER_SECOND
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
            stop.set()
            if worker.is_alive():
                worker.join()
            agent.close()
