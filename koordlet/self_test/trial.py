"""The self-test's trial: cgroups of its own, a stressor for each counter, and two frames around them all."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from api.frame import Frame
from api.plugin import Unsupported
from koordlet.agent.agent import Agent
from koordlet.config import AgentSettings
from koordlet.host.cgroups.scratch import ScratchCgroup
from koordlet.host.files import HostTree
from koordlet.self_test.results import Result, absent, held, within
from probes.smt import Smt

CGROUPS = (
    *("waiter", "contender", "limited", "crowded", "disk", "network", "service", "walker"),
    *("thread", "sibling"),
)
SPIN_SECONDS = 2.0
QUOTA_US, PERIOD_US = 20_000, 100_000
MEMORY_BYTES, FILE_MEBIBYTES = 48 << 20, 160
BLOCKS, PACKETS, REQUESTS, ANSWER_MS, WALKED_MEBIBYTES = 500, 5000, 200, 2, 64
TRIP_NS, TRIP_WINDOW_NS = 50_000_000, 1_000_000_000
LONGEST_SECONDS = 120.0
SLOWEST_HZ, FASTEST_HZ = 2e8, 8e9
LEAST_THROTTLED_NS = 300_000_000
START_SECONDS = 0.5
"""Time that two stressors which are started together may begin and end apart."""
EXIT_SECONDS = 0.3
"""Wait of a stressor that ends on a busy CPU."""
INFINITE = float("inf")


@dataclass(slots=True)
class _Done:
    """What the stressors did, by the kernel's own counts."""

    facts: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    throttled_ns: int = 0
    times_at_limit: int = 0
    trips: list[tuple[int, int]] = field(default_factory=list)
    """Victim and culprit of each trip of the tripwire."""


class Trial:
    """One run. `directory` must be on a disk; the file in it takes 160 MiB and is removed at the end."""

    def __init__(self, settings: AgentSettings, directory: Path) -> None:
        probes = settings.probes
        cpu = {**probes.options.get("cpu", {}), "tripwire": True}
        probes = msgspec.structs.replace(probes, options={**probes.options, "cpu": cpu})
        self._settings = msgspec.structs.replace(settings, probes=probes)
        self._directory = directory
        self._cpu = max(os.sched_getaffinity(0))

    def run(self) -> list[Result]:
        """Open the agent's probes, move every counter, compare. Takes about ten seconds.

        Raises Unsupported where there is no cpu hierarchy, OSError where cgroups cannot be made.
        """
        agent = Agent(self._settings)
        try:
            with scratch_cgroups(f"/koord-self-test-{os.getpid()}", HostTree(Path(self._settings.root))) as cgroups:
                before = agent.collect(everything=True)
                done = self._stress(agent, cgroups)
                after = agent.collect(everything=True)
                paths = {name: cgroup.path for name, cgroup in cgroups.items()}
                return compare(Grown(before, after, paths), done, agent.unsupported)
        finally:
            agent.close()

    def _stress(self, agent: Agent, cgroups: dict[str, ScratchCgroup]) -> _Done:
        done = _Done()
        with tempfile.TemporaryDirectory(prefix="koord-self-test-", dir=self._directory) as folder:
            file = str(Path(folder) / "file")
            steps: list[tuple[str, Callable[[], None]]] = [
                ("cpu", partial(self._contend, agent, cgroups, done)),
                ("limited", partial(self._throttle, cgroups["limited"], done)),
                ("crowded", partial(self._crowd, cgroups["crowded"], file, done)),
                ("disk", partial(self._one, done, cgroups["disk"], "disk", "read-disk", file, str(BLOCKS))),
                ("network", partial(self._one, done, cgroups["network"], "network", "send", str(PACKETS))),
                (
                    "service",
                    partial(self._one, done, cgroups["service"], "service", "answer", str(REQUESTS), str(ANSWER_MS)),
                ),
                (
                    "walker",
                    partial(self._one, done, cgroups["walker"], "walker", "walk-memory", str(WALKED_MEBIBYTES), "1"),
                ),
                ("sibling", partial(self._share_core, agent, cgroups, done)),
            ]
            for name, step in steps:
                try:
                    step()
                except (OSError, subprocess.SubprocessError, ValueError) as error:
                    done.failures[name] = str(error)
        return done

    def _start(
        self, cgroup: ScratchCgroup, kind: str, *words: str, cpu: int | None = None
    ) -> "subprocess.Popen[bytes]":
        where = str(self._cpu if cpu is None else cpu)
        argv = [sys.executable, "-P", "-m", "koordlet.self_test.stressor", kind, where, *words]
        return cgroup.spawn(argv, stdout=subprocess.PIPE)

    def _one(self, done: _Done, cgroup: ScratchCgroup, name: str, kind: str, *words: str) -> None:
        done.facts[name] = _facts(self._start(cgroup, kind, *words))

    def _contend(self, agent: Agent, cgroups: dict[str, ScratchCgroup], done: _Done) -> None:
        tripwire: Any = getattr(agent.probes.opened.get("cpu"), "tripwire", None)
        ids = {name: cgroups[name].identity for name in ("waiter", "contender")}
        if tripwire is not None:
            tripwire.watch({ids["waiter"]: (TRIP_NS, TRIP_WINDOW_NS)}, {ids["contender"]})
        both = {name: self._start(cgroups[name], "spin", str(SPIN_SECONDS)) for name in ids}
        for name, process in both.items():
            done.facts[name] = _facts(process)
        if tripwire is not None:
            done.trips = [(trip.victim, trip.culprit) for trip in tripwire.wait(0.5)]
            tripwire.watch({}, set())

    def _share_core(self, agent: Agent, cgroups: dict[str, ScratchCgroup], done: _Done) -> None:
        """Compute on both hardware threads of a core at once."""
        smt = agent.probes.opened.get("smt")
        if not isinstance(smt, Smt):
            return
        core = next((each for each in smt.cores if os.sched_getaffinity(0).issuperset(each)), None)
        if core is None:
            raise ValueError("no core has both of its threads among the CPUs that this process may use")
        names = ("thread", "sibling")
        spins = [
            self._start(cgroups[name], "spin", str(SPIN_SECONDS), cpu=cpu)
            for name, cpu in zip(names, core, strict=True)
        ]
        for name, process in zip(names, spins, strict=True):
            done.facts[name] = _facts(process)

    def _throttle(self, cgroup: ScratchCgroup, done: _Done) -> None:
        if cgroup.read("cpu.max"):
            cgroup.write("cpu.max", f"{QUOTA_US} {PERIOD_US}")
        else:
            cgroup.write("cpu.cfs_period_us", str(PERIOD_US))
            cgroup.write("cpu.cfs_quota_us", str(QUOTA_US))
        done.facts["limited"] = _facts(self._start(cgroup, "spin", str(SPIN_SECONDS)))
        stat = _fields(cgroup.read("cpu.stat"))
        done.throttled_ns = stat.get("throttled_usec", 0) * 1000 + stat.get("throttled_time", 0)

    def _crowd(self, cgroup: ScratchCgroup, file: str, done: _Done) -> None:
        cgroup.write("memory.max" if cgroup.read("memory.max") else "memory.limit_in_bytes", str(MEMORY_BYTES))
        done.facts["crowded"] = _facts(self._start(cgroup, "fill-cache", file, str(FILE_MEBIBYTES)))
        events = _fields(cgroup.read("memory.events"))
        done.times_at_limit = events.get("max", 0) + int(cgroup.read("memory.failcnt") or 0)


@contextmanager
def scratch_cgroups(top: str, host: HostTree) -> Iterator[dict[str, ScratchCgroup]]:
    """Make a cgroup below `top` for each of CGROUPS, and remove all at the end. Raises OSError."""
    with ExitStack() as stack:
        parent = ScratchCgroup(top, host)
        stack.callback(parent.remove)
        made = {}
        for name in CGROUPS:
            made[name] = ScratchCgroup(f"{top}/{name}", host)
            stack.callback(made[name].remove)
        yield made


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2}


def _facts(process: "subprocess.Popen[bytes]") -> dict[str, int]:
    try:
        printed, _ = process.communicate(timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise ValueError(f"it ended with status {process.returncode}")
    found: dict[str, Any] = json.loads(printed)
    if "error" in found:
        raise ValueError(found["error"])
    return found


class Grown:
    """Growth of columns between two frames, by the name of a scratch cgroup."""

    def __init__(self, before: Frame, after: Frame, paths: dict[str, str]) -> None:
        self._before, self._after = before, after
        by_path = {info.path: info.id for info in after.cgroups}
        self.ids = {name: by_path.get(path, 0) for name, path in paths.items()}

    def of(self, name: str, column: str) -> float | None:
        """Growth for a cgroup; None where the column is not measured."""
        after = _value(self._after, self.ids[name], column)
        return None if after is None else after - (_value(self._before, self.ids[name], column) or 0.0)

    def whole(self, table: str, column: str, key: str, value: str) -> float | None:
        """Growth of a row of another table; None where it is not measured."""
        last, first = (_row(frame, table, column, key, value) for frame in (self._after, self._before))
        return None if last is None else last - (first or 0.0)

    def blamed(self, victim: str, culprit: str, name: str = "cpu.blame") -> float:
        """Nanoseconds of a table of blame."""
        table = self._after.tables.get(name)
        if table is None:
            return 0.0
        rows = (table.ids == self.ids[victim]) & (table.keys["culprit"] == self.ids[culprit])
        return float(np.asarray(table.columns[f"{name}_ns"])[rows].sum())


def _value(frame: Frame, identity: int, column: str) -> float | None:
    values = frame.cgroup.columns.get(column)
    if values is None:
        return None
    return float(np.asarray(values)[frame.cgroup.ids == identity].sum())


def _row(frame: Frame, table: str, column: str, key: str, value: str) -> float | None:
    found = frame.tables.get(table)
    if found is None or column not in found.columns:
        return None
    return float(np.asarray(found.columns[column])[found.keys[key] == value].sum())


def compare(grown: Grown, done: _Done, unsupported: dict[str, Unsupported]) -> list[Result]:
    """Hold every counter against what its stressor did."""
    checks: list[tuple[str, str, str, Callable[[dict[str, int]], Result | None]]] = [
        ("run queue", "cpu", "waiter", lambda facts: _waited(grown, facts)),
        ("run queue blame", "cpu", "contender", lambda facts: _blamed(grown, facts["cpu_ns"])),
        ("throttle", "throttle", "limited", lambda _: _throttled(grown, done.throttled_ns)),
        ("memory reclaim", "memory", "crowded", lambda _: _reclaimed(grown, done.times_at_limit)),
        ("block IO", "blockio", "disk", lambda facts: _read(grown, facts["bytes"])),
        ("net", "net", "network", lambda facts: _received(grown, facts["packets"])),
        ("irq", "irq", "network", lambda facts: _interrupted(grown, facts["interrupts"])),
        ("turnaround", "turnaround", "service", lambda facts: _answered(grown, facts)),
        ("SMT siblings", "smt", "sibling", lambda _: _shared_core(grown, done.facts)),
        ("PMU cycles", "pmu", "walker", lambda facts: _cycled(grown, facts)),
        ("memory bandwidth", "resctrl", "walker", lambda facts: _walked(grown, facts)),
        ("last-level cache", "resctrl", "walker", lambda _: _cached(grown)),
    ]
    results = []
    for name, probe, stressor, check in checks:
        results.append(_checked(name, probe, stressor, check, done, unsupported))
    results.insert(2, _tripped(grown, done, unsupported))
    return results


def _checked(
    name: str,
    probe: str,
    stressor: str,
    check: Callable[[dict[str, int]], Result | None],
    done: _Done,
    unsupported: dict[str, Unsupported],
) -> Result:
    if probe in unsupported:
        return absent(name, unsupported[probe].reason, unsupported[probe].remedy)
    if stressor not in done.facts:
        why = done.failures.get(stressor) or done.failures.get("cpu", "it did not run")
        return absent(name, f"the stressor could not do its work: {why}")
    return check(done.facts[stressor]) or absent(name, "its columns are not measured here")


def _waited(grown: Grown, facts: dict[str, int]) -> Result | None:
    measured = grown.of("waiter", "cpu.wait_ns")
    if measured is None:
        return None
    # the probe counts from where the stressor joined its cgroup, between its start and its work, to its end
    low, high = 0.9 * facts["wait_ns"] / 1e9 - 0.02, 1.1 * facts["wait_since_start_ns"] / 1e9 + EXIT_SECONDS
    return within("run queue", measured / 1e9, max(low, 0.0), high, "s")


def _blamed(grown: Grown, ran_ns: int) -> Result | None:
    """One of the two always waits for the CPU that they share, so what one runs is the other's wait."""
    if grown.of("waiter", "cpu.wait_ns") is None:
        return None
    told = grown.blamed("waiter", "contender")
    return held("run queue blame", told / 1e9, ran_ns / 1e9, "s", below=0.4, above=0.25, slack=0.05)


def _tripped(grown: Grown, done: _Done, unsupported: dict[str, Unsupported]) -> Result:
    if "cpu" in unsupported:
        return absent("tripwire", unsupported["cpu"].reason, unsupported["cpu"].remedy)
    if "cpu" in done.failures:
        return absent("tripwire", f"the stressor could not do its work: {done.failures['cpu']}")
    pair = (grown.ids["waiter"], grown.ids["contender"])
    return within("tripwire", done.trips.count(pair), 1, INFINITE, "trips")


def _throttled(grown: Grown, truth_ns: int) -> Result | None:
    measured = grown.of("limited", "throttle.throttled_ns")
    if measured is not None and truth_ns < LEAST_THROTTLED_NS:
        return absent(
            "throttle", "the CPU is too busy for the stressor to use up its quota", "try again when it is not"
        )
    return None if measured is None else held("throttle", measured / 1e9, truth_ns / 1e9, "s", slack=0.1)


def _reclaimed(grown: Grown, times: int) -> Result | None:
    measured = grown.of("crowded", "memory.stall_own_limit_count")
    if measured is None:
        return None
    if not times:
        return absent("memory reclaim", "the stressor's memory never met its limit")
    return within("memory reclaim", measured, 1, INFINITE, "stalls")


def _read(grown: Grown, truth: int) -> Result | None:
    measured = grown.of("disk", "blockio.read_bytes")
    if measured is None:
        return None
    if not truth:
        return absent("block IO", "the directory is not on a disk", "name one that is: --directory")
    return held("block IO", measured, truth, "bytes")


def _received(grown: Grown, packets: int) -> Result | None:
    measured = grown.of("network", "net.backlog_packets")
    return None if measured is None else held("net", measured, packets, "packets", below=0.2)


def _interrupted(grown: Grown, truth: int) -> Result | None:
    measured = grown.whole("irq.vector", "irq.vector_count", "vector", "net_rx")
    # the frames lie around the stressor: others' interrupts before and after it are counted too
    return None if measured is None else within("irq", measured, 0.9 * truth, INFINITE, "receive interrupts")


def _answered(grown: Grown, facts: dict[str, int]) -> Result | None:
    measured, took = grown.of("service", "turnaround.requests"), grown.of("service", "turnaround.sum_ns")
    if measured is None or took is None:
        return None
    if measured < 0.9 * facts["requests"]:
        return held("turnaround", measured, facts["requests"], "requests")
    low = 0.9 * measured * ANSWER_MS / 1e3
    return within("turnaround", took / 1e9, low, 1.05 * facts["took_ns"] / 1e9 + 0.01, "s in all requests")


def _shared_core(grown: Grown, facts: dict[str, dict[str, int]]) -> Result | None:
    """What one ran while the other did is at most the shorter run, and at least what does not fit beside the other."""
    if "thread" not in facts or grown.of("thread", "cpu.smt_foreign_ns") is None:
        return None
    ran = [facts[name]["cpu_ns"] / 1e9 for name in ("thread", "sibling")]
    low = max(0.9 * (sum(ran) - SPIN_SECONDS - START_SECONDS), 0.0)
    told = grown.blamed("thread", "sibling", "smt.blame") / 1e9
    return within("SMT siblings", told, low, 1.1 * min(ran) + 0.05, "s")


def _cycled(grown: Grown, facts: dict[str, int]) -> Result | None:
    measured = grown.of("walker", "pmu.cycles")
    if measured is None:
        return None
    seconds = facts["cpu_ns"] / 1e9
    return within("PMU cycles", measured, SLOWEST_HZ * seconds * 0.5, FASTEST_HZ * seconds, "cycles")


def _walked(grown: Grown, facts: dict[str, int]) -> Result | None:
    measured = grown.of("walker", "resctrl.mbm_total_bytes")
    return (
        None if measured is None else held("memory bandwidth", measured, facts["bytes"], "bytes", below=0.7, above=1.5)
    )


def _cached(grown: Grown) -> Result | None:
    measured = grown.of("walker", "resctrl.llc_occupancy_bytes")
    return None if measured is None else within("last-level cache", measured, 1, INFINITE, "bytes")
