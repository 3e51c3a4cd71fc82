"""A real service beside a hog: the slowdown that the agent reports is the one that its client measures."""

import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from api.frame import CGROUP, CgroupInfo, Frame, Table, merge
from api.plugin import Unsupported
from detector.baselines.values import BaselinePolicy
from detector.judging.judge import Judge, JudgeSettings
from koordlet.control.slowdown import Slowdown, SlowdownMeter
from probes.probe import Kernel, ProbeLimits
from probes.turnaround import Turnaround
from tests.cgroups import CgroupTree, TestCgroup
from tests.noisy import noisy

pytestmark = pytest.mark.kernel

CPU = "0"
WORK_SECONDS = 0.005
EVERY_SECONDS = 0.04
"""25 a second: a hogged service that answers fewer is compared with the octave above, down to 8."""
TICK_SECONDS = 0.25
BATCH_SECONDS = 1.0
HEAVY = {"v1": ("cpu.shares", "8192"), "v2": ("cpu.weight", "800")}
"""Eight times the weight of the service."""
HEAVIEST = {"v1": ("cpu.shares", "262144"), "v2": ("cpu.weight", "10000")}
"""For both together, beside the machine's other work: the baseline is learned from what the CPU has left for them."""

# Answers each line after `work` seconds of its own CPU time; prints its port.
SERVER = """
import socket, sys, time
work = float(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
conn = listener.accept()[0]
conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in conn.makefile("rb"):
    until = time.thread_time() + work
    while time.thread_time() < until:
        pass
    conn.send(b"answer\\n")
"""
BUSY = ["sh", "-c", "while :; do :; done"]


class Node:
    """The agent's chain for one service: probe, frames, judge, meter."""

    def __init__(self, probe: Turnaround, service: TestCgroup, port: int) -> None:
        self._probe = probe
        self._info = CgroupInfo(service.cgroup_id, service.path, "service", "LS", workload="service")
        policy = BaselinePolicy(warm_samples=20, warm_periods=1)
        self._judge = Judge(JudgeSettings(span_seconds=TICK_SECONDS * 0.8, baselines=policy))
        self._client = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._client.makefile("rb")

    def serve(self, seconds: float) -> tuple[Slowdown, list[float]]:
        """Send requests at fixed times and tick meanwhile; return the meter's slowdown and the client's latencies."""
        meter, took = SlowdownMeter(BATCH_SECONDS), []
        began = due = ticked = time.monotonic()
        while due < began + seconds:
            time.sleep(max(due - time.monotonic(), 0))
            sent = time.monotonic()
            self._client.sendall(b"question\n")
            assert self._answers.readline() == b"answer\n"
            took.append(time.monotonic() - sent)
            due = max(due + EVERY_SECONDS, time.monotonic())
            if time.monotonic() - ticked >= TICK_SECONDS:
                self._judge.step(self._frame())
                seen = self._judge.turnarounds
                if seen is not None:
                    meter.add(seen, time.monotonic() - ticked)
                ticked = time.monotonic()
        return meter.slowdown(np.array([self._info.id], dtype=np.uint64)), took

    def _frame(self) -> Frame:
        ids = np.array([self._info.id], dtype=np.uint64)
        tables, lost = merge(ids, [self._probe.read()])
        tables.setdefault(CGROUP, Table({"cgroup": ids}, {}))
        return Frame(time.monotonic_ns(), time.time_ns(), (self._info,), tables, lost)

    def close(self) -> None:
        self._answers.close()
        self._client.close()


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def set_weight(cgroup: TestCgroup, weights: Mapping[str, tuple[str, str]]) -> None:
    file, weight = weights[cgroup.tree.version]
    (cgroup.cpu_dir / file).write_text(weight)


@noisy("other work on a shared CPU makes the quiet phase as slow as the hogged one")
def test_what_is_said_of_a_hogged_service_is_what_its_client_sees(kernel: Kernel, tree: CgroupTree) -> None:
    try:
        probe = Turnaround.open(kernel, ProbeLimits())
    except Unsupported as reason:
        pytest.xfail(f"no requests are seen here: {reason.reason}")
    with tree.make_cgroup("stage") as stage, stage.make_cgroup("service") as service, stage.make_cgroup("hog") as hog:
        set_weight(stage, HEAVIEST)
        server = service.spawn([sys.executable, "-c", SERVER, str(WORK_SECONDS)], CPU, stdout=subprocess.PIPE)
        assert server.stdout
        node = Node(probe, service, int(server.stdout.readline()))
        try:
            _, quiet_took = node.serve(12.0)
            quiet, more = node.serve(6.0)
            set_weight(hog, HEAVY)
            hog.spawn(BUSY, CPU)
            hogged, hogged_took = node.serve(10.0)
        finally:
            node.close()
            probe.close()
    usual, seen = mean(quiet_took + more), mean(hogged_took) / mean(quiet_took + more) - 1
    told = f"quiet {quiet.ratio[0]:.2f} ({quiet.low[0]:.2f}..{quiet.high[0]:.2f}), hogged {hogged.ratio[0]:.2f}"
    told += f" ({hogged.low[0]:.2f}..{hogged.high[0]:.2f}); the client saw {usual * 1e3:.1f} ms, then {seen:.2f} more"
    print(told)
    assert seen > 0.2, f"the hog did no harm, which proves nothing: {told}"
    assert quiet.low[0] <= 0.1, told
    assert hogged.low[0] > quiet.ratio[0], told
    assert 0.7 * (1 + seen) <= 1 + hogged.ratio[0] <= 1.4 * (1 + seen), told
