"""kill -9 at any time: the next start restores everything, and only once."""

import errno
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.cpuset import format_cpuset
from api.intents import Intent, Knob, Setting
from api.plugin import Unsupported
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.journal_format import decode
from koordlet.enforcer.lifecycle import open_enforcer, restore
from koordlet.host.attributes import Attribute, KernelFile, ProcessFiles
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside]

KILLS = 200
BUDGET_SECONDS = 120.0
LEAST_KILLS = 20
"""On a machine so slow that the budget ends before all of them."""
MIB = 1 << 20
HOST = HostTree()

VALUES: dict[Knob, tuple[str, ...]] = {
    Knob.CPU_MAX: ("max 100000", "10000 100000", "20000 50000", "5000 200000"),
    Knob.CPU_BURST: ("0", "1000", "4000"),
    Knob.CPU_WEIGHT: ("1", "50", "300"),
    Knob.CPU_IDLE: ("0", "1"),
    Knob.CPUSET_CPUS: ("0", "1", "0-1"),
    Knob.MEMORY_MAX: (str(64 * MIB), str(100 * MIB + 5), "max"),
    Knob.FREEZE: ("0", "1"),
    Knob.OOM_SCORE_ADJ: ("300", "700"),
}

ORIGINALS = {
    "v1": {"cpu.shares": "700", "cpu.cfs_quota_us": "40000", "cpu.cfs_burst_us": "3000"},
    "v2": {"cpu.weight": "70", "cpu.max": "40000 100000", "cpu.max.burst": "3000"},
}


class Scene:
    """Cgroups with odd originals; some come and go."""

    def __init__(self, tree: CgroupTree, state: Path) -> None:
        self.tree = tree
        self.settings = EnforcerSettings(
            enabled=True,
            strategies=("*",),
            changes_per_minute=1_000_000,
            pod_changes_per_minute=1_000_000,
            foreign_write_backoff_seconds=1.0,
            state_dir=str(state),
            audit_file=str(state / "audit.jsonl"),
        )
        self.top = tree.make_cgroup("killed")
        self.staying = [self.top, self.pod("a"), self.pod("b")]
        self.visitor: TestCgroup | None = None
        self.sleeper = self.staying[1].spawn(["sleep", "1000"])
        comm = Path(f"/proc/{self.sleeper.pid}/comm")
        wait_for(lambda: comm.read_text().strip() == "sleep")

    def pod(self, name: str) -> TestCgroup:
        pod = self.top.make_cgroup(name)
        for name, text in ORIGINALS[self.tree.version].items():
            (pod.cpu_dir / name).write_text(text)
        return pod

    @property
    def living(self) -> list[TestCgroup]:
        return [*self.staying, *([self.visitor] if self.visitor else [])]

    def churn(self) -> None:
        if self.visitor is not None:
            self.visitor.remove()
            self.visitor = None
            return
        try:
            self.visitor = self.pod("visitor")
        except OSError as error:
            # v1 refuses a quota above the parent's, which the stopped child may have lowered: the visitor comes later.
            if error.errno != errno.EINVAL or self.tree.version != "v1":
                raise
            self.top.children[-1].remove()

    def intents(self, chance: random.Random) -> list[Intent]:
        paths = [cgroup.path for cgroup in self.staying] + [f"{self.top.path}/visitor"]
        return [
            Setting(strategy="churn", target=path, reason="because", knob=knob, value=chance.choice(values))
            for path in paths
            for knob, values in VALUES.items()
            if chance.random() < 0.5
        ]

    def texts(self) -> dict[str, str]:
        """Return the contents of every file of the living cgroups and of the process, by the journal's keys."""
        found = {}
        for cgroup in self.living:
            for attribute in self.places(cgroup):
                texts = attribute.read()
                if texts:
                    found[attribute.key] = ",".join(sorted(texts))
        return found

    def places(self, cgroup: TestCgroup) -> Iterator[Attribute]:
        knobs = Knobs(HOST)
        for knob, values in VALUES.items():
            try:
                for assignment in knobs.assignments(knob, cgroup.path, values[-1]):
                    if isinstance(assignment.attribute, KernelFile | ProcessFiles):
                        yield assignment.attribute
            except (Unsupported, CgroupGone):
                continue

    def one_step_seconds(self) -> float:
        """Time of one start and step, with all put back afterwards."""
        began = time.monotonic()
        enforcer = open_enforcer(self.settings, HOST)
        enforcer.step(self.intents(random.Random(0)))
        taken = time.monotonic() - began
        enforcer.close()
        return taken

    def run_forever(self, seed: int) -> None:
        chance = random.Random(seed)
        enforcer = open_enforcer(self.settings, HOST)
        while True:
            enforcer.step(self.intents(chance))

    def close(self) -> None:
        self.top.remove()


@pytest.fixture
def scene(tree: CgroupTree, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tree, tmp_path / "state")
    try:
        yield made
    finally:
        made.close()


def killed_run(work: Callable[[], None], meanwhile: Callable[[], None], seconds: float, log: Path) -> None:
    """Run `work` in a child and kill it after `seconds`, doing something else in between."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must not go on as a second test run
            log.write_text(traceback.format_exc())
        os._exit(1)
    try:
        time.sleep(seconds / 2)
        os.kill(pid, signal.SIGSTOP)  # a new cgroup belongs to its maker until its values are set
        meanwhile()
        os.kill(pid, signal.SIGCONT)
        time.sleep(seconds / 2)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), log.read_text() if log.exists() else "the child ended by itself"


def is_back(key: str, text: str, expected: str) -> bool:
    """A populated v2 cgroup takes no empty list: it names the parent's CPUs instead."""
    if key.endswith("cpuset.cpus") and not expected:
        return text in ("", format_cpuset(range(os.cpu_count() or 1)))
    return text == expected


@pytest.mark.slow
def test_killed_at_any_moment_everything_goes_back_once(scene: Scene, tmp_path: Path) -> None:
    chance = random.Random(2026)
    originals = scene.texts()
    longest_seconds = max(0.2, 2 * scene.one_step_seconds())
    journal = tmp_path / "state" / "journal"
    deadline = time.monotonic() + BUDGET_SECONDS
    restored, kills, stood = 0, 0, 0
    for number in range(KILLS):
        if time.monotonic() > deadline:
            break
        killed_run(
            lambda number=number: scene.run_forever(number),  # type: ignore[misc]
            scene.churn,
            chance.uniform(0.0, longest_seconds),
            tmp_path / "child.log",
        )
        kills += 1
        fresh = {key: text for key, text in scene.texts().items() if key not in originals}
        journalled = decode(journal.read_bytes()) if journal.exists() else decode(b"")
        assert not journalled.damage
        for key, text in scene.texts().items():
            # A process is in its own cgroup and in those above.
            entries = [
                entry
                for known, entry in journalled.live.items()
                if known == key or ("#" in key and isinstance(entry.attribute, ProcessFiles))
            ]
            allowed = {originals.get(key, text)}.union(*({entry.original, *entry.ours} for entry in entries))
            known = set(text.split(",")) <= allowed or is_back(key, text, originals.get(key, text))
            assert known or key in fresh, f"{key} holds {text}, not one of {allowed}"
            stood += text != originals.get(key, text)
        if number % 3:
            continue  # the next child finds the journal, and may be killed while it puts things back
        events = restore(scene.settings, HOST)
        restored += sum(event.outcome == Outcome.RESTORED for event in events)
        refused = [f"{event.file}: {event.reason}" for event in events if event.outcome == Outcome.FAILED]
        assert not refused, refused[0]
        expected = originals | {
            key.replace("/b/", "/visitor/"): text for key, text in originals.items() if "/b/" in key
        }
        for key, text in scene.texts().items():
            assert is_back(key, text, expected.get(key, text)), f"{key} went back to {text}, not to {expected[key]}"
        assert restore(scene.settings, HOST) == []
    print(f"{kills} kills, {stood} files found changed, {restored} put back by restore")
    assert kills == KILLS or (kills > LEAST_KILLS and time.monotonic() > deadline)
    assert restored > kills / 10
    assert stood > kills / 10
