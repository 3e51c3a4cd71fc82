"""The agent among 500 live cgroups, on machines of few and of many possible CPUs: memory of its maps and its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.libbpf import possible_cpus
from tests.cgroups import CgroupTree
from tests.emulation import why_no_real_time

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(900)]

MIB = 1 << 20
CGROUPS = 500
TICKS = 16
SETTLED_TICKS = 4
PERIOD_SECONDS = 5.0 if why_no_real_time() else 0.2
"""Between two wakes of a process: 2,500 a second fill an emulated CPU, and ticks would measure that."""
MAP_BYTES, RESIDENT_BYTES = 64 * MIB, 140_000_000

_SLEEPERS = """
import os, signal, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            time.sleep(float(sys.argv[2]))
print("ready", flush=True)
signal.pause()
"""
_AGENT = """
import json, os, pathlib, signal, sys, time
from koordlet.agent.loop import AgentLoop

out, ticks = pathlib.Path(sys.argv[1]), int(sys.argv[2])
spent_ms, whole = [], AgentLoop.tick

def map_bytes():
    found = {}
    for each in os.listdir("/proc/self/fd"):
        try:
            lines = pathlib.Path(f"/proc/self/fdinfo/{each}").read_text().splitlines()
        except FileNotFoundError:
            continue
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if "map_id" in fields:
            found[fields["map_id"]] = int(fields["memlock"])
    return sum(found.values())

def tick(loop):
    began = time.perf_counter()
    whole(loop)
    spent_ms.append(1e3 * (time.perf_counter() - began))
    if len(spent_ms) == ticks:
        resident = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        found = {"resident_bytes": resident, "map_bytes": map_bytes(), "ticks_ms": spent_ms}
        out.write_text(json.dumps(found))
        signal.raise_signal(signal.SIGTERM)

AgentLoop.tick = tick
from koordlet.__main__ import main
main(["run", "--standalone", "--config", sys.argv[3]])
"""
"""The agent as users run it, which writes what it takes after so many ticks and ends."""


def test_memory_of_an_agent_among_500_cgroups(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    config, out, log = tmp_path / "koordlet.toml", tmp_path / "figures.json", tmp_path / "log"
    config.write_text(f'[metrics]\nport = 0\n[detection]\nbaselines_file = "{tmp_path}/baselines.json"\n')
    sleepers = subprocess.Popen(
        [sys.executable, "-S", "-c", _SLEEPERS, str(CGROUPS), str(PERIOD_SECONDS)], stdout=subprocess.PIPE
    )
    try:
        assert sleepers.stdout
        sleepers.stdout.readline()
        children = Path(f"/proc/{sleepers.pid}/task/{sleepers.pid}/children").read_text().split()
        with CgroupTree.detect().make_cgroup("full") as top, log.open("w") as stream:
            for number, pid in enumerate(children):
                top.make_cgroup(f"c{number}").add(int(pid))
            command = [sys.executable, "-c", _AGENT, str(out), str(TICKS), str(config)]
            subprocess.run(command, stderr=stream, timeout=800, check=False)
    finally:
        sleepers.kill()
        sleepers.wait()
    assert out.exists(), log.read_text()[-2000:]
    found = json.loads(out.read_text())
    ticks_ms = sorted(found["ticks_ms"][SETTLED_TICKS:])
    record_property(
        "figure",
        f"{CGROUPS} cgroups, {possible_cpus()} possible CPUs: maps {found['map_bytes'] / MIB:.1f} MiB, "
        f"agent {found['resident_bytes'] / 1e6:.0f} MB; whole ticks {ticks_ms[len(ticks_ms) // 2]:.1f} ms median, "
        f"{ticks_ms[-1]:.1f} ms the longest of {len(ticks_ms)} {why_no_real_time()}",
    )
    assert 0 < found["map_bytes"] <= MAP_BYTES
    assert found["resident_bytes"] <= RESIDENT_BYTES
