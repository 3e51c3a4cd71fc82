"""CPU time that protocol state takes of a tick while nothing changes: `sudo python -m bench.protocol_state`.

Pods and containers are real, empty cgroups of this host; some are of the batch class, so that the runtime hooks keep
their shares, quotas and memory limits. A tick is the control step with and without them, in turns; printed is what they
add. Goal: less than 1 ms at 110 pods and 250 containers.
"""

import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from api.frame import CgroupInfo, CgroupKind
from api.protocol import BATCH_CPU, BATCH_MEMORY
from api.qos import QoSClass
from api.window import Window
from koordlet.config import AgentSettings, EnforcerSettings
from koordlet.control.control_loop import open_control_loop
from koordlet.control.runtime_hooks import open_runtime_hooks
from koordlet.host.files import HostTree
from koordlet.identity.pods import PodContainer, PodFacts, PodTable
from koordlet.nri.settings import NriSettings
from koordlet.tick import Tick
from tests.cgroups import CgroupTree, TestCgroup
from tests.frames import make_frame

_AMOUNTS = {BATCH_CPU: 1500, BATCH_MEMORY: 1 << 30}


class _Node:
    """Pods in cgroups, as the walk and the kubelet would tell of them."""

    def __init__(self, top: TestCgroup, pods: int, containers: int, batch_percent: int) -> None:
        self.cgroups: list[CgroupInfo] = []
        found = []
        for number in range(pods):
            uid = f"{number:08x}-0000-4000-8000-000000000000"
            is_batch = number * 100 < pods * batch_percent
            pod = top.make_cgroup(f"pod{uid}")
            qos = QoSClass.BE if is_batch else QoSClass.LS
            self._add(pod, CgroupKind.POD, uid, qos)
            own = []
            for each in range(number, containers, pods):
                container_id = f"{each:064x}"
                self._add(pod.make_cgroup(container_id), CgroupKind.CONTAINER, uid, qos, container_id)
                amounts = _AMOUNTS if is_batch else {}
                own.append(PodContainer(f"c{each}", container_id, requests=amounts, limits=amounts))
            kube_qos = "BestEffort" if is_batch else "Burstable"
            found.append(
                PodFacts(
                    f"shop/{number}",
                    qos,
                    uid=uid,
                    cgroup_uid=uid,
                    kube_qos=kube_qos,
                    containers=tuple(own),
                    cgroup_path=pod.path,
                )
            )
        self.table = PodTable(found, generation=1)

    def _add(self, cgroup: TestCgroup, kind: CgroupKind, uid: str, qos: QoSClass, container_id: str = "") -> None:
        self.cgroups.append(
            CgroupInfo(
                len(self.cgroups) + 1, cgroup.path, cgroup.path, qos, kind=kind, pod_uid=uid, container_id=container_id
            )
        )

    def tick(self, seconds: float) -> Tick:
        """Return a tick at that second, without any load."""
        paths = {info.id: info.path for info in self.cgroups}
        columns = {"cpustat.usage_ns": [0] * len(paths)}
        frames = [make_frame(at, paths, columns) for at in (seconds - 1, seconds)]
        return Tick.of(Window([replace(frame, cgroups=tuple(self.cgroups)) for frame in frames]))


@click.command()
@click.option("--pods", default=110, show_default=True)
@click.option("--containers", default=250, show_default=True)
@click.option("--batch", default=40, show_default=True, help="Percent of the pods that are of the batch class.")
@click.option("--born", is_flag=True, help="The values are there before the agent, as after a start through NRI.")
@click.option("--ticks", default=120, show_default=True)
def main(pods: int, containers: int, batch: int, *, born: bool, ticks: int) -> None:
    """Measure what protocol state adds to the control step."""
    with ExitStack() as stack:
        top = stack.enter_context(CgroupTree.detect().make_cgroup("kubepods"))
        node = _Node(top, pods, containers, batch)
        state_dir = stack.enter_context(tempfile.TemporaryDirectory())
        settings = AgentSettings(
            enforcer=EnforcerSettings(
                enabled=True,
                strategies=("*",),
                state_dir=f"{state_dir}/state",
                guardian=False,
                pod_changes_per_minute=1000,
            ),
            nri=NriSettings(enabled="off"),
        )
        bare_settings = AgentSettings(
            enforcer=EnforcerSettings(enabled=True, strategies=("*",), state_dir=f"{state_dir}/bare", guardian=False)
        )
        tree = HostTree(Path("/"))
        if born:
            earlier = open_control_loop(settings, tree)
            open_runtime_hooks(settings, tree, earlier, lambda: node.table, in_cluster=True)
            earlier.step(node.tick(1000.0))
            earlier.close()
            Path(f"{state_dir}/state/journal").unlink()
        bare = open_control_loop(bare_settings, tree)
        stack.callback(bare.close)
        control = open_control_loop(settings, tree)
        stack.callback(control.close)
        hooks = open_runtime_hooks(settings, tree, control, lambda: node.table, in_cluster=True)
        stack.callback(hooks.close)
        times: dict[str, list[float]] = {"without": [], "with": []}
        for number in range(ticks + 20):
            tick = node.tick(1000.0 + number)
            for name, loop in (("without", bare), ("with", control)):
                started = time.thread_time()
                loop.step(tick)
                times[name].append((time.thread_time() - started) * 1e3)
        held = len(control.enforcer.held_protocol_state())
        stack.callback(control.enforcer.restore_everything)
    found = {name: each[20:] for name, each in times.items()}
    added = [with_ - without for with_, without in zip(found["with"], found["without"], strict=True)]
    print(f"{pods} pods, {containers} containers, {held} settings in effect, {ticks} ticks")
    for name, each in (*found.items(), ("added", added)):
        each = sorted(each)
        print(
            f"{name:8} mean {statistics.mean(each):6.2f}   p50 {each[len(each) // 2]:6.2f}   "
            f"p99 {each[len(each) * 99 // 100]:6.2f} ms a tick"
        )


if __name__ == "__main__":
    main()
