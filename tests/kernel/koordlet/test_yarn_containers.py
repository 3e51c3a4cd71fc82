"""Containers of YARN on the running kernel: they end in cost order with all processes, and their frame is limited."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from api.frame import CgroupInfo
from api.intents import Knob
from api.qos import QoSClass, QoSSource
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.host.files import HostTree
from koordlet.host.knobs.current import current
from koordlet.host.knobs.knobs import Knobs
from koordlet.strategies.plugins.yarn_containers import YarnContainers, YarnContainersSettings
from koordlet.strategies.view import Group, GroupKind, KubeQoS, NodeInfo, NodeView
from tests.cgroups import CgroupTree, TestCgroup
from tests.frames import cgroup_info
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside(together=True)]

HOST = HostTree()
MIB = 1 << 20
NODE_BYTES = 1000 * MIB
HOLDS = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); "
IDLE = f"{HOLDS} : > $1; while :; do sleep 1; done"
BUSY = f"{HOLDS} : > $1; while :; do :; done"
WITH_CHILD = f"trap '' TERM; {HOLDS} : > $1; sh -c 'while :; do sleep 1; done' & while :; do sleep 1; done"


@pytest.fixture
def frame(tree: CgroupTree) -> Iterator[TestCgroup]:
    with tree.make_cgroup("hadoop-yarn") as made:
        yield made


@pytest.fixture
def enforcer(tmp_path: Path) -> Iterator[Enforcer]:
    settings = EnforcerSettings(
        enabled=True,
        strategies=("yarn_containers",),
        evict=True,
        evict_cooldown_seconds=0.0,
        evictions_per_hour=100,
        state_dir=str(tmp_path / "state"),
        audit_file=str(tmp_path / "audit.jsonl"),
    )
    opened = open_enforcer(settings, HOST)
    yield opened
    opened.close()


def name(number: int) -> str:
    return f"container_e17_1410901177871_0001_01_{number:06d}"


def memory_bytes(cgroup: TestCgroup) -> int:
    files = (cgroup.memory_dir / "memory.current", cgroup.memory_dir / "memory.usage_in_bytes")
    return int(next(each for each in files if each.exists()).read_text())


def cpu_milliseconds(cgroup: TestCgroup) -> float:
    v1 = cgroup.dir_of("cpuacct") / "cpuacct.usage" if cgroup.unified_dir != cgroup.cpu_dir else None
    if v1 is not None and v1.exists():
        return int(v1.read_text()) / 1e6
    (usage,) = [
        line for line in (cgroup.cpu_dir / "cpu.stat").read_text().splitlines() if line.startswith("usage_usec")
    ]
    return int(usage.split()[1]) / 1e3


class Node:
    """A node whose memory is what the containers hold, beside what others do."""

    def __init__(self, frame: TestCgroup, containers: Mapping[int, TestCgroup]) -> None:
        self.frame = frame
        self.containers = containers
        self.others = 0
        self._spent = dict.fromkeys(containers, 0.0)

    def view(self) -> NodeView:
        groups = [group(self.frame, "hadoop-yarn")]
        total = 0
        for number, cgroup in self.containers.items():
            held, spent = memory_bytes(cgroup), cpu_milliseconds(cgroup)
            total += held
            used = spent - self._spent[number]
            self._spent[number] = spent
            groups.append(replace(group(cgroup, name(number)), memory_bytes=held, cpu_millicores=used))
        info = NodeInfo(cpus=(), memory_bytes=NODE_BYTES)
        return NodeView(node=info, groups=tuple(groups), memory_bytes=self.others + total, interval_seconds=1.0)

    def infos(self) -> list[CgroupInfo]:
        paths = [self.frame.path, *(each.path for each in self.containers.values())]
        return [cgroup_info(number, path, qos="BE") for number, path in enumerate(paths, 2)]


def group(cgroup: TestCgroup, called: str) -> Group:
    return Group(path=cgroup.path, kind=GroupKind.HOST_APP, name=called, qos=QoSClass.BE)


def test_containers_end_in_cost_order_and_the_master_stays(
    frame: TestCgroup, enforcer: Enforcer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        containers = {number: stack.enter_context(frame.make_cgroup(name(number))) for number in (1, 2, 3)}
        scripts = {1: IDLE, 2: BUSY, 3: WITH_CHILD}
        processes: dict[int, subprocess.Popen[bytes]] = {}
        for number, script in scripts.items():
            ready = tmp_path / str(number)
            processes[number] = containers[number].spawn(["/bin/sh", "-c", script, "sh", str(ready)])
            wait_for(ready.exists)
        node = Node(frame, containers)
        strategy = YarnContainers(YarnContainersSettings(enable=True, grace_seconds=1.0))
        strategy.decide(node.view(), 0.0)
        wait_for(lambda: cpu_milliseconds(containers[2]) > 500)
        held = {number: memory_bytes(each) for number, each in containers.items()}
        assert min(held.values()) > 25 * MIB
        # Above the lower level by a little more than the cheapest container holds.
        node.others = NODE_BYTES * 66 // 100 + held[3] + 15 * MIB - sum(held.values())
        told: list[tuple[int, Outcome]] = []
        first = strategy.decide(node.view(), 1.0)
        assert [intent.target for intent in first] == [containers[3].path, containers[2].path]
        for second in range(1, 5):
            intents = first if second == 1 else strategy.decide(node.view(), float(second))
            events = enforcer.step(intents, node.infos(), Clocks(1000.0 + second, 0.0))
            numbers = {each.path: number for number, each in containers.items()}
            told += [(numbers[event.target], event.outcome) for event in events]
            wait_for(lambda: not containers[2].pids())
        wait_for(lambda: not containers[3].pids())
        assert told[:2] == [(3, Outcome.TERMINATED), (2, Outcome.TERMINATED)]
        assert told[2:] == [(3, Outcome.KILLED)], "its processes do not hear of the first signal"
        assert containers[1].pids(), "the master of the application stays"
        assert processes[1].poll() is None


def test_a_frame_elsewhere_has_the_limits_of_best_effort_pods_until_it_need_not(
    tree: CgroupTree, frame: TestCgroup, enforcer: Enforcer
) -> None:
    with tree.make_cgroup("besteffort") as pods:
        pods.set_cpu_quota(150_000)
        knobs = Knobs(HOST)
        before = current(knobs, Knob.CPU_MAX, frame.path)

        def view() -> NodeView:
            limit = {Knob.CPU_MAX: current(knobs, Knob.CPU_MAX, pods.path)}
            directory = Group(path=pods.path, kind=GroupKind.QOS_DIR, kube_qos=KubeQoS.BEST_EFFORT, knobs=limit)
            info = NodeInfo(cpus=(), memory_bytes=NODE_BYTES)
            return NodeView(node=info, groups=(directory, group(frame, "hadoop-yarn")), memory_bytes=0)

        infos = [replace(cgroup_info(2, frame.path, qos="BE"), qos_source=QoSSource.NODE_SLO)]
        strategy = YarnContainers(YarnContainersSettings(enable=True))
        enforcer.step(strategy.decide(view(), 0.0), infos, Clocks(1000.0, 0.0))
        assert current(knobs, Knob.CPU_MAX, frame.path) == "150000 100000"
        pods.set_cpu_quota(50_000)
        enforcer.step(strategy.decide(view(), 1.0), infos, Clocks(1001.0, 0.0))
        assert current(knobs, Knob.CPU_MAX, frame.path) == "50000 100000"
        pods.set_cpu_quota(None)
        enforcer.step(strategy.decide(view(), 2.0), infos, Clocks(1002.0, 0.0))
        assert current(knobs, Knob.CPU_MAX, frame.path) == before
