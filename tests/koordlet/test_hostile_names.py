"""Every face of the agent with cgroups of hostile names: no UTF-8, escape sequences, backslashes, markup."""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from api.cgroup_path import raw_path
from api.frame import Frame
from api.intents import Knob
from api.verdicts import Culprit, How, Verdict, from_json, to_json
from detector.recording.files import RecordedSegment
from detector.view import ref_of
from koordlet.agent.agent import Agent
from koordlet.agent.detection import DetectionState
from koordlet.agent.probe_set import ProbeSet
from koordlet.config import AgentSettings, MetricsSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.lifecycle import restore
from koordlet.metrics.cgroups import CgroupMetrics
from koordlet.metrics.verdicts import VerdictMetrics
from koordlet.outputs.verdict_log import VerdictLog
from koordlet.serving import koordlet_pb2 as pb
from koordlet.serving.wire import verdict_message, verdict_of
from koordlet.snapshot import table as snapshot_table
from koordlet.snapshot.document import snapshot
from koordlet.tick import Tick
from koordlet.top.draw import Columns, detail, line
from koordlet.top.rows import rows
from koordlet.top.verdicts import pane
from tests.detector.recording.recordings import write_segment
from tests.koordlet.enforcer.hosts import FakeHost, want
from tests.trees import make_tree
from tests.verdicts import make_verdict

NAMES = (
    b"bad\x80name",
    b"esc\x1b]0;title\x07\x1b[2J",
    b"carriage\rreturn",
    b"back\\slash\\x41",
    b'[bold]markup[red] {label="x"}',
    "right\u202eleft".encode(),
    b"kubepods-pod01234567-89ab-cdef-0123-456789abcdef.slice",
    b"docker-" + b"a" * 64 + b".scope",
    b"a" * 255,
)
STAT = "usage_usec {}\nnr_periods 1\nnr_throttled 0\nthrottled_usec 0\n"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    for name in (b"web", *NAMES):
        made.make(os.fsdecode(b"/" + name))
    spend(made, 0)
    return made


def spend(host: FakeHost, usage_usec: int) -> None:
    for name in (b"", b"web", *NAMES):
        make_tree(host.root / "cg" / os.fsdecode(name), {"cpu.stat": STAT.format(usage_usec)})


@pytest.fixture
def agent(host: FakeHost) -> Iterator[Agent]:
    opened = Agent(AgentSettings(root=str(host.root)), ProbeSet({}, {}, {}, {}))
    yield opened
    opened.close()


@pytest.fixture
def tick(agent: Agent, host: FakeHost) -> Tick:
    agent.collect(everything=True)
    spend(host, 500_000)
    agent.collect(everything=True)
    window = agent.store.window()
    assert window is not None
    verdicts = tuple(verdicts_between(window.last))
    return Tick.of(window, verdicts, verdicts)


def verdicts_between(frame: Frame) -> Iterator[Verdict]:
    """Each cgroup as a victim and as a culprit."""
    web = next(info for info in frame.cgroups if info.path == "/web")
    for info in frame.cgroups:
        for victim, culprit in ((info, web), (web, info)):
            made = make_verdict(victim.path, culprits=(Culprit(culprit.path, 0.5, How.DIRECT, ref_of(culprit)),))
            yield msgspec.structs.replace(made, victim_ref=ref_of(victim))


def test_paths_are_printable_different_and_lead_back(tick: Tick, host: FakeHost) -> None:
    paths = [info.path for info in tick.window.cgroups]
    assert {os.fsencode(raw_path(path)) for path in paths} == {b"/", b"/web", *(b"/" + name for name in NAMES)}
    assert all(path.isprintable() for path in paths)
    for info in tick.window.cgroups:
        assert all(text.isprintable() for text in (info.name, info.workload, info.container))


def test_the_metrics_page(tick: Tick, agent: Agent) -> None:
    cgroups = CgroupMetrics(MetricsSettings(), agent.info_of, {"version": "0"})
    verdicts = VerdictMetrics(100, agent.name_of)
    cgroups.update(tick, capabilities=agent.capabilities())
    verdicts.update(tick.verdicts, tick.open_verdicts, DetectionState())
    registry = CollectorRegistry()
    registry.register(cgroups)
    registry.register(verdicts)
    page = generate_latest(registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    used = families["koord_cgroup_cpu_usage_seconds"].samples
    assert {sample.labels["cgroup"] for sample in used} == {info.path for info in tick.window.cgroups}
    assert all(each.isprintable() for sample in used for each in sample.labels.values())


def test_lines_of_the_log_and_of_json(tick: Tick, agent: Agent) -> None:
    for name_of in (agent.name_of, agent.title_of, str):
        assert all(text.isprintable() for _level, text in VerdictLog(name_of).lines(tick.verdicts))
    for verdict in tick.verdicts:
        assert from_json(to_json(verdict)) == verdict


def test_messages_of_the_socket(tick: Tick) -> None:
    for verdict in tick.verdicts:
        assert verdict_of(pb.Verdict.FromString(verdict_message(verdict).SerializeToString())) == verdict


def test_the_snapshot(tick: Tick, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = snapshot(tick.window, agent.path_of, {}, {})
    document = json.loads(msgspec.json.encode(measured))
    assert len({row["name"] for row in document["cgroups"]}) == len(tick.window.cgroups)
    shown = io.StringIO()
    monkeypatch.setattr(snapshot_table, "Console", lambda: Console(file=shown, width=400))
    snapshot_table.print_table(measured)
    assert all(text.isprintable() for text in shown.getvalue().splitlines())
    assert "[bold]markup[red]" in shown.getvalue()


def test_the_live_view(tick: Tick, agent: Agent) -> None:
    found = rows(tick.window)
    for row in found:
        drawn = line(row, [], Columns.fit(120), is_selected=False)
        assert drawn.plain.isprintable()
        assert all(text.isprintable() for text in detail(row, [], [], 120, facts={}).plain.splitlines())
    shown = pane(tick.open_verdicts, 0.0, agent.name_of, width=120, lines=20).plain
    assert all(text.isprintable() for text in shown.splitlines())


def test_a_recording(tick: Tick, tmp_path: Path) -> None:
    write_segment(tmp_path / "s.koordrec", list(tick.window.frames))
    read = list(RecordedSegment(tmp_path / "s.koordrec").frames())
    assert [frame.cgroups for frame in read] == [frame.cgroups for frame in tick.window.frames]


def test_settings_are_made_audited_journalled_and_restored(tick: Tick, host: FakeHost) -> None:
    targets = [info.path for info in tick.window.cgroups if info.path not in ("/", "/web")]
    files = [host.root / "cg" / raw_path(path).strip("/") / "cpu.max" for path in targets]
    journal = host.journal()
    enforcer = host.enforcer(journal=journal)
    wanted = [want(Knob.CPU_MAX, "20000 100000", path, verdict=f"{path}|rule") for path in targets]
    events = enforcer.step(wanted, tick.window.cgroups, now=host.clock)
    assert {event.outcome for event in events} == {Outcome.SET}
    assert {file.read_text().split()[0] for file in files} == {"20000"}
    journal.close()
    restore(host.settings(), host.tree)
    assert {file.read_text().split()[0] for file in files} == {"max"}
    lines = (host.root / "audit.jsonl").read_text().splitlines()
    assert {json.loads(text)["target"] for text in lines} == set(targets)
    assert all(text.isprintable() for text in lines)
