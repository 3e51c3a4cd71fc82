"""Cost of the agent on a full node: CPU, resident memory, time of a tick and time at a stretch on a CPU.

    sudo .venv/bin/python -m bench.agent [--cgroups 500] [--seconds 45] [--repeat 3] [--json]
    sudo .venv/bin/python -m bench.agent --arm observing --churn 2 --seconds 600

Every cgroup holds a process that wakes ten times a second. The agent runs as users run it, with all probes that this
host supports and its metrics endpoint scraped every fifteen seconds: observing, and acting with strategies on for
cgroups of which half are latency-sensitive and half best-effort. Beside it, in turn, an empty agent: a process that has
imported the same modules and wakes once a second. Goals: at most 2 % of one core, 110 MB resident, 8 ms a tick and
4 ms on one CPU at a stretch. With --churn, so many cgroups come and go at a time once a second, and the CPU time of the
first and of the last minute is told: cost must not grow with age.

`yardstick_ms` is the CPU time of a fixed piece of work after each run: machines, and hours of one that shares its CPUs
with others, differ by more than versions of the agent do.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from bench.bursts import Bursts
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
_AGENT = """
import atexit, pathlib, sys
from koordlet.__main__ import main
atexit.register(lambda: pathlib.Path(sys.argv.pop()).write_text("\\n".join(list(sys.modules))))
main(sys.argv[1:-1])
"""
"""The agent, which notes its modules in the file of its last argument when it ends."""
_EMPTY = """
import contextlib, importlib, pathlib, sys, time
for name in pathlib.Path(sys.argv[1]).read_text().splitlines():
    with contextlib.suppress(Exception):
        importlib.import_module(name)
while True:
    time.sleep(1)
"""
_SETTINGS = """
[metrics]
port = {port}
[detection]
baselines_file = "{folder}/baselines.json"
[[qos]]
match = "{top}/ls*"
class = "LS"
[[qos]]
match = "{top}/be*"
class = "BE"
[enforcer]
enabled = {enabled}
strategies = ["*"]
only = ["{top}/*"]
state_dir = "{folder}"
audit_file = "{folder}/audit.jsonl"
"""
_STRATEGIES = """
[strategies.node_slo.resourceUsedThresholdWithBE]
enable = true
[strategies.node_slo.cpuBurstStrategy]
policy = "auto"
[strategies.node_slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
schedIdle = 1
[strategies.node_slo.extensions.memoryHeadroom]
enable = true
"""
ARMS = ("empty", "observing", "acting")
_PORT = 19316
_SETTLE_SECONDS = 15.0
_SCRAPE_SECONDS = 15
_MINUTE = 60


def yardstick_ms(repeat: int = 51) -> float:
    """Median CPU time of the same piece of Python and numpy."""
    numbers = np.random.default_rng(0).integers(0, 1 << 40, 20_000)
    taken = []
    for _ in range(repeat):
        began = time.thread_time()
        np.unique(numbers, return_inverse=True)
        dict(line.split() for line in (f"key{number} {number}" for number in range(2_000)))
        taken.append(time.thread_time() - began)
    return 1e3 * statistics.median(taken)


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


def observe(
    pid: int, seconds: int, *, is_agent: bool = True, top: TestCgroup | None = None, churn: int = 0
) -> dict[str, float]:
    """Measure a process for a number of seconds; `churn` cgroups below `top` come and go in each."""
    ticks_ms, figures = [], dict[str, float]()
    threads = [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
    minutes = [cpu_seconds(pid)]
    with Bursts(threads) as bursts:
        started, used = time.monotonic(), cpu_seconds(pid)
        living: list[TestCgroup] = []
        for second in range(seconds):
            for cgroup in living:
                cgroup.remove()
            living = [top.make_cgroup(f"new{second}-{each}") for each in range(churn)] if top else []
            for cgroup in living:
                cgroup.spawn(["sleep", "0.3"])
            time.sleep(max(started + second + 1 - time.monotonic(), 0))
            if is_agent and second % _SCRAPE_SECONDS == _SCRAPE_SECONDS - 1:
                scraped = metrics()
                ticks_ms.append(scraped["koord_agent_tick_seconds"] * 1000)
                figures["series"] = len(scraped)
            if second % _MINUTE == _MINUTE - 1:
                minutes.append(cpu_seconds(pid))
        elapsed = time.monotonic() - started
        figures["cpu_percent_of_one_core"] = (cpu_seconds(pid) - used) / elapsed * 100
        stretches_ms = [1e3 * each for each in bursts.seconds()]
        for cgroup in living:
            cgroup.remove()
    figures["resident_mb"] = resident_bytes(pid) / 1e6
    figures["stretch_ms_worst"] = max(stretches_ms, default=0.0)
    figures["stretches_above_4_ms_a_minute"] = sum(each > 4 for each in stretches_ms) / elapsed * _MINUTE
    if ticks_ms:
        figures["tick_ms_median"] = statistics.median(ticks_ms)
        figures["tick_ms_worst"] = max(ticks_ms)
    if churn and len(minutes) > 2:
        figures["cpu_percent_first_minute"] = (minutes[1] - minutes[0]) / _MINUTE * 100
        figures["cpu_percent_last_minute"] = (minutes[-1] - minutes[-2]) / _MINUTE * 100
    figures["descriptors"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return figures


@contextmanager
def _process(arm: str, folder: Path, top: str) -> Iterator[int]:
    """The process of an arm, warm; yields its id. The first agent's modules are those of the empty one."""
    modules = folder / "modules"
    config = folder / "koordlet.toml"
    is_acting = arm == "acting"
    settings = _SETTINGS.format(port=_PORT, folder=folder, top=top, enabled=str(is_acting).lower())
    config.write_text(settings + (_STRATEGIES if is_acting else ""))
    command = [sys.executable, "-c", _AGENT, "run", "--standalone", "--config", str(config), str(modules)]
    if arm == "empty":
        command = [sys.executable, "-c", _EMPTY, str(modules)]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        time.sleep(_SETTLE_SECONDS)
        if process.poll() is not None:
            raise click.ClickException(f"the process ended: {(folder / 'log').read_text()[-500:]}")
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # one that still starts does not hear it
            process.kill()
            process.wait()


@contextmanager
def _cgroups(count: int) -> Iterator[TestCgroup]:
    """Live cgroups, every other one best-effort."""
    tree = CgroupTree.detect()
    sleepers = subprocess.Popen([sys.executable, "-S", "-c", _SLEEPER, str(count)], stdout=subprocess.PIPE)
    assert sleepers.stdout is not None
    sleepers.stdout.readline()
    try:
        with tree.make_cgroup("bench") as top:
            try:
                for number, pid in enumerate(children_of(sleepers.pid)):
                    top.make_cgroup(f"{('ls', 'be')[number % 2]}{number}").add(pid)
                yield top
            finally:
                for pid in children_of(sleepers.pid):
                    os.kill(pid, signal.SIGKILL)
    finally:
        sleepers.kill()
        sleepers.wait()


def foreign_modules(pid: int) -> list[str]:
    """Heavy libraries a standalone agent must not load, found in its memory map."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return [name for name in ("sklearn", "pyarrow", "kubernetes", "scipy", "matplotlib") if f"/{name}/" in maps]


@click.command(help=__doc__)
@click.option("--cgroups", type=click.IntRange(1, 5000), default=500, show_default=True)
@click.option("--seconds", type=click.IntRange(15, 3600), default=45, show_default=True, help="Of each run.")
@click.option("--repeat", type=click.IntRange(1, 100), default=1, show_default=True)
@click.option("--arm", "arms", multiple=True, type=click.Choice(ARMS), default=ARMS, show_default=True)
@click.option("--churn", type=click.IntRange(0, 100), default=0, show_default=True, help="Cgroups that come and go.")
@click.option("--json", "as_json", is_flag=True)
def main(cgroups: int, seconds: int, repeat: int, arms: tuple[str, ...], churn: int, as_json: bool) -> None:
    if set(arms) == {"empty"}:
        raise click.UsageError("the empty agent imports what an agent before it did: add --arm observing")
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name, _cgroups(cgroups) as top:
        for _ in range(repeat):
            for arm in sorted(arms, key=lambda arm: arm == "empty"):  # an agent first: it says what it imports
                with _process(arm, Path(name), top.path) as pid:
                    figures = observe(pid, seconds, is_agent=arm != "empty", top=top, churn=churn)
                    foreign = foreign_modules(pid)
                figures["yardstick_ms"] = yardstick_ms()
                if foreign:
                    click.echo(f"{arm}: has loaded {', '.join(foreign)}", err=True)
                found.setdefault(arm, []).append(figures)
                if not as_json:
                    print(f"{arm:<10}" + "  ".join(f"{key} {value:.2f}" for key, value in figures.items()), flush=True)
    if as_json:
        print(json.dumps(found))
        return
    print("\nmedians")
    for key in {key: None for runs in found.values() for run in runs for key in run}:
        cells = (
            f"{arm} {statistics.median([run[key] for run in runs]):8.2f}"
            for arm, runs in found.items()
            if all(key in run for run in runs)
        )
        print(f"{key:<30} " + "  ".join(cells))


if __name__ == "__main__":
    main()
