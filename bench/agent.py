"""Cost of the agent on a full node: CPU, resident memory and time of a tick with 500 live cgroups at 1 Hz.

    sudo .venv/bin/python -m bench.agent [--cgroups 500] [--seconds 45] [--json]

Every cgroup holds a process that wakes ten times a second. The agent runs as users run it, with all probes that this
host supports and its metrics endpoint scraped every fifteen seconds. Goals: at most 3 % of one core, 120 MB resident,
10 ms a tick.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import click

from tests.cgroups import CgroupTree, TestCgroup

_SLEEPER = """
import os, signal, sys, time
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            time.sleep(0.1)
    time.sleep(0.0005)
print("ready", flush=True)
signal.pause()
"""
_PORT = 19316


def children_of(pid: int) -> list[int]:
    """Pids of the direct children."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def metrics() -> dict[str, float]:
    """Scrape once: series to value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def observe(pid: int, seconds: int) -> dict[str, float]:
    """Measure the agent for a number of seconds."""
    ticks_ms, series = [], 0
    used, started = cpu_seconds(pid), time.monotonic()
    for second in range(seconds):
        time.sleep(1)
        if second % 15 == 14:
            scraped = metrics()
            ticks_ms.append(scraped["koord_agent_tick_seconds"] * 1000)
            series = len(scraped)
    elapsed = time.monotonic() - started
    return {
        "cpu_percent_of_one_core": (cpu_seconds(pid) - used) / elapsed * 100,
        "resident_mb": resident_bytes(pid) / 1e6,
        "tick_ms_median": statistics.median(ticks_ms),
        "tick_ms_worst": max(ticks_ms),
        "series": series,
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


def foreign_modules(pid: int) -> list[str]:
    """Heavy libraries a standalone agent must not load, found in its memory map."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return [name for name in ("sklearn", "pyarrow", "kubernetes", "scipy", "matplotlib") if f"/{name}/" in maps]


@click.command()
@click.option("--cgroups", type=click.IntRange(1, 5000), default=500, show_default=True)
@click.option("--seconds", type=click.IntRange(15, 3600), default=45, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(cgroups: int, seconds: int, as_json: bool) -> None:
    """Measure the agent's own cost on a node full of live cgroups."""
    tree = CgroupTree.detect()
    sleepers = subprocess.Popen([sys.executable, "-S", "-c", _SLEEPER, str(cgroups)], stdout=subprocess.PIPE)
    assert sleepers.stdout is not None
    sleepers.stdout.readline()
    top: TestCgroup = tree.make_cgroup("bench")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, pid in enumerate(children_of(sleepers.pid)):
                top.make_cgroup(f"c{number}").add(pid)
            config = Path(folder, "koordlet.toml")
            config.write_text(
                f'[metrics]\nport = {_PORT}\n[enforcer]\nstate_dir = "{folder}"\naudit_file = ""\n'
                f'[detection]\nbaselines_file = "{folder}/baselines.json"\n'
            )
            agent = subprocess.Popen(
                [sys.executable, "-m", "koordlet", "run", "--standalone", "--config", str(config)],
                stderr=subprocess.DEVNULL,
            )
            try:
                time.sleep(15)
                figures: dict[str, object] = dict(observe(agent.pid, seconds))
                figures["foreign_modules"] = foreign_modules(agent.pid)
            finally:
                agent.send_signal(signal.SIGINT)
                try:
                    agent.wait(timeout=30)
                finally:  # one that still starts does not hear it
                    agent.kill()
    finally:
        for pid in children_of(sleepers.pid):
            os.kill(pid, signal.SIGKILL)
        sleepers.kill()
        sleepers.wait()
        top.remove()
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<26} {value:.2f}" if isinstance(value, float) else f"{name:<26} {value}")


if __name__ == "__main__":
    main()
