"""The program that is harmed: the agent's loop and control loop with real cgroups, journal, audit and guardian.

It reads words from standard input, one a line, each of which starts or ends a fault; and asks at random for values of
several knobs, so that a fault meets it amid its writes. Measurement is left out: frames name the cgroups and no more.
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

import probes.tripwire
from api.frame import Frame
from api.intents import Intent, Knob, Setting
from api.qos import QoSClass
from koordlet.agent.frame_store import FrameStore
from koordlet.agent.loop import AgentLoop
from koordlet.agent.signals import until_signalled
from koordlet.agent.sinks import Sink
from koordlet.commands.reload import Reload
from koordlet.config import load_settings
from koordlet.control.control_loop import open_control_loop
from koordlet.control.fast_path import FastPath
from koordlet.host.files import HostTree
from koordlet.tick import Tick
from probes.tripwire import Trip
from tests.frames import make_frame

SINKS = ("metrics", "log", "json", "socket", "cluster", "profiles", "recording")
INTERVAL_SECONDS = 0.02
LEASE = 0.5
"""Seconds for which an action stays that no tick renews."""
_PASSING = 10_000
"""Ids of cgroups that come and go begin here."""
_TOO_MANY = 1100
"""More than the map of watched cgroups holds."""
VALUES: dict[Knob, tuple[str, ...]] = {
    Knob.CPU_MAX: ("20000 100000", "30000 100000", "50000 200000"),
    Knob.CPU_BURST: ("1000", "4000"),
    Knob.CPU_IDLE: ("1",),
    Knob.CPUSET_CPUS: ("0", "1"),
    Knob.MEMORY_MAX: (str(64 << 20), str(100 << 20)),
    Knob.FREEZE: ("1",),
    Knob.OOM_SCORE_ADJ: ("300", "700"),
}


@dataclass
class Faults:
    """What is wrong at present."""

    failing: frozenset[str] = frozenset()
    hanging: str = ""
    is_calm: bool = False

    def pass_by(self, place: str) -> None:
        """Hang or fail where that is asked for."""
        while self.hanging == place:
            time.sleep(0.005)
        if place in self.failing:
            raise RuntimeError(f"{place} fails")


class Frames:
    """A source of frames that tells of these cgroups, all best-effort."""

    def __init__(self, paths: Sequence[str], faults: Faults) -> None:
        self.store = FrameStore(10.0, INTERVAL_SECONDS)
        self.lost: Counter[str] = Counter()
        self._faults = faults
        self._paths = dict(enumerate(paths, 100))
        self._passing = 0

    def collect(self) -> Frame:
        """As `Agent.collect`."""
        self._faults.pass_by("collect")
        paths = dict(self._paths)
        if "map" in self._faults.failing:  # cgroups that are as before are not watched anew
            self._passing += 1
            paths[_PASSING + self._passing] = f"/passing-{self._passing}"
        frame = make_frame(time.monotonic(), paths, {"cpustat.usage_ns": [0] * len(paths)})
        infos = tuple(replace(info, qos=QoSClass.BE.value) for info in frame.cgroups)
        frame = replace(frame, cgroups=infos)
        self.store.append(frame)
        return frame


class Churn:
    """A source of intents: actions that change in each tick, and a weight that is protocol state."""

    silent: Sequence[str] = ()

    def __init__(self, paths: Sequence[str], faults: Faults, seed: int) -> None:
        self._paths, self._faults, self._chance = paths, faults, random.Random(seed)

    def intents(self, _tick: Tick) -> list[Intent]:
        """Half of all knobs of all cgroups, with other values each time; no action while it is calm."""
        self._faults.pass_by("source")
        state: list[Intent] = [
            Setting(
                strategy="runtime_hooks", target=path, knob=Knob.CPU_WEIGHT, value="50", reason="-", protocol_state=True
            )
            for path in self._paths
        ]
        if self._faults.is_calm:
            return state
        return state + [
            Setting(
                strategy="response",
                target=path,
                knob=knob,
                value=self._chance.choice(values),
                reason="-",
                lease_seconds=LEASE,
            )
            for path in self._paths
            for knob, values in VALUES.items()
            if self._chance.random() < 0.5
        ]


class Tripwire:
    """The kernel's tripwire, which is given more cgroups than its map holds while that is asked for: E2BIG.

    In rounds of other faults there is none.
    """

    def __init__(self, faults: Faults, wire: probes.tripwire.Tripwire | None) -> None:
        self._faults = faults
        self._wire = wire

    def watch(self, victims: dict[int, tuple[int, int]], culprits: set[int]) -> None:
        """As `probes.tripwire.Tripwire.watch`."""
        if self._wire is not None:
            more = dict.fromkeys(range(1 << 40, (1 << 40) + _TOO_MANY), (1, 1)) if "map" in self._faults.failing else {}
            self._wire.watch(victims | more, culprits)

    def wait(self, seconds: float) -> list[Trip]:
        """As `probes.tripwire.Tripwire.wait`."""
        if self._wire is not None:
            return self._wire.wait(seconds)
        time.sleep(seconds)
        return []


def _open_wire() -> probes.tripwire.Tripwire:
    """The tripwire of a cpu probe that this process has for itself. Raises Unsupported where there is none."""
    from probes.cpu import Cpu
    from probes.probe import Kernel, ProbeLimits

    wire = Cpu.open(Kernel(), ProbeLimits(options={"cpu": {"tripwire": True}})).tripwire
    assert wire is not None
    return wire


def take(word: str, faults: Faults) -> None:
    """Take one line of standard input."""
    verb, _, place = word.partition(" ")
    if verb == "fail":
        faults.failing = frozenset({place})
    elif verb == "hang":
        faults.hanging = place
    elif verb == "calm":
        faults.is_calm = True
    elif verb == "well":
        faults.failing, faults.hanging, faults.is_calm = frozenset(), "", False


def main(arguments: Sequence[str]) -> None:
    """Run until the end of standard input or SIGTERM; the argument is JSON."""
    given: dict[str, Any] = json.loads(arguments[0])
    faults = Faults()
    file = Path(given["config"])
    read = load_settings(file)
    # The least lease of the settings is longer than a measurement of hundreds can wait for.
    enforcer = msgspec.structs.replace(read.enforcer, guardian_seconds=given["lease_seconds"])
    settings = msgspec.structs.replace(read, enforcer=enforcer)
    control = open_control_loop(settings, HostTree())
    write = control.enforcer._journal._write

    def journal_write(fd: int, content: bytes) -> None:
        faults.pass_by("journal")
        write(fd, content)

    control.enforcer._journal._write = journal_write
    control.sources.append(Churn(given["paths"], faults, given["seed"]))
    tripwire = Tripwire(faults, _open_wire() if given["with_map"] else None)
    control.fast_path = FastPath(tripwire, control.trip, settings.response)  # type: ignore[arg-type]
    frames = Frames(given["paths"], faults)
    with until_signalled(reloads=True) as stop:
        reload = Reload(file, read, False, stop, control, None, None)
        sinks = {name: _sink(name, faults) for name in SINKS} | {"reload": reload.step, "alive": _alive}

        def step(tick: Tick) -> None:
            faults.pass_by("control")
            control.step(tick)

        def listen() -> None:
            for line in sys.stdin:
                take(line.strip(), faults)
            stop.set()

        threading.Thread(target=listen, daemon=True).start()
        loop = AgentLoop(frames, control=step, sinks=sinks)
        loop.run(INTERVAL_SECONDS, stop)
    control.close()


def _sink(name: str, faults: Faults) -> Sink:
    def sink(_tick: Tick) -> None:
        faults.pass_by(name)

    return sink


_ticks = 0


def _alive(_tick: Tick) -> None:
    """The last sink says once that ticks are completed."""
    global _ticks
    _ticks += 1
    if _ticks == 1:
        print("ticking", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
