"""Resource groups against a resctrl that behaves like the kernel's, with real threads and cgroups made of files."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from api.intents import Knob, Setting
from api.qos import QoSClass
from koordlet.control.capabilities import caches
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.journal import Journal
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.host.knobs.knobs import Knobs
from koordlet.response.rungs.cache import schemata as squeezed
from tests.koordlet.enforcer.hosts import FakeHost, infos, want
from tests.resctrl_fs.client import MountedResctrl, mounted
from tests.resctrl_fs.hardware import AMD, INTEL, INTEL_L2, Machine

pytestmark = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no /dev/fuse")

SQUEEZED = "L3:0=3;1=3\nMB:0=15"


class Host(FakeHost):
    """Its cgroup `/pod` holds a real process."""

    fs: MountedResctrl
    process: subprocess.Popen[bytes]

    def enforcer_on(self, *, journal: Journal | None = None, **changes: object) -> Enforcer:
        knobs = Knobs(self.tree, self.fs.path)
        return open_enforcer(self.settings(**changes), self.tree, knobs=knobs, journal=journal, now=self.clock)

    def groups(self) -> dict[str, str]:
        """Every group with its schemata."""
        names = [path.name for path in self.fs.path.iterdir() if path.is_dir()]
        known = [name for name in names if name not in ("info", "mon_groups", "mon_data")]
        return {name: (self.fs.path / name / "schemata").read_text() for name in sorted(known)}

    def members(self, group: str) -> list[int]:
        return [int(word) for word in (self.fs.path / group / "tasks").read_text().split()]


@pytest.fixture(params=[INTEL, replace(INTEL, l3=replace(INTEL.l3, num_closids=3))], ids=["roomy", "three-classes"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "host", 2)
    made.make("/pod")
    with (
        mounted(request.param, tmp_path / "resctrl") as fs,
        subprocess.Popen(["sleep", "1000"], start_new_session=True) as process,
    ):
        made.fs, made.process = fs, process
        for name in ("cgroup.procs", "cgroup.threads"):
            made.file("/pod", name).write_text(f"{process.pid}\n")
        yield made
        os.kill(process.pid, signal.SIGKILL)


def intents(group: str = "squeezed", schemata: str = SQUEEZED) -> list[Setting]:
    return [want(Knob.RESCTRL_SCHEMATA, schemata, group), want(Knob.RESCTRL_GROUP, group)]


@pytest.mark.parametrize(("only", "is_left"), [((), False), (("/pod",), True)], ids=["everything", "only-named"])
def test_where_only_cgroups_are_named_groups_of_others_stay(host: Host, only: tuple[str, ...], is_left: bool) -> None:
    (host.fs.path / "theirs").mkdir()
    before = host.groups()["theirs"]
    enforcer = host.enforcer_on(only=only)
    events = enforcer.step(intents("theirs"), infos(pod=QoSClass.BE), host.later(1))
    assert (host.groups()["theirs"] == before) is is_left
    assert any(event.outcome is Outcome.PROTECTED for event in events) is is_left
    enforcer.step(intents("squeezed"), infos(pod=QoSClass.BE), host.later(1))
    assert host.groups().get("squeezed", before) != before
    enforcer.close(host.later(1))


def test_a_group_is_made_filled_and_removed(host: Host) -> None:
    root_before = (host.fs.path / "schemata").read_text()
    enforcer = host.enforcer_on()
    events = enforcer.step(intents(), now=host.clock)
    assert {event.outcome for event in events} == {Outcome.SET}
    # The kernel rounds 15 up to the hardware's next step, and that is still ours.
    assert host.groups() == {"squeezed": "    MB:0=20;1=100\n    L3:0=3;1=3\n"}
    assert host.members("squeezed") == [host.process.pid]
    assert {event.outcome for event in enforcer.step(intents(), now=host.later(1))} == {Outcome.UNCHANGED}
    enforcer.step([], now=host.later(1))
    assert host.groups() == {}
    assert host.process.pid in host.members("")
    assert (host.fs.path / "schemata").read_text() == root_before


def test_a_group_that_is_wanted_as_it_is_made_stays(host: Host) -> None:
    enforcer = host.enforcer_on()
    intent = want(Knob.RESCTRL_SCHEMATA, "L3:0=7ff;1=7ff", "reserved")
    assert [event.after for event in enforcer.step([intent], now=host.clock)] == ["present", intent.value]
    for _ in range(3):
        assert [event.outcome for event in enforcer.step([intent], now=host.later(1))] == [Outcome.UNCHANGED]
        assert "reserved" in host.groups()
    enforcer.step([], now=host.later(1))
    assert host.groups() == {}


def test_a_refused_schemata_surfaces_what_resctrl_says(host: Host) -> None:
    enforcer = host.enforcer_on()
    events = enforcer.step([want(Knob.RESCTRL_SCHEMATA, "L3:0=5", "odd")], now=host.clock)
    failed = next(event for event in events if event.outcome == Outcome.FAILED)
    assert "The mask 5 has non-consecutive 1-bits" in failed.reason
    enforcer.close(host.clock)
    assert host.groups() == {}


def test_a_group_that_was_there_stays_with_its_schemata(host: Host) -> None:
    (host.fs.path / "squeezed").mkdir()
    (host.fs.path / "squeezed/schemata").write_text("L3:0=f\n")
    enforcer = host.enforcer_on()
    enforcer.step(intents(), now=host.clock)
    assert "L3:0=3;1=3" in host.groups()["squeezed"]
    enforcer.close(host.clock)
    assert host.groups() == {"squeezed": "    MB:0=100;1=100\n    L3:0=f;1=7ff\n"}
    assert host.members("squeezed") == []


def test_without_a_free_class_a_group_of_the_same_schemata_is_used(host: Host) -> None:
    number = 0
    while True:
        try:
            (host.fs.path / f"other{number}").mkdir()
        except OSError:
            break
        number += 1
    enforcer = host.enforcer_on()
    events = enforcer.step(intents(), now=host.clock)
    refused = [event for event in events if event.outcome == Outcome.FAILED]
    assert len(refused) == 2
    assert "No space left" in refused[0].reason
    assert host.process.pid in host.members("")
    (host.fs.path / "other1/schemata").write_text("L3:0=3;1=3\n")
    (host.fs.path / "other1/schemata").write_text("MB:0=20\n")
    before = host.groups()
    events = enforcer.step(intents(), now=host.later(20))
    assert [event.outcome for event in events if event.knob == "resctrl.group"] == [Outcome.SET]
    assert host.members("other1") == [host.process.pid]
    assert host.groups() == before
    enforcer.step([], now=host.later(1))
    assert host.members("other1") == []
    assert host.groups() == before


def test_a_run_that_ended_badly_leaves_no_group(host: Host) -> None:
    journal = host.journal()
    host.enforcer_on(journal=journal).step(intents(), now=host.clock)
    journal.close()
    assert "squeezed" in host.groups()
    host.enforcer_on().close(host.clock)
    assert host.groups() == {}
    assert host.process.pid in host.members("")


def test_a_foreign_write_to_schemata_or_tasks_is_noticed(host: Host) -> None:
    (host.fs.path / "theirs").mkdir()
    enforcer = host.enforcer_on()
    enforcer.step(intents(), now=host.clock)
    (host.fs.path / "theirs/tasks").write_text(f"{host.process.pid}\n")
    (host.fs.path / "squeezed/schemata").write_text("L3:0=1\n")
    events = enforcer.step(intents(), now=host.later(1))
    foreign_write = {event.file.rpartition("/")[2] for event in events if event.outcome == Outcome.FOREIGN_WRITE}
    assert foreign_write == {"pod#resctrl", "schemata#L3:0"}
    assert host.members("theirs") == [host.process.pid]
    enforcer.close(host.clock)
    assert host.members("theirs") == [host.process.pid]


def test_a_protected_cgroup_changes_no_group_and_none_is_made(host: Host) -> None:
    enforcer = host.enforcer_on()
    events = enforcer.step([want(Knob.RESCTRL_GROUP, "squeezed")], infos(pod=QoSClass.LSE), host.clock)
    assert [event.outcome for event in events] == [Outcome.PROTECTED]
    assert host.groups() == {}


def test_a_dry_run_tells_the_same_and_makes_nothing(host: Host) -> None:
    def told(*, dry_run: bool) -> list[tuple[str, ...]]:
        enforcer = host.enforcer_on(dry_run=dry_run)
        events = enforcer.step(intents(), now=host.clock)
        events += enforcer.step(intents(), now=host.later(1))
        assert bool(host.groups()) != dry_run
        events += enforcer.close(host.clock)
        return [(event.file, event.before, event.after, event.outcome, event.reason) for event in events]

    dry = told(dry_run=True)
    assert host.groups() == {}
    assert dry == told(dry_run=False)


def test_without_resctrl_it_is_a_reason(tmp_path: Path) -> None:
    plain = FakeHost(tmp_path, 2)
    plain.make("/pod")
    events = plain.enforcer().step(intents(), now=plain.clock)
    assert {event.outcome for event in events} == {Outcome.UNSUPPORTED}
    assert "mount -t resctrl" in events[0].reason


@pytest.mark.parametrize(
    ("machine", "options", "schemata"),
    [
        pytest.param(INTEL, ["cdp"], "    MB:0=20;1=100\nL3DATA:0=3;1=3\nL3CODE:0=3;1=3\n", id="code-and-data-apart"),
        pytest.param(INTEL_L2, ["cdpl2"], None, id="l2-code-and-data-apart"),
        pytest.param(INTEL_L2, [], None, id="l2"),
        pytest.param(AMD, ["cdp"], None, id="amd"),
    ],
)
def test_a_share_of_the_cache_is_set_on_every_kind_of_machine(
    machine: Machine, options: list[str], schemata: str | None, tmp_path: Path
) -> None:
    host = FakeHost(tmp_path / "host", 2)
    with mounted(machine, tmp_path / "resctrl", options) as fs:
        found = caches(fs.path)
        asked = SQUEEZED if schemata else squeezed(found, 50)
        enforcer = open_enforcer(host.settings(), host.tree, knobs=Knobs(host.tree, fs.path), now=host.clock)
        before = (fs.path / "schemata").read_text()
        events = enforcer.step([want(Knob.RESCTRL_SCHEMATA, asked, "squeezed")], now=host.clock)
        assert {event.outcome for event in events} == {Outcome.SET}, events
        text = (fs.path / "squeezed/schemata").read_text()
        if schemata:
            assert text == schemata
        for line in text.splitlines():
            name, _, values = line.strip().partition(":")
            first = values.split(";")[0].partition("=")[2]
            full = (
                next(each for each in before.splitlines() if each.strip().startswith(name)).split("=")[1].split(";")[0]
            )
            assert first.strip() != full.strip(), f"{name} is squeezed: {line}"
        again = enforcer.step([want(Knob.RESCTRL_SCHEMATA, asked, "squeezed")], now=host.later(1))
        assert {event.outcome for event in again} == {Outcome.UNCHANGED}
        enforcer.close(host.later(1))
        assert (fs.path / "schemata").read_text() == before


def test_amd_counts_bandwidth_in_eighths_of_a_gigabyte(tmp_path: Path) -> None:
    with mounted(AMD, tmp_path / "resctrl") as fs:
        found = caches(fs.path)
    assert found.bandwidth_is_absolute
    assert "MB:0=80;1=80;2=80;8=80" in squeezed(found, 50)
    with mounted(INTEL, tmp_path / "intel") as fs:
        assert not caches(fs.path).bandwidth_is_absolute
