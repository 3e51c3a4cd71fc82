"""The agent on a host of plain files: cgroups that come and go, sources that fail, ids of removed cgroups, names."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from api.frame import CGROUP, HOST, CgroupKind, Frame, Reading, Table
from api.plugin import Unsupported
from api.qos import QoSClass
from koordlet.agent.agent import Agent
from koordlet.agent.probe_set import ProbeSet
from koordlet.collectors import memstat
from koordlet.config import AgentSettings, CgroupSettings, ProbeSettings, QoSRuleSettings
from koordlet.identity.pods import PodContainer, PodFacts, PodTable
from probes.pairs import PairLedger
from probes.probe import Kernel, Probe, ProbeLimits
from tests.koordlet.enforcer.hosts import FakeHost
from tests.trees import make_tree

STAT = "usage_usec {}\nnr_periods 1\nnr_throttled 0\nthrottled_usec 0\n"
STAT_COLUMNS = {"cpustat.periods", "cpustat.throttled_periods", "cpustat.throttled_ns", "cpustat.usage_ns"}


class Reporting(Probe):
    """Reports the ids that a test gives it, and keeps those that it was asked to forget."""

    name = "reporting"

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.forgotten: list[int] = []
        self.reserved: list[int] = []
        self.error = ""
        self.is_closed = False

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Reporting":  # noqa: ARG003 - needs neither
        return cls()

    def read(self) -> Reading:
        if self.error:
            raise OSError(self.error)
        ids = np.array(self.ids, dtype=np.uint64)
        return Reading({CGROUP: Table({"cgroup": ids}, {"reporting.count": np.ones(len(ids), dtype=np.uint64)})})

    def forget(self, ids: NDArray[np.uint64]) -> None:
        self.forgotten += ids.tolist()

    def reserve(self, ids: NDArray[np.uint64]) -> int:
        self.reserved += ids.tolist()
        return 0

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    make_cgroups(made, "/", "/web", "/batch")
    return made


@pytest.fixture
def probe() -> Reporting:
    return Reporting()


@pytest.fixture
def make_agent(host: FakeHost, probe: Reporting) -> Iterator[Callable[..., Agent]]:
    opened: list[Agent] = []

    def make(cgroups: CgroupSettings | None = None, qos: tuple[QoSRuleSettings, ...] = ()) -> Agent:
        settings = AgentSettings(root=str(host.root), cgroups=cgroups or CgroupSettings(), qos=qos)
        opened.append(Agent(settings, ProbeSet({"reporting": probe}, {}, {}, {})))
        return opened[-1]

    yield make
    for agent in opened:
        agent.close()


@pytest.fixture
def agent(make_agent: Callable[..., Agent]) -> Agent:
    return make_agent()


def make_cgroups(host: FakeHost, *paths: str) -> None:
    for usage_usec, path in enumerate(paths):
        host.make(path)
        make_tree(host.root / "cg" / path.strip("/"), {"cpu.stat": STAT.format(usage_usec)})


POD_UID = "12345678-1234-1234-1234-123456789012"
POD = f"/kubepods/burstable/pod{POD_UID}"


def test_what_a_cgroup_is_stands_in_the_frame(host: FakeHost, agent: Agent) -> None:
    make_cgroups(host, "/kubepods", "/kubepods/burstable", POD, f"{POD}/{'a' * 64}")
    os.chown(host.root / "cg/web", 1000 if os.geteuid() == 0 else -1, -1)
    found = {info.path: info for info in agent.collect().cgroups}
    assert {path: info.kind for path, info in found.items()} == {
        "/": CgroupKind.ROOT,
        "/web": CgroupKind.PLAIN,
        "/batch": CgroupKind.PLAIN,
        "/kubepods": CgroupKind.KUBEPODS,
        "/kubepods/burstable": CgroupKind.KUBEPODS,
        POD: CgroupKind.POD,
        f"{POD}/{'a' * 64}": CgroupKind.CONTAINER,
    }
    container = found[f"{POD}/{'a' * 64}"]
    assert (container.pod_uid, container.container_id, container.kube_qos) == (POD_UID, "a" * 64, "Burstable")
    assert found["/batch"].owner_uid == os.geteuid()
    assert found["/web"].owner_uid == (1000 if os.geteuid() == 0 else os.geteuid())
    if os.geteuid() == 0:
        os.chown(host.root / "cg/web", 1001, -1)
        assert {info.path: info.owner_uid for info in agent.collect().cgroups}["/web"] == 1001


def remove(host: FakeHost, path: str) -> None:
    shutil.rmtree(host.root / "cg" / path.strip("/"))


def id_of(host: FakeHost, path: str) -> int:
    return (host.root / "cg" / path.strip("/")).stat().st_ino


def paths(frame: Frame) -> set[str]:
    return {info.path for info in frame.cgroups}


def test_probes_can_be_switched_off_as_a_whole(host: FakeHost) -> None:
    agent = Agent(AgentSettings(root=str(host.root), probes=ProbeSettings(backend="none")))
    assert not agent.probes.opened
    assert not agent.capabilities()["cpu"]
    assert agent.capabilities()["cpustat"]
    assert agent.collect().sources["cpu"] == "disabled in the settings"
    agent.close()


def test_a_host_without_a_cpu_hierarchy_is_unsupported(tmp_path: Path) -> None:
    make_tree(tmp_path, {"proc/self/mountinfo": ""})
    with pytest.raises(Unsupported, match="cgroup"):
        Agent(AgentSettings(root=str(tmp_path)))


def test_rows_follow_cgroups_that_come_and_go(agent: Agent, host: FakeHost) -> None:
    assert paths(agent.collect(everything=True)) == {"/", "/web", "/batch"}
    make_cgroups(host, "/web/worker")
    remove(host, "/batch")
    frame = agent.collect(everything=True)
    assert paths(frame) == {"/", "/web", "/web/worker"}
    assert frame.cgroup.ids.tolist() == [info.id for info in frame.cgroups]
    assert all(len(column) == 3 for column in frame.cgroup.columns.values())


def test_ignored_cgroups_have_no_row(make_agent: Callable[..., Agent], host: FakeHost) -> None:
    make_cgroups(host, "/batch/job")
    agent = make_agent(CgroupSettings(ignore=("/batch*",)))
    assert paths(agent.collect(everything=True)) == {"/", "/web"}
    remove(host, "/batch/job")
    assert paths(agent.collect(everything=True)) == {"/", "/web"}


def test_a_cgroup_has_the_class_of_the_first_rule_that_matches(make_agent: Callable[..., Agent]) -> None:
    rules = (("/web", QoSClass.LS), ("*", QoSClass.BE))
    frame = make_agent(qos=tuple(QoSRuleSettings(match=match, qos_class=qos) for match, qos in rules)).collect()
    assert {info.path: info.qos for info in frame.cgroups} == {"/": "BE", "/web": "LS", "/batch": "BE"}


@pytest.mark.parametrize(("out_of_turn", "read"), [(0, "123"), (32, "333")])
def test_costly_files_are_read_in_turn_and_few_out_of_it(
    make_agent: Callable[..., Agent],
    host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
    out_of_turn: int,
    read: str,
) -> None:
    monkeypatch.setattr(memstat, "MOST_REFAULTING", out_of_turn)
    for path in ("/", "/web", "/batch"):
        make_tree(host.root / "cg" / path.strip("/"), {"memory.stat": "anon 4096\nfile 0\n"})
    agent = make_agent(CgroupSettings(slow_every_ticks=3))
    known = [int(np.isfinite(agent.collect().cgroup.columns["memstat.anon_bytes"]).sum()) for _ in range(3)]
    assert "".join(map(str, known)) == read


def test_columns_of_a_removed_cgroup_are_forgotten(agent: Agent, host: FakeHost, probe: Reporting) -> None:
    agent.collect(everything=True)
    identity = id_of(host, "/batch")
    remove(host, "/batch")
    agent.collect(everything=True)
    assert probe.forgotten == [identity]
    make_cgroups(host, "/", "/web", "/batch")
    host.file("/batch", "cpu.stat").unlink()
    frame = agent.collect(everything=True)
    row = [info.path for info in frame.cgroups].index("/batch")
    for name in STAT_COLUMNS:
        assert np.isnan(frame.cgroup.columns[name][row]), name


def test_a_collector_that_fails_in_a_tick_is_named_and_the_others_go_on(agent: Agent, host: FakeHost) -> None:
    make_tree(host.root, {"proc/stat": "cpu0 1 2 3 4 5 6 7 broken 0 0\n"})
    frame = agent.collect(everything=True)
    assert "broken" in frame.sources["hostwide"]
    assert set(frame.cgroup.columns) >= STAT_COLUMNS
    make_tree(host.root, {"proc/stat": "cpu0 1 2 3 4 5 6 7 8 0 0\n"})
    frame = agent.collect(everything=True)
    assert "hostwide" not in frame.sources
    assert "host.cpu" in frame.tables


def test_a_probe_that_fails_in_a_tick_is_named_and_tried_again(agent: Agent, probe: Reporting) -> None:
    probe.error = "map is gone"
    frame = agent.collect()
    assert frame.sources["reporting"] == "map is gone"
    assert set(frame.cgroup.columns) >= STAT_COLUMNS
    probe.error = ""
    assert "reporting" not in agent.collect().sources


def test_an_id_that_only_a_probe_knows_makes_the_walk_list_anew(agent: Agent, host: FakeHost, probe: Reporting) -> None:
    agent.collect(everything=True)
    make_cgroups(host, "/batch/a", "/batch/b")
    remove(host, "/batch/a")  # the parent's link count is what it would be for another child
    probe.ids = [id_of(host, "/batch/b")]
    frame = agent.collect()
    row = [info.path for info in frame.cgroups].index("/batch/b")
    assert frame.cgroup.columns["reporting.count"][row] == 1
    assert not probe.forgotten


def test_an_id_that_stays_unknown_is_forgotten_in_the_next_tick(agent: Agent, probe: Reporting) -> None:
    probe.ids = [999_999_999]
    frame = agent.collect()
    assert 999_999_999 not in frame.cgroup.ids
    assert not probe.forgotten
    agent.collect()
    assert probe.forgotten == [999_999_999]


def test_of_a_flood_of_unknown_ids_nothing_is_kept_and_each_known_cgroup_keeps_its_place(
    agent: Agent, host: FakeHost, probe: Reporting
) -> None:
    agent.collect(everything=True)
    strangers = list(range(999_000_000, 999_000_300))
    probe.ids = [*strangers, id_of(host, "/batch")]
    frame = agent.collect()
    assert probe.forgotten == strangers
    known = set(frame.cgroup.ids.tolist())
    assert set(probe.reserved) == known - {id_of(host, "/batch")}
    assert agent.lost["probes.strangers"] == len(strangers)


def test_of_small_maps_unknown_ids_take_a_quarter(host: FakeHost, probe: Reporting) -> None:
    settings = AgentSettings(root=str(host.root), probes=ProbeSettings(max_cgroups=40))
    with closing(Agent(settings, ProbeSet({"reporting": probe}, {}, {}, {}))) as agent:
        agent.collect(everything=True)
        probe.ids = list(range(999_000_000, 999_000_010))
        agent.collect()
        assert not probe.forgotten
        probe.ids = list(range(999_001_000, 999_001_011))
        agent.collect()
        assert probe.forgotten == probe.ids


def test_ids_that_come_and_go_in_every_tick_make_the_walk_list_anew_now_and_then(
    agent: Agent, probe: Reporting, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = []
    relist = agent._walk.relist
    monkeypatch.setattr(agent._walk, "relist", lambda: listings.append(True) or relist())
    for number in range(32):
        probe.ids = [999_000_000 + number, 999_000_001 + number]
        agent.collect()
    assert len(listings) == 6
    assert len(probe.forgotten) >= 4


def test_the_id_of_an_ignored_cgroup_is_not_forgotten(
    make_agent: Callable[..., Agent], host: FakeHost, probe: Reporting
) -> None:
    agent = make_agent(CgroupSettings(ignore=("/batch",)))
    probe.ids = [id_of(host, "/batch")]
    for _ in range(3):
        assert id_of(host, "/batch") not in agent.collect().cgroup.ids
    assert not probe.forgotten


def test_paths_and_names_of_removed_cgroups_are_remembered(agent: Agent, host: FakeHost) -> None:
    make_cgroups(host, "/system.slice/cron.service")
    agent.collect(everything=True)
    identity = id_of(host, "/system.slice/cron.service")
    remove(host, "/system.slice")
    assert "/system.slice" not in paths(agent.collect(everything=True))
    assert agent.path_of(identity) == "/system.slice/cron.service"
    assert agent.name_of("/system.slice/cron.service") == "cron.service"
    assert agent.path_of(1) is None


def test_a_name_that_two_cgroups_share_is_spelled_as_their_paths(agent: Agent, host: FakeHost) -> None:
    make_cgroups(host, "/a/web", "/b/web", "/b/db")
    agent.collect(everything=True)
    assert [agent.name_of(path) for path in ("/a/web", "/b/web", "/b/db", "/unknown")] == [
        "/a/web",
        "/b/web",
        "db",
        "/unknown",
    ]
    remove(host, "/web")
    make_cgroups(host, "/b/cache")
    agent.collect(everything=True)
    assert agent.name_of("/b/cache") == "cache"


def test_extra_readings_and_losses_are_in_the_frame(agent: Agent) -> None:
    agent.extra_readings.append(
        lambda: Reading({HOST: Table({}, {"triage.level": np.array([2.0])})}, {"triage.failures": 4})
    )
    agent.lost["agent.ticks"] += 1
    frame = agent.collect()
    assert frame.tables[HOST].columns["triage.level"].tolist() == [2.0]
    assert frame.tables[HOST].columns["agent.cgroups"].tolist() == [3.0]
    assert (frame.lost["triage.failures"], frame.lost["agent.ticks"]) == (4, 1)


def test_closing_closes_the_probes_once_and_for_all(agent: Agent, probe: Reporting) -> None:
    agent.collect()
    agent.close()
    assert probe.is_closed
    agent.close()


def test_frames_follow_the_table_of_pods(host: FakeHost) -> None:
    table, asked = PodTable(generation=1), []
    agent = Agent(
        AgentSettings(root=str(host.root)),
        ProbeSet({}, {}, {}, {}),
        lambda: table,
        on_unknown_pods=lambda: asked.append(1),
    )
    make_cgroups(host, POD, f"{POD}/{'a' * 64}")
    found = {info.path: info for info in agent.collect(everything=True).cgroups}
    assert (found[POD].kind, len(asked)) == (CgroupKind.PLAIN, 1)
    container = PodContainer("app", "a" * 64)
    facts = PodFacts("shop/web-0", QoSClass.LS, uid=POD_UID, workload="StatefulSet/shop/web", containers=(container,))
    table = PodTable((facts,), generation=2)
    found = {info.path: info for info in agent.collect().cgroups}
    assert found[f"{POD}/{'a' * 64}"].name == "shop/web-0/app"
    assert agent.title_of(f"{POD}/{'a' * 64}") == "shop/web-0/app (StatefulSet web)"
    assert agent.title_of("/web") == "web"
    agent.close()


def test_what_many_small_culprits_do_is_blamed_on_the_cgroup_above_them(
    host: FakeHost, probe: Reporting, make_agent: Callable[..., Agent]
) -> None:
    jobs = [f"/ci/jobs/j{number}" for number in range(100)]
    make_cgroups(host, "/ci", "/ci/jobs", *jobs)
    probe.pairs = PairLedger(max_pairs=64)
    agent = make_agent()

    def blamed(victim: int, culprits: list[int]) -> dict[int, int]:
        """Take 7 ns behind each and return the victim's pairs."""
        assert probe.pairs is not None
        rows = np.array([(victim, culprit, 7) for culprit in culprits], dtype=np.uint64)
        probe.pairs.add(*rows.T)
        table = probe.pairs.table("x")
        mine = table.ids == victim
        return dict(zip(table.keys["culprit"][mine].tolist(), table.columns["x"][mine].tolist(), strict=True))

    ids = {info.path: info.id for info in agent.collect().cgroups}
    found = blamed(ids["/web"], [ids[path] for path in jobs])
    assert found[ids["/ci/jobs"]] >= 60 * 7
    assert set(found) <= {ids["/ci/jobs"], *(ids[path] for path in jobs)}, "none is of no name"
    for path in jobs:
        shutil.rmtree(host.root / "cg" / path.strip("/"))
    agent.collect()
    found = blamed(ids["/batch"], [ids[path] for path in jobs])
    assert found[ids["/ci/jobs"]] >= 60 * 7, "jobs that have ended are remembered"
