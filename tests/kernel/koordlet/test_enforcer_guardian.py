"""Real agents, guardians and cgroups: death, hang and planned end, each at moments that the agent does not choose."""

import contextlib
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from koordlet.config import EnforcerSettings
from koordlet.enforcer.journal_format import Kind, decode
from koordlet.enforcer.lifecycle import open_enforcer, restore
from koordlet.host.files import HostTree
from tests.cgroups import CgroupTree, TestCgroup
from tests.emulation import why_no_real_time
from tests.koordlet.enforcer.hosts import want
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside]

HOST = HostTree()
ROOT = Path(__file__).parents[3]
DEATHS = 5 if why_no_real_time() else 20
PAUSE_SECONDS = 10.0 if why_no_real_time() else 2.0
"""Time without a completed step that counts as a hang: an emulated CPU takes more than two seconds for one."""

AGENT = """
import json, os, sys, time, signal
from api.intents import Knob, Setting
from koordlet.config import EnforcerSettings
from koordlet.enforcer.guardian.guardian import Guardian
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.host.files import HostTree
import msgspec

def one(path, knob, value, **more):
    return Setting(strategy="calm", target=path, knob=knob, value=value, reason="because", **more)

def run(given, path, handover):
    settings = msgspec.convert(given, EnforcerSettings)
    enforcer = open_enforcer(settings, HostTree())
    guardian = Guardian(settings, HostTree())
    stops = []
    signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
    print(os.getpid(), guardian.pid, flush=True)
    number = 0
    while not stops:
        number += 1
        weight = one(path, Knob.CPU_WEIGHT, "50", protocol_state=True)
        enforcer.step([weight, one(path, Knob.CPU_MAX, f"{20 + number % 50}000 100000")])
        guardian.beat()
        time.sleep(0.002)
    enforcer.close(handover_seconds=handover)
    if enforcer.handed_over_until is None:
        guardian.close()
    else:
        guardian.hand_over(enforcer.handed_over_until)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        run(*json.loads(line))
        os._exit(0)
"""
"""Forks an agent for each line: an emulated CPU takes ten seconds for what they import."""


class Agents:
    """Where agents come from: a process that has imported all of one."""

    def __init__(self, within: TestCgroup | None = None) -> None:
        command, environment = [sys.executable, "-c", AGENT], {**os.environ, "PYTHONPATH": str(ROOT)}
        spawn = within.spawn if within is not None else subprocess.Popen
        self.process = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def start(self, settings: EnforcerSettings, pod: TestCgroup, handover: float) -> tuple[int, int]:
        """Return the processes of a new agent and of its guardian."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode([settings, pod.path, handover]) + b"\n")
        self.process.stdin.flush()
        agent, guardian = self.process.stdout.readline().split()
        return int(agent), int(guardian)

    def close(self) -> None:
        """End; agents that still run are left."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    made = Agents()
    yield made
    made.close()


class Agent:
    def __init__(self, agents: Agents, settings: EnforcerSettings, pod: TestCgroup, handover: float = 0.0) -> None:
        self.pid, self.guardian = agents.start(settings, pod, handover)
        wait_for(lambda: catches(self.guardian, signal.SIGTERM))

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def wait(self) -> None:
        wait_for(lambda: is_gone(self.pid))

    def end(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                self.kill(number)
        self.wait()


@pytest.fixture
def pod(tree: CgroupTree) -> Iterator[TestCgroup]:
    with tree.make_cgroup("guarded") as made:
        yield made


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[EnforcerSettings]:
    made = EnforcerSettings(
        enabled=True,
        strategies=("*",),
        changes_per_minute=1_000_000,
        pod_changes_per_minute=1_000_000,
        guardian_seconds=PAUSE_SECONDS,
        state_dir=str(tmp_path / "state"),
        audit_file=str(tmp_path / "audit.jsonl"),
    )
    yield made
    wait_for(lambda: restore(made, HOST, everything=True) is not None)


def quota(pod: TestCgroup) -> str:
    name = "cpu.max" if (pod.cpu_dir / "cpu.max").exists() else "cpu.cfs_quota_us"
    return (pod.cpu_dir / name).read_text().split()[0].replace("-1", "max")


def weight(pod: TestCgroup) -> str:
    name = "cpu.weight" if (pod.cpu_dir / "cpu.weight").exists() else "cpu.shares"
    return (pod.cpu_dir / name).read_text().strip()


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter between open and read
        return True


def catches(pid: int, number: int) -> bool:
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught.group(1), 16) >> (number - 1) & 1)


@pytest.mark.slow
def test_killed_at_any_moment_actions_end_and_protocol_state_stays(
    agents: Agents, pod: TestCgroup, settings: EnforcerSettings
) -> None:
    chance, taken = random.Random(2026), []
    before = weight(pod)
    for _ in range(DEATHS):
        agent = Agent(agents, settings, pod)
        try:
            wait_for(lambda: quota(pod) != "max")
            time.sleep(chance.uniform(0.0, 0.1))
            agent.kill()
            killed = time.monotonic()
            wait_for(lambda: quota(pod) == "max")
            taken.append(time.monotonic() - killed)
            assert weight(pod) != before
            wait_for(lambda agent=agent: is_gone(agent.guardian))  # type: ignore[misc]
            live = decode((Path(settings.state_dir) / "journal").read_bytes()).live
            assert {entry.kind for entry in live.values()} == {Kind.PROTOCOL}
        finally:
            agent.end()
    restore(settings, HOST, everything=True)
    assert weight(pod) == before
    print(f"{DEATHS} deaths: restored after {statistics.median(taken):.2f} s (median), {max(taken):.2f} s at most")


def test_what_ends_the_agents_cgroup_leaves_the_guardian(
    pod: TestCgroup, settings: EnforcerSettings, tree: CgroupTree
) -> None:
    """As a runtime ends a container, and the kernel one that runs out of memory."""
    with tree.make_cgroup("container") as container:
        within = Agents(container)
        agent = Agent(within, settings, pod)
        try:
            wait_for(lambda: quota(pod) != "max")
            status = Path(f"/proc/{agent.guardian}/status").read_text()
            cgroups = Path(f"/proc/{agent.guardian}/cgroup").read_text()
            assert "/koord-guardian" in cgroups
            assert container.path not in cgroups
            assert agent.guardian not in container.pids()
            assert re.search(r"VmLck:\s*0 kB", status) is None
            print(*re.findall(r"(VmRSS|VmLck):\s*(\d+) kB", status))
            for pid in container.pids():
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: quota(pod) == "max")
            wait_for(lambda: is_gone(agent.guardian))
        finally:
            agent.end()
            within.close()


def test_a_hang_ends_actions_and_the_agent_goes_on_from_there(
    agents: Agents, pod: TestCgroup, settings: EnforcerSettings
) -> None:
    agent = Agent(agents, settings, pod)
    try:
        wait_for(lambda: quota(pod) != "max")
        agent.kill(signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for(lambda: quota(pod) == "max")
        print(f"restored {time.monotonic() - stopped:.2f} s after a stop, with {PAUSE_SECONDS} s allowed")
        agent.kill(signal.SIGCONT)
        wait_for(lambda: quota(pod) != "max")
        agent.kill(signal.SIGTERM)
        agent.wait()
        assert quota(pod) == "max"
        wait_for(lambda: is_gone(agent.guardian))
    finally:
        agent.end()


def test_a_planned_end_leaves_actions_to_the_successor(
    agents: Agents, pod: TestCgroup, settings: EnforcerSettings
) -> None:
    agent = Agent(agents, settings, pod, handover=60.0)
    try:
        wait_for(lambda: quota(pod) != "max")
        agent.kill(signal.SIGTERM)
        agent.wait()
        left = quota(pod)
        assert left != "max"
        successor = open_enforcer(settings, HOST)
        assert quota(pod) == left
        from api.intents import Knob

        successor.step([want(Knob.CPU_MAX, f"{left} 100000", pod.path)])
        assert quota(pod) == left
        successor.step([])
        assert quota(pod) == "max"
        successor.close()
        os.kill(agent.guardian, signal.SIGTERM)
        wait_for(lambda: is_gone(agent.guardian))
    finally:
        agent.end()


def test_without_a_successor_the_guardian_restores_at_the_deadline(
    agents: Agents, pod: TestCgroup, settings: EnforcerSettings
) -> None:
    agent = Agent(agents, settings, pod, handover=2.0)
    try:
        wait_for(lambda: quota(pod) != "max")
        agent.kill(signal.SIGTERM)
        agent.wait()
        assert quota(pod) != "max"
        wait_for(lambda: quota(pod) == "max")
        wait_for(lambda: is_gone(agent.guardian))
    finally:
        agent.end()


def test_a_service_that_is_ended_as_a_whole_waits_for_no_successor(
    agents: Agents, pod: TestCgroup, settings: EnforcerSettings
) -> None:
    agent = Agent(agents, settings, pod, handover=3600.0)
    try:
        wait_for(lambda: quota(pod) != "max")
        os.kill(agent.guardian, signal.SIGTERM)
        agent.kill(signal.SIGTERM)
        wait_for(lambda: quota(pod) == "max")
        wait_for(lambda: is_gone(agent.guardian))
    finally:
        agent.end()


def test_a_guardian_that_is_killed_is_started_again(settings: EnforcerSettings) -> None:
    from koordlet.enforcer.guardian import guardian as room

    made = room.Guardian(settings, HOST)
    first = made.pid
    assert first is not None
    try:
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: is_gone(first))
        made._started_at = float("-inf")
        made.beat()
        assert made.starts == 2
        assert made.pid not in (None, first)
    finally:
        made.close()
