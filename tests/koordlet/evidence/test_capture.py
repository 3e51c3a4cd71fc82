"""Measurements when verdicts open: which, how often, and what is handed on when."""

from collections.abc import Mapping
from pathlib import Path
from threading import Event

import pytest

from api.plugin import Unsupported
from api.stacks import StackEvidence, StackKind
from api.verdicts import Verdict, VerdictState
from api.window import Window
from koordlet.evidence.capture import StackCapture, StackTaker
from koordlet.evidence.symbolizer import Frame, Symbolizer
from koordlet.host.files import HostTree
from koordlet.tick import Tick
from probes.stacks import Role, Sample, SampleKind, Samples
from tests.frames import make_frame
from tests.trees import make_tree
from tests.verdicts import make_verdict
from tests.waiting import wait_for

CGROUPS = {11: "/web", 12: "/batch"}
KERNEL_FUNCTION = 0xFFFFFFFF81001000


class Source:
    """Samples as the kernel would give them."""

    def __init__(self, refusal: str = "") -> None:
        self.begun: list[Mapping[int, Role]] = []
        self.hold = Event()
        self._refusal = refusal

    def begin(self, roles: Mapping[int, Role]) -> None:
        if self._refusal:
            raise Unsupported(self._refusal)
        self.begun.append(roles)

    def tgids(self) -> frozenset[int]:
        return frozenset({70})

    def end(self) -> Samples:
        self.hold.wait(10)
        inside = (KERNEL_FUNCTION + 4, KERNEL_FUNCTION + 0x101)
        blocked = Sample(11, 70, SampleKind.BLOCKED, 3, 10**9, inside, (), taken=True)
        return Samples(2.0, (blocked,), frozenset({70}), {"stacks.wait": 1, "stacks.total": 0})


def host(root: Path) -> HostTree:
    """A host with a thread that sleeps on a disk, and one that waits for events."""
    make_tree(
        root,
        {
            "proc/kallsyms": "ffffffff81001000 T io_schedule\nffffffff81001100 T vfs_read\n",
            "proc/70/comm": "redis\n",
            "proc/71/status": "Name:\tflush\nState:\tD (disk sleep)\nTgid:\t70\n",
            "proc/71/stack": "[<0>] io_schedule+0x12/0x40\n[<0>] ext4_sync_file+0x1/0x2\n",
            "proc/72/status": "Name:\tidle\nState:\tS (sleeping)\nTgid:\t70\n",
            "cg/web/cgroup.threads": "70\n71\n72\n73\n",
        },
    )
    return HostTree(root)


def tick(second: float, *verdicts: Verdict) -> Tick:
    frames = [make_frame(each, CGROUPS, {}) for each in (second - 1, second)]
    return Tick.of(Window(frames), verdicts)


def opened(victim: str = "/web", *, lost: float = 0.5, state: VerdictState = VerdictState.OPEN) -> Verdict:
    return make_verdict(victim, state=state, lost=lost)


def capture_of(root: Path, source: Source, kept: list[StackEvidence]) -> StackCapture:
    return StackCapture(StackTaker(source, host(root), root / "cg"), kept.append, seconds=0.01, pause_seconds=10)


def test_one_measurement_at_a_time_and_then_a_pause(tmp_path: Path) -> None:
    source, kept = Source(), list[StackEvidence]()
    capture = capture_of(tmp_path, source, kept)
    capture.step(tick(5, opened("/batch", lost=0.2), opened()))
    wait_for(lambda: source.begun)
    assert source.begun[0][11] == Role.WAITS_TOO
    capture.step(tick(20, opened("/batch")))  # the pause is over, but the first is still under way
    assert (len(source.begun), kept, capture.left_out) == (1, [], 2)
    source.hold.set()
    wait_for(lambda: (capture.step(tick(21)), kept)[1])
    assert [evidence.victim for evidence in kept] == ["/web"]
    capture.step(tick(14, opened()))
    assert capture.left_out == 3
    capture.step(tick(200, opened()))
    capture.close()
    assert len(source.begun) == len(kept) == 2


def test_a_verdict_that_changes_or_closes_asks_for_nothing(tmp_path: Path) -> None:
    source = Source()
    capture = capture_of(tmp_path, source, [])
    capture.step(tick(5, opened(state=VerdictState.CLOSE), opened(state=VerdictState.UPDATE)))
    capture.close()
    assert not source.begun


def test_waits_and_sleepers_have_names(tmp_path: Path) -> None:
    source, kept = Source(), list[StackEvidence]()
    source.hold.set()
    capture = capture_of(tmp_path, source, kept)
    capture.step(tick(5, opened()))
    capture.close()
    (evidence,) = kept
    (series, *_) = evidence.series
    assert {stack.frames: (stack.kind, stack.seconds) for stack in series.stacks} == {
        ("redis", "vfs_read_[k]", "io_schedule_[k]"): (StackKind.BLOCKED, 1.0),
        ("flush", "ext4_sync_file_[k]", "io_schedule_[k]"): (StackKind.BLOCKED, 2.0),
    }
    assert (series.unresolved_frames, evidence.lost) == (0, {"stacks.wait": 1})


def test_a_kernel_that_refuses_costs_nothing_but_the_stacks(tmp_path: Path) -> None:
    capture = capture_of(tmp_path, Source("lockdown"), kept := list[StackEvidence]())
    capture.step(tick(5, opened()))
    capture.close()
    capture.step(tick(6))
    assert not kept


def test_a_measurement_that_hangs_is_given_up_and_another_begins_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept, source, server, hanging = list[StackEvidence](), Source(), Event(), list[Symbolizer]()

    def hang(symbolizer: Symbolizer, _: object) -> dict[int, Frame]:
        hanging.append(symbolizer)
        server.wait(10)
        return {}

    source.hold.set()
    capture = capture_of(tmp_path, source, kept)
    monkeypatch.setattr(Symbolizer, "kernel_frames", hang)
    capture.step(tick(5, opened()))
    wait_for(lambda: len(hanging) == 1)
    capture.step(tick(30, opened()))
    assert (len(source.begun), capture.lost, kept) == (1, 0, [])
    capture.step(tick(40, opened()))
    wait_for(lambda: len(hanging) == 2)
    assert hanging[0] is not hanging[1]
    capture.step(tick(80, opened()))
    assert (len(source.begun), capture.lost, capture.left_out) == (2, 2, 2)
    names = [{frame for stack in evidence.series[0].stacks for frame in stack.frames} for evidence in kept]
    assert names == [{"flush", "ext4_sync_file_[k]", "io_schedule_[k]"}] * 2
    assert "stacks of /web are lost" in caplog.text
    server.set()
    wait_for(lambda: (capture.step(tick(200, opened())), len(source.begun) > 2)[1])
    capture.close()


def test_what_nothing_foresaw_is_logged_and_the_next_measurement_knows_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept, source, forgotten = list[StackEvidence](), Source(), list[bool]()
    source.hold.set()
    capture = capture_of(tmp_path, source, kept)
    monkeypatch.setattr(Symbolizer, "kernel_frames", lambda *_: 1 // 0)
    monkeypatch.setattr(Symbolizer, "forget", lambda _: forgotten.append(True))
    capture.step(tick(5, opened()))
    capture.close()
    assert (kept, forgotten) == ([], [True])
    assert "no stacks of /web" in caplog.text
