"""On random trees of a thousand cgroups no rung and no strategy costs a bystander more than 2 % of what it wants.

A bystander is a busy cgroup that an action is not about: in answer to verdicts all but the culprit and the victim, of a
strategy all but the classes that its settings name. `tests/fair_shares.py` divides the CPUs, and the time of a disk,
before an action and after it, by the settings that the enforcer lets through. KOORD_RANDOM_TREES sets how many trees
are tried (3 by default), KOORD_RANDOM_PAIRS how many accusations for each rung (4).
"""

import math
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from api.cgroup_path import is_within, lineage
from api.cpuset import format_cpuset, parse_cpuset
from api.frame import CgroupInfo, CgroupKind
from api.intents import Intent, Knob, Setting
from api.qos import QoSClass
from api.window import Window
from koordlet.config import AgentSettings
from koordlet.control.node_view import NodeViewBuilder
from koordlet.control.rights import rights_of
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.enforcer.enforcer import Enforcer
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.values import quota_cpus
from koordlet.response.host_capabilities import HostCapabilities
from koordlet.response.ladders import LADDERS
from koordlet.response.observation import Observation
from koordlet.response.rungs.rung import Interference, Rung
from koordlet.response.settings import ResponseSettings
from koordlet.tick import Tick
from tests.fair_shares import IDLE_WEIGHT, Sharing, divide
from tests.frames import make_frame
from tests.koordlet.control.test_allowed_writes import ALLOWED, PROTOCOL, Recorder, random_infos, random_paths
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.strategies.test_together import all_on

TREES = int(os.environ.get("KOORD_RANDOM_TREES", "3"))
PAIRS = int(os.environ.get("KOORD_RANDOM_PAIRS", "4"))
CPUS = tuple(range(8))
DISK_BYTES = 200e6
"""What the disk moves in a second."""
MOST_HARM = 0.02
_DISK = (0,)
_BOUND = ((0.25, len(CPUS)), (0.08, 6), (0.03, 4))
"""By tree: where many are bound, no culprit can be moved out of their way."""
_MANY_BOUND = 12
"""Bound cgroups of a tree from which fewer rungs have an effect."""


@dataclass(frozen=True)
class Load:
    """What every cgroup wants of the CPUs and of a disk."""

    cpu: dict[str, Sharing]
    disk: dict[str, Sharing]


def random_load(infos: Iterable[CgroupInfo], chance: random.Random, bound: tuple[float, int]) -> Load:
    """A busy node: an eighth of the leaves run, some with CPUs, quotas or weights of their own; half of them read.

    `bound` is the part of them that is bound to CPUs, and to how many of the first ones.
    """
    bound_ratio, first_cpus = bound
    inner = {path for info in infos for path in lineage(info.path)[1:]} | {"/"}
    cpu: dict[str, Sharing] = {}
    disk: dict[str, Sharing] = {}
    for info in infos:
        weight = chance.choice([1.0, 20.0, 100.0, 100.0, 100.0, 800.0])
        one = Sharing(weight=weight if info.path != "/" else 100.0)
        if info.path not in inner and chance.random() < 0.12:
            draw = chance.random()
            pinned = frozenset(chance.sample(CPUS, chance.randint(1, 4))) if draw < _BOUND[0][0] else None
            pinned = frozenset(cpu % first_cpus for cpu in pinned) if pinned and draw < bound_ratio else None
            limit = chance.choice([0.2, 1.0, 2.0]) if chance.random() < 0.2 else math.inf
            one = replace(one, wants=chance.choice([0.05, 0.3, 1.0, 2.0, 8.0]), limit=limit, cpus=pinned)
            if chance.random() < 0.5:
                disk[info.path] = Sharing(wants=chance.choice([0.02, 0.2, 1.0]))
        cpu[info.path] = one
        disk.setdefault(info.path, Sharing())
    return Load(cpu, disk)


def under(load: Load, settings: Mapping[tuple[str, Knob], Setting]) -> Load:
    """The same node with these settings in effect."""
    cpu, disk = dict(load.cpu), dict(load.disk)
    for (path, knob), setting in settings.items():
        if path not in cpu:
            continue
        match knob:
            case Knob.CPU_IDLE if setting.value == "1":
                cpu[path] = replace(cpu[path], weight=IDLE_WEIGHT)
            case Knob.CPU_WEIGHT:
                cpu[path] = replace(cpu[path], weight=float(setting.value))
            case Knob.CPU_MAX:
                limited = math.inf if setting.value.startswith("max") else quota_cpus(setting.value)
                cpu[path] = replace(cpu[path], limit=limited)
            case Knob.CPUSET_CPUS:
                cpu[path] = replace(cpu[path], cpus=frozenset(parse_cpuset(setting.value)))
            case Knob.FREEZE if setting.value == "1":
                cpu[path], disk[path] = replace(cpu[path], is_frozen=True), replace(disk[path], is_frozen=True)
            case Knob.IO_WEIGHT:
                disk[path] = replace(disk[path], weight=float(setting.value.split()[-1]))
            case Knob.IO_MAX:
                rates = [int(word.partition("=")[2]) for word in setting.value.split() if word.startswith("rbps")]
                disk[path] = replace(disk[path], limit=min(rates) / DISK_BYTES if rates else math.inf)
    # An idle cgroup has that weight whatever its file says.
    for (path, knob), setting in settings.items():
        if knob is Knob.CPU_IDLE and setting.value == "1" and path in cpu:
            cpu[path] = replace(cpu[path], weight=IDLE_WEIGHT)
    return Load(cpu, disk)


def losses(load: Load) -> dict[tuple[str, str], float]:
    """What each busy cgroup wants and does not get, by resource and path."""
    return _losses("cpu", load.cpu) | _losses("disk", load.disk)


def _losses(resource: str, cgroups: Mapping[str, Sharing]) -> dict[tuple[str, str], float]:
    got = divide(cgroups, CPUS if resource == "cpu" else _DISK)
    return {(resource, path): cgroups[path].wants - one for path, one in got.items()}


def harmed(
    load: Load,
    settings: Mapping[tuple[str, Knob], Setting],
    before: Mapping[tuple[str, str], float],
    is_bystander: Mapping[str, bool],
) -> list[str]:
    """Bystanders that lose more than before by over 2 % of what they want."""
    changed, after = under(load, settings), {}
    for resource, was, now in (("cpu", load.cpu, changed.cpu), ("disk", load.disk, changed.disk)):
        if now != was:
            after |= _losses(resource, now)
    found = []
    for (resource, path), lost in after.items():
        wants = (load.cpu if resource == "cpu" else load.disk)[path].wants
        if is_bystander[path] and lost - before[resource, path] > MOST_HARM * wants:
            told = ", ".join(f"{one.strategy} {one.knob}={one.value} on {one.target}" for one in settings.values())
            found.append(
                f"{path} of {wants} loses {lost:.3f} of {resource}, {before[resource, path]:.3f} before: {told}"
            )
    return found


def observe(infos: tuple[CgroupInfo, ...], load: Load, before: Mapping[tuple[str, str], float]) -> Observation:
    """What the response sees of that node."""
    used = np.array([load.cpu[info.path].wants - before.get(("cpu", info.path), 0.0) for info in infos])
    waits = np.array([before.get(("cpu", info.path), 0.0) for info in infos])
    moved = [load.disk[info.path].wants - before.get(("disk", info.path), 0.0) for info in infos]
    count = len(infos)
    pinned = {path: one.cpus or frozenset(CPUS) for path, one in load.cpu.items()}
    return Observation(
        now_seconds=1.0,
        cgroups=infos,
        verdicts=(),
        lost={"cpu": waits},
        throttled=np.full(count, 1.0),
        cpu_cores=used,
        cpu_waits=waits,
        memory_bytes=np.full(count, 2.0**30),
        io_bytes_per_second=np.array(moved) * DISK_BYTES,
        turnaround_seconds=np.full(count, np.nan),
        capabilities=HostCapabilities(
            cpus=CPUS, cores={cpu: cpu // 2 for cpu in CPUS}, disks=("8:0",), cgroup_cpus=pinned
        ),
    )


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> tuple[FakeHost, list[str]]:
    made = FakeHost(tmp_path_factory.mktemp("node"))
    paths = random_paths(random.Random(12))
    for path in paths[1:]:
        made.make(path)
    cpus = made.root / "sys/devices/system/cpu"
    for cpu in CPUS:
        (cpus / f"cpu{cpu}/topology").mkdir(parents=True)
        (cpus / f"cpu{cpu}/topology/core_id").write_text(f"{cpu // 2}\n")
        (cpus / f"cpu{cpu}/topology/physical_package_id").write_text("0\n")
    (cpus / "online").write_text("0-7\n")
    return made, paths


@pytest.fixture
def node(host: tuple[FakeHost, list[str]], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["Node"]:
    fake, paths = host
    made = Node(fake, paths, request.param, tmp_path)
    with closing(made.enforcer):
        yield made


class Node:
    """A random node with its enforcer, whose budgets bind nothing."""

    def __init__(self, host: FakeHost, paths: list[str], seed: int, state: Path) -> None:
        self.chance = random.Random(seed)
        self.host = host
        self.infos = random_infos(paths, self.chance)
        self.load = random_load(self.infos, self.chance, _BOUND[seed % len(_BOUND)])
        for path, one in self.load.cpu.items():
            host.file(path, "cpuset.cpus").write_text(f"{format_cpuset(one.cpus or ())}\n")
            quota = "max" if one.limit == math.inf else f"{one.limit * 100_000:.0f}"
            host.file(path, "cpu.max").write_text(f"{quota} 100000\n")
            host.file(path, "cpu.weight").write_text(f"{one.weight:.0f}\n")
        self.before = losses(self.load)
        self.suppress = self.chance.choice(["cpuset", "cfsQuota"])
        self.enforcer: Enforcer = host.enforcer(
            writer=Recorder(),
            state_dir=str(state / "state"),
            audit_file="",
            changes_per_minute=100_000,
            pod_changes_per_minute=100_000,
            max_limited_ratio=1.0,
            max_frozen=1000,
        )
        runner = StrategyRunner(all_on(self.suppress))
        self.enforcer.rights = rights_of(
            lambda: AgentSettings().response.limited_classes, runner, believes_kubernetes=True
        )

    def harm(self, intents: Iterable[Intent], is_bystander: Mapping[str, bool]) -> tuple[list[str], int]:
        """Carry these out alone; return the harm, and how many settings are in effect."""
        wanted = [intent for intent in intents if isinstance(intent, Setting)]
        self.enforcer.step(wanted, self.infos)
        effective = self.enforcer.active_settings()
        return (harmed(self.load, effective, self.before, is_bystander) if effective else []), len(effective)


def test_shares_are_those_that_a_kernel_gives() -> None:
    tree = {
        "/": Sharing(),
        "/a": Sharing(weight=300),
        "/a/x": Sharing(wants=2, weight=100),
        "/a/y": Sharing(wants=0.5, weight=100),
        "/b": Sharing(wants=8, weight=100),
    }
    assert divide(tree, (0, 1)) == pytest.approx({"/a/x": 1.0, "/a/y": 0.5, "/b": 0.5})
    quota = tree | {"/a": Sharing(weight=300, limit=1.0)}
    assert divide(quota, (0, 1)) == pytest.approx({"/a/x": 0.5, "/a/y": 0.5, "/b": 1.0})
    pinned = {"/c": Sharing(wants=1, cpus=frozenset({1})), "/d": Sharing(wants=8), "/e": Sharing(wants=8)}
    assert divide(pinned, (0, 1)) == pytest.approx({"/c": 2 / 3, "/d": 2 / 3, "/e": 2 / 3})
    frozen = pinned | {"/d": Sharing(wants=8, is_frozen=True)}
    assert divide(frozen, (0, 1)) == pytest.approx({"/c": 1.0, "/d": 0.0, "/e": 1.0})


def test_harm_to_one_that_shares_the_last_cpu_is_seen() -> None:
    cpu = {"/batch": Sharing(wants=8), "/shop": Sharing(wants=1, cpus=frozenset({7}))}
    load = Load(cpu, {path: Sharing() for path in cpu})
    before = losses(load)
    narrow = Setting(strategy="calm", target="/batch", knob=Knob.CPUSET_CPUS, value="7", reason="because")
    assert harmed(load, {("/batch", Knob.CPUSET_CPUS): narrow}, before, dict.fromkeys(cpu, True))
    wide = Setting(strategy="calm", target="/batch", knob=Knob.CPUSET_CPUS, value="0-3", reason="because")
    assert not harmed(load, {("/batch", Knob.CPUSET_CPUS): wide}, before, {"/batch": False, "/shop": True})


@pytest.mark.parametrize("node", range(TREES), indirect=True)
def test_no_rung_costs_a_bystander_anything(node: Node) -> None:
    observation = observe(node.infos, node.load, node.before)
    limited = [info.path for info in node.infos if observation.classes_within(info.path) == {QoSClass.BE}]
    culprits = [path for path in limited if observation.used_by(path) > 0.01]
    victims = [info.path for info in node.infos if node.before.get(("cpu", info.path), 0.0) > 0.01]
    effective: Counter[str] = Counter()
    harm: list[str] = []
    for resource, rungs in LADDERS.items():
        for rung in rungs:
            for culprit, victim, intents in accusations(node, rung, resource, observation, culprits, victims):
                bystanders = {
                    path: not is_within(path, culprit) and not is_within(path, victim) for path in node.load.cpu
                }
                found, count = node.harm(intents, bystanders)
                effective[f"{resource} {rung.name}"] += count
                harm += found
    print(dict(effective))
    assert not harm, "\n".join([f"{len(harm)} harmed", *harm[:20]])
    bound = sum(one.cpus is not None for one in node.load.cpu.values())
    assert sum(effective.values()) > (5 if bound > _MANY_BOUND else 10), "the test must see rungs in effect"


@pytest.mark.parametrize("node", range(TREES), indirect=True)
def test_no_strategy_costs_those_anything_that_its_settings_do_not_name(node: Node) -> None:
    by_path = {info.path: info for info in node.infos}
    classes = {path: _class_of(path, by_path) for path in by_path}
    effective: Counter[str] = Counter()
    harm: list[str] = []
    for name, intents in strategy_intents(node):
        bystanders = {path: qos not in ALLOWED.get(name, PROTOCOL) for path, qos in classes.items()}
        found, count = node.harm(intents, bystanders)
        effective[name] += count
        harm += found
    print(dict(effective))
    assert not harm, "\n".join([f"{len(harm)} harmed", *harm[:20]])


def accusations(
    node: Node,
    rung: Rung,
    resource: str,
    observation: Observation,
    culprits: Sequence[str],
    victims: Sequence[str],
) -> Iterator[tuple[str, str, Sequence[Intent]]]:
    """Random pairs for which a rung has something to set, with what it sets."""
    found = 0
    for _ in range(50 * PAIRS):
        culprit, victim = node.chance.choice(culprits), node.chance.choice(victims)
        if found == PAIRS or is_within(victim, culprit):
            continue
        accusation = Interference(culprit, victim, resource, "accused", f"{victim}|rule", 1.0)
        accusation = replace(accusation, allowance_cores=node.chance.choice([0.1, 0.5, 4.0]))
        intents = rung.build(observation, accusation, ResponseSettings())
        if intents:
            found += 1
            yield culprit, victim, intents


def _class_of(path: str, by_path: Mapping[str, CgroupInfo]) -> QoSClass:
    for each in lineage(path):
        info = by_path.get(each)
        if info is not None and info.qos:
            return QoSClass(info.qos)
        if info is not None and each != path and info.kind is CgroupKind.KUBEPODS:
            break
    return QoSClass.NONE


def strategy_intents(node: Node) -> Iterator[tuple[str, list[Intent]]]:
    """Each strategy with everything switched on, in the second of two ticks."""
    used = [node.load.cpu[info.path].wants - node.before.get(("cpu", info.path), 0.0) for info in node.infos]
    columns = {
        "cpu.oncpu_ns": [int(each * 1e9) for each in used],
        "memstat.usage_bytes": [2**30] * len(used),
        "memstat.file_bytes": [2**28] * len(used),
        "pressure.memory_some_us": [1000] * len(used),
    }
    nothing = {name: [0] * len(used) for name in columns}
    cgroups = {info.id: info.path for info in node.infos}
    frames = [replace(make_frame(s, cgroups, c), cgroups=node.infos) for s, c in ((1.0, nothing), (2.0, columns))]
    view = NodeViewBuilder(node.host.tree, Knobs(node.host.tree)).view(Tick.of(Window(frames)), {})
    view = replace(view, node=replace(view.node, memory_bytes=1024 << 30), cpu_millicores=sum(used) * 1000)
    strategies = all_on(node.suppress)
    strategies["cpu_suppress"].gates |= {"BECPUManager": False}
    for name, strategy in strategies.items():
        for second in range(2):
            yield name, list(strategy.decide(view, 100.0 * second))
