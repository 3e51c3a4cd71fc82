"""What an operator asks before enforcing: on random trees of a thousand cgroups, with random classes, owners and
accusations, no strategy and no rung takes anything from a cgroup that it may not touch.

Everything is asked of the enforcer at once: each rung of each ladder against random pairs, whatever the policy would
say; all strategies with everything switched on; and settings, reclaims and evictions of any knob of any cgroup in the
name of any of them. `ALLOWED` is stated here, apart from the code that it checks. KOORD_RANDOM_TREES sets how many
trees are tried (3 by default).
"""

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.cgroup_path import lineage, parent
from api.frame import CgroupInfo, CgroupKind
from api.intents import Evict, Intent, Knob, Reclaim, Setting, Strength
from api.qos import QoSClass, QoSSource
from api.window import Window
from koordlet.config import AgentSettings
from koordlet.control.node_view import NodeViewBuilder
from koordlet.control.rights import rights_of
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.writer import DryRunWriter
from koordlet.host.attributes import Attribute
from koordlet.host.knobs.direction import Direction, compare
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.table import KNOBS, check
from koordlet.response.host_capabilities import HostCapabilities
from koordlet.response.ladders import LADDERS
from koordlet.response.observation import Observation
from koordlet.response.rungs.rung import Interference
from koordlet.response.settings import ResponseSettings
from koordlet.tick import Tick
from tests.frames import cgroup_info, make_frame
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.strategies.test_together import all_on

TREES = int(os.environ.get("KOORD_RANDOM_TREES", "3"))
CGROUPS = 1000
BE, LS = frozenset({QoSClass.BE}), frozenset({QoSClass.LS})
PROTOCOL = BE | LS | {QoSClass.LSR, QoSClass.LSE}
ALLOWED: Mapping[str, frozenset[QoSClass]] = {
    "response": BE,
    "cpu_suppress": BE,
    "colocation_budget": BE,
    "memory_headroom": BE,
    "cpu_burst": BE,
    "cpu_evict": BE | LS,
    "memory_evict": BE | LS,
    "watermarks": BE | LS,
    "cold_memory": BE | LS,
    "resource_pools": BE | LS,
    "network_qos": BE | LS,
}
"""Classes that each may give less to in these settings, which name LS wherever they can; state of the protocol goes to
every class of it but SYSTEM."""
_ROOTS_OWN = ("/", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort")
NEVER = ("/system.slice", "/runtime.slice", "/podruntime.slice", "/kubelet", "/user.slice", "/init.scope")


def uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def random_paths(chance: random.Random) -> list[str]:
    """A node's cgroups: pods of each kind, services, runtimes, users, containers and nested units."""
    paths = ["/", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort", "/docker", "/machine.slice", "/agent"]
    paths += [*NEVER[:3], "/user.slice", "/init.scope", "/kubelet.slice"]
    users = "/user.slice/user-1000.slice/user@1000.service"
    paths += ["/user.slice/user-1000.slice", users]
    parents = [*NEVER[:3], users, "/docker", "/machine.slice", "/", "/"]
    number = 0
    while len(paths) < CGROUPS:
        number += 1
        if chance.random() < 0.4:
            above = chance.choice(["/kubepods", "/kubepods/burstable", "/kubepods/besteffort"])
            pod = f"{above}/pod{uid(number)}"
            paths += [pod, *(f"{pod}/{number:x}{index:x}".ljust(len(pod) + 65, "a") for index in range(2))]
        else:
            made = f"{chance.choice(parents).rstrip('/')}/unit-{number}"
            paths.append(made)
            if made.count("/") < 20:
                parents.append(made)
    return paths[:CGROUPS]


def random_infos(paths: Sequence[str], chance: random.Random) -> tuple[CgroupInfo, ...]:
    """Classes and owners at random, as the agent could have described them."""
    found: dict[str, CgroupInfo] = {}
    for number, path in enumerate(paths, 1):
        info, above = cgroup_info(number, path), found.get(parent(path))
        if info.kind is CgroupKind.POD:
            qos = chance.choice([QoSClass.BE, QoSClass.LS, QoSClass.LSR, QoSClass.LSE, QoSClass.SYSTEM, QoSClass.NONE])
            info = replace(info, qos=qos, qos_source=chance.choice([QoSSource.LABEL, QoSSource.KUBERNETES]))
        elif info.kind is CgroupKind.CONTAINER and above is not None:
            info = replace(info, qos=above.qos, qos_source=above.qos_source)
        elif info.kind is CgroupKind.KUBEPODS and info.kube_qos == "BestEffort":
            info = replace(info, qos="BE", qos_source=QoSSource.KUBERNETES)
        elif info.kind in (CgroupKind.PLAIN, CgroupKind.UNIT) and chance.random() < 0.3:
            info = replace(info, qos=chance.choice(list(QoSClass)), qos_source=QoSSource.SETTINGS)
        owner = 1000 if "user@1000" in path else above.owner_uid if above else 0
        found[path] = replace(info, owner_uid=1000 if chance.random() < 0.03 and path not in _ROOTS_OWN else owner)
    return tuple(found.values())


class Recorder(DryRunWriter):
    """Remembers what would have been written."""

    is_dry = False

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[tuple[str, str]] = []

    def write(self, attribute: Attribute, value: str, expected: Any, identity: str) -> None:
        self.touched.append((attribute.path, value))
        super().write(attribute, value, expected, identity)

    def signal(self, directory: Path, number: int) -> int:
        self.touched.append((str(directory), f"signal {number}"))
        return 0

    def reclaim(self, directory: Path, amount_bytes: int) -> int:
        self.touched.append((str(directory), f"reclaim {amount_bytes}"))
        return amount_bytes


class Oracle:
    """Who may be limited, computed in the plainest way."""

    def __init__(self, infos: Sequence[CgroupInfo], *, believes_kubernetes: bool) -> None:
        self.infos = {info.path: info for info in infos}
        self.believes_kubernetes = believes_kubernetes

    def qos(self, path: str) -> str:
        for each in lineage(path):
            info = self.infos[each]
            if each != path and info.kind is CgroupKind.KUBEPODS:
                return ""
            if info.qos:
                unproven = info.qos == "BE" and info.qos_source is QoSSource.KUBERNETES
                return "" if unproven and not self.believes_kubernetes else info.qos
        return ""

    def objection(self, strategy: str, path: str) -> str:
        for each in lineage(path)[1:]:
            if each in self.infos and self.infos[each].owner_uid == 1000:
                return f"below {each} of another user"
        if path == "/" or any(path == each or path.startswith(each) for each in NEVER):
            return "a slice of the node"
        below = [each for each in self.infos if each == path or each.startswith(path + "/")]
        inner = {parent(each) for each in self.infos}
        for each in below:
            unknown_pod = self.infos[path].kind is CgroupKind.KUBEPODS and "/pod" in each
            if not self.qos(each) and (each in inner or unknown_pod):
                continue
            if self.qos(each) not in ALLOWED.get(strategy, PROTOCOL):
                return f"{each} is of class {self.qos(each) or 'none'}"
        return ""


def ladder_intents(infos: Sequence[CgroupInfo], chance: random.Random) -> Iterator[Intent]:
    """Each rung of each ladder against random pairs."""
    count = len(infos)
    some = np.full(count, 1.0)
    observation = Observation(
        now_seconds=1.0,
        cgroups=tuple(infos),
        verdicts=(),
        lost={},
        throttled=some,
        cpu_cores=some,
        memory_bytes=np.full(count, 2.0**30),
        io_bytes_per_second=np.full(count, 2.0**26),
        turnaround_seconds=np.full(count, np.nan),
        capabilities=HostCapabilities(cpus=tuple(range(8)), cores={cpu: cpu // 2 for cpu in range(8)}, disks=("8:0",)),
    )
    settings = ResponseSettings()
    for resource, rungs in LADDERS.items():
        for rung in rungs:
            for _ in range(15):
                culprit, victim = chance.choice(infos).path, chance.choice(infos).path
                interference = Interference(culprit, victim, resource, "accused", f"{victim}|rule", 1.0)
                yield from rung.build(observation, interference, settings)


ASKED = {
    Knob.CPU_IDLE: "1",
    Knob.CPU_WEIGHT: "1",
    Knob.CPU_MAX: "20000 100000",
    Knob.CPUSET_CPUS: "0",
    Knob.FREEZE: "1",
    Knob.MEMORY_HIGH: "4194304",
    Knob.MEMORY_MAX: "4194304",
    Knob.IO_MAX: "8:0 rbps=1048576 wbps=1048576",
    Knob.IO_WEIGHT: "default 1",
}


def wild_intents(infos: Sequence[CgroupInfo], chance: random.Random) -> Iterator[Intent]:
    """Anything, asked for by anyone."""
    for _ in range(400):
        strategy, target = chance.choice([*ALLOWED]), chance.choice(infos).path
        knob, value = chance.choice([*ASKED.items()])
        asked = {"strategy": strategy, "target": target, "reason": "any"}
        yield Setting(**asked, knob=knob, value=value, strength=chance.choice([*Strength]))
        yield Reclaim(**asked, amount_bytes=1 << 20) if chance.random() < 0.5 else Evict(**asked)


def strategy_intents(host: FakeHost, infos: tuple[CgroupInfo, ...], suppress: str) -> Iterator[Intent]:
    """All strategies with everything switched on, over some ticks of a busy node."""
    cgroups = {info.id: info.path for info in infos}
    used = {
        "cpu.oncpu_ns": [3 * 10**8] * len(infos),
        "memstat.usage_bytes": [2**30] * len(infos),
        "memstat.file_bytes": [2**28] * len(infos),
        "pressure.memory_some_us": [1000] * len(infos),
    }
    nothing = {name: [0] * len(infos) for name in used}
    frames = [replace(make_frame(s, cgroups, c), cgroups=infos) for s, c in ((1.0, nothing), (2.0, used))]
    view = NodeViewBuilder(host.tree, Knobs(host.tree)).view(Tick.of(Window(frames)), {})
    view = replace(view, node=replace(view.node, memory_bytes=64 << 30))
    view = replace(view, cpu_millicores=60_000.0, memory_bytes=60 << 30, load=50.0, memory_pressure_ratio=0.9)
    for strategy in all_on(suppress).values():
        for second in range(3):
            yield from strategy.decide(view, 100.0 * second)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> tuple[FakeHost, list[str]]:
    made = FakeHost(tmp_path_factory.mktemp("node"))
    paths = random_paths(random.Random(12))
    for path in paths[1:]:
        made.make(path)
    cpus = made.root / "sys/devices/system/cpu"
    for cpu in range(8):
        (cpus / f"cpu{cpu}/topology").mkdir(parents=True)
        (cpus / f"cpu{cpu}/topology/core_id").write_text(f"{cpu // 2}\n")
        (cpus / f"cpu{cpu}/topology/physical_package_id").write_text("0\n")
    (cpus / "online").write_text("0-7\n")
    return made, paths


@pytest.mark.parametrize("believes_kubernetes", [True, False], ids=["with-pods", "without-pods"])
@pytest.mark.parametrize("seed", range(TREES))
def test_nothing_is_taken_from_anybody_that_no_setting_gives_away(
    host: tuple[FakeHost, list[str]], tmp_path: Path, seed: int, believes_kubernetes: bool
) -> None:
    fake, paths = host
    chance = random.Random(seed)
    infos = random_infos(paths, chance)
    oracle = Oracle(infos, believes_kubernetes=believes_kubernetes)
    writer = Recorder()
    enforcer = fake.enforcer(
        writer=writer,
        state_dir=str(tmp_path / "state"),
        audit_file="",
        evict=True,
        evict_cooldown_seconds=0.0,
        evictions_per_hour=10_000,
        changes_per_minute=100_000,
        max_limited_ratio=1.0,
        max_frozen=1000,
    )
    suppress = chance.choice(["cpuset", "cfsQuota"])
    runner = StrategyRunner(all_on(suppress))
    enforcer.rights = rights_of(
        lambda: AgentSettings().response.limited_classes, runner, believes_kubernetes=believes_kubernetes
    )
    asked: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for source in (
        ladder_intents(infos, chance),
        strategy_intents(fake, infos, suppress),
        wild_intents(infos, chance),
    ):
        intents = {}
        for intent in source:
            key = (intent.target, intent.knob if isinstance(intent, Setting) else type(intent).__name__)
            intents[key, intent.strategy] = intent
        seen = len(writer.touched)
        events = enforcer.step(intents.values(), infos)
        asked["intents"] += len(intents)
        settings = {
            (one.strategy, one.target, one.knob.value): one for one in intents.values() if isinstance(one, Setting)
        }
        for event in events:
            if event.outcome in (Outcome.RECLAIMED, Outcome.TERMINATED, Outcome.KILLED, Outcome.EVICTING):
                assert not oracle.objection(event.strategy, event.target), event
                taken[event.outcome] += 1
            if event.outcome is not Outcome.SET or event.target not in oracle.infos:
                continue
            setting = settings[event.strategy, event.target, event.knob]
            check(setting)
            spec = KNOBS[setting.knob]
            way = compare(spec.amount(event.before), spec.amount(event.after)) if spec.may_widen_protected else None
            if way in (Direction.WIDER, Direction.SAME):
                continue
            assert not oracle.objection(event.strategy, event.target), event
            taken[event.knob] += 1
        changed = {event.file.partition("#")[0] for event in events if event.file}
        below = {event.target for event in events}
        for path, value in writer.touched[seen:]:
            place = "/" + path.removeprefix(str(fake.root / "cg")).strip("/")
            assert path in changed or place in below, f"{value} was written to {path} and no event says so"
    enforcer.close()
    assert asked["intents"] > 500
    assert sum(taken.values()) > 20, "the test must see settings that are allowed"
