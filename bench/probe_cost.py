"""Cost of one probe's programs per event, by the kernel's BPF statistics: `python -m bench.probe_cost NAME`.

Two processes pass a byte back and forth on one CPU, once in cgroups of their own and once in the same, so that every
switch is a switch between (or within) cgroups; and once more while the probe's focus is on another one. Needs root.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

import probes
from api.plugin import Unsupported, discover
from probes.libbpf import enable_stats
from probes.probe import Kernel, Probe, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup

ROUNDS = 30_000
OPTIONS: dict[str, dict[str, bool | int | float | str]] = {"pmu": {"stand_in": True}, "smt": {"siblings": "0-1"}}
_PLAYER = """
import os, sys
for _ in range(int(sys.argv[1])):
    os.read(0, 1)
    os.write(1, b"x")
"""


def ping_pong(first: TestCgroup, second: TestCgroup, rounds: int = ROUNDS) -> None:
    """Pass a byte back and forth `rounds` times between a process of each cgroup, both on CPU 0."""
    there, back = os.pipe(), os.pipe()
    player = [sys.executable, "-S", "-E", "-c", _PLAYER, str(rounds)]
    players: list[subprocess.Popen[bytes]] = [
        first.spawn(player, cpus="0", stdin=back[0], stdout=there[1], stderr=subprocess.DEVNULL),
        second.spawn(player, cpus="0", stdin=there[0], stdout=back[1], stderr=subprocess.DEVNULL),
    ]
    os.write(there[1], b"x")
    for fd in (*there, *back):
        os.close(fd)
    for process in players:
        process.wait()


def measure(probe: Probe, first: TestCgroup, second: TestCgroup) -> None:
    """Print runs and ns per run of each program during one ping-pong."""
    before = {stats.name: stats for stats in probe.stats()}
    ping_pong(first, second)
    for stats in probe.stats():
        runs = stats.run_count - before[stats.name].run_count
        if runs:
            print(
                f"  {stats.name:24} {runs:9} runs {(stats.run_time_ns - before[stats.name].run_time_ns) / runs:8.1f} ns"
            )


def main(arguments: Sequence[str]) -> int:
    """Measure each named probe."""
    known = discover(probes, Probe)  # type: ignore[type-abstract]
    limits = ProbeLimits(options=OPTIONS)
    keep_statistics_on = enable_stats()
    tree = CgroupTree.detect()
    for name in arguments:
        try:
            probe = known[name].open(Kernel(), limits)
        except Unsupported as refusal:
            print(f"{name}: unsupported: {refusal.reason}")
            return 3
        with tree.make_cgroup("ping") as ping, tree.make_cgroup("pong") as pong:
            print(f"{name}, between cgroups:")
            measure(probe, ping, pong)
            print(f"{name}, inside a cgroup:")
            measure(probe, ping, ping)
            if probe.focusable:
                probe.focus(np.array([1], dtype=np.uint64))
                print(f"{name}, between cgroups outside the focus:")
                measure(probe, ping, pong)
        probe.close()
    os.close(keep_statistics_on)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
