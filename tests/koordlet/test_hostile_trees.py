"""Every face of the agent beside a user who makes 600 nested directories, paths beyond 4096 bytes and 4,100 empty ones.

The services beside him are all known in the first tick and measured in each; faces answer with what they have.
"""

import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from api.intents import Knob
from api.qos import QoSClass
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.agent import Agent
from koordlet.agent.probe_set import ProbeSet
from koordlet.config import AgentSettings, MetricsSettings, QoSRuleSettings
from koordlet.control.node_view import NodeViewBuilder
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.limits.rights import Rights
from koordlet.host.knobs.knobs import Knobs
from koordlet.metrics.cgroups import CgroupMetrics
from koordlet.snapshot import table as snapshot_table
from koordlet.snapshot.document import snapshot
from koordlet.tick import Tick
from koordlet.top.rows import rows
from tests.koordlet.enforcer.hosts import FakeHost, want
from tests.koordlet.strategies.test_together import all_on
from tests.koordlet.strategies.views import machine
from tests.trees import make_tree

SERVICES = [f"/shop/service-{number}" for number in range(20)]
USER = "/user.slice/user-1000.slice"
LEVELS, LONG_LEVELS, EMPTY = 600, 20, 4100
STAT = "usage_usec {}\nnr_periods 1\nnr_throttled 0\nthrottled_usec 0\n"


def nest(root: Path, name: str, levels: int) -> None:
    """Make nested directories whose path may be longer than any call takes."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def remove(root: Path, name: str, levels: int) -> None:
    """Undo `nest`: what cleans up after tests gives up on such paths."""
    for depth in range(levels, 0, -1):
        fd = os.open(root, os.O_RDONLY)
        for _ in range(depth - 1):
            below = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.rmdir(name, dir_fd=fd)
        os.close(fd)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHost]:
    made = FakeHost(tmp_path_factory.mktemp("node"))
    for path in (*SERVICES, "/batch/job"):
        made.make(path)
        make_tree(made.root / "cg" / path.strip("/"), {"cpu.stat": STAT.format(0)})
    user = made.root / "cg" / USER.strip("/")
    user.mkdir(parents=True)
    nest(user, "d", LEVELS)
    nest(user, "x" * 250, LONG_LEVELS)
    for number in range(EMPTY):
        (user / f"empty-{number}").mkdir()
    yield made
    remove(user, "x" * 250, LONG_LEVELS)


@pytest.fixture(scope="module")
def agent(host: FakeHost) -> Iterator[Agent]:
    rules = (
        QoSRuleSettings(match="/shop/*", qos_class=QoSClass.LS),
        QoSRuleSettings(match="/batch/*", qos_class=QoSClass.BE),
    )
    opened = Agent(AgentSettings(root=str(host.root), qos=rules), ProbeSet({}, {}, {}, {}))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def tick(agent: Agent, host: FakeHost) -> Tick:
    agent.collect()
    for path in SERVICES:
        make_tree(host.root / "cg" / path.strip("/"), {"cpu.stat": STAT.format(500_000)})
    agent.collect()
    window = agent.store.window()
    assert window is not None
    return Tick.of(window)


def test_every_service_is_known_in_the_first_tick(tick: Tick) -> None:
    known = {info.path for info in tick.window.frames[0].cgroups}
    assert known.issuperset(SERVICES)
    assert len(known) > LEVELS + LONG_LEVELS + EMPTY, "and so is all that the user made"


def test_strategies_see_every_service(tick: Tick, host: FakeHost) -> None:
    seen = NodeViewBuilder(host.tree, Knobs(host.tree)).view(tick, {})
    used = {group.path: group.cpu_millicores for group in seen.groups}
    assert all(used[path] is not None and used[path] > 0 for path in SERVICES)
    assert not [path for path in used if path.startswith(USER)], "what nobody classed is no group"
    node = replace(seen.node, cpus=machine(), memory_bytes=1 << 36)
    on = replace(seen, cpu_millicores=6_000.0, node=node, memory_bytes=1 << 35)
    for strategy in all_on().values():
        assert not [intent for intent in strategy.decide(on, 0.0) if intent.target.startswith(USER)]


def test_the_judge_goes_on(tick: Tick) -> None:
    judge = Judge(JudgeSettings())
    assert [judge.step(frame) for frame in tick.window.frames] == [[], []]


def test_the_metrics_page_has_a_bound(tick: Tick, agent: Agent) -> None:
    cgroups = CgroupMetrics(MetricsSettings(), agent.info_of, {"version": "0"})
    cgroups.update(tick, capabilities=agent.capabilities())
    registry = CollectorRegistry()
    registry.register(cgroups)
    page = generate_latest(registry)
    assert len(page) < 2 << 20


def test_the_snapshot_and_the_live_view(tick: Tick, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(msgspec.json.encode(snapshot(tick.window, agent.path_of, {}, {})))
    assert document["cgroups"]
    shown = io.StringIO()
    monkeypatch.setattr(snapshot_table, "Console", lambda: Console(file=shown, width=200))
    snapshot_table.print_table(snapshot(tick.window, agent.path_of, {}, {}))
    assert {row.info.path for row in rows(tick.window)} >= set(SERVICES)


def test_the_enforcer_limits_what_it_may_and_nothing_of_the_user(tick: Tick, host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.rights = Rights()
    deep = [info.path for info in tick.window.cgroups if info.path.startswith(USER)][:: EMPTY // 20]
    asked = [want(Knob.CPU_MAX, "20000 100000", path) for path in ("/batch/job", *deep)]
    outcomes = {event.target: event.outcome for event in enforcer.step(asked, tick.window.cgroups, now=host.clock)}
    assert outcomes.pop("/batch/job") is Outcome.SET
    assert set(outcomes.values()) <= {Outcome.PROTECTED, Outcome.GONE, Outcome.UNSUPPORTED, Outcome.FAILED}
    enforcer.close(host.later(1))
    assert host.text("/batch/job", "cpu.max").startswith("max")
