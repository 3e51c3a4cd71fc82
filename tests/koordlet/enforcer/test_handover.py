"""A planned end hands actions over: the next run adopts what it asks for and restores the rest in the end."""

from pathlib import Path

import pytest

from api.intents import Knob
from api.qos import QoSClass
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.journal_format import decode
from koordlet.enforcer.lifecycle import restore
from koordlet.enforcer.originals.rollback import roll_back
from koordlet.enforcer.writer import KernelWriter
from tests.koordlet.enforcer.hosts import Disk, FakeHost, infos, outcomes, want

BE = infos(pod=QoSClass.BE)
QUOTA = want(Knob.CPU_MAX, "20000 100000")
WEIGHT = want(Knob.CPU_WEIGHT, "7")
BATCH = want(Knob.CPU_MAX, "50000 100000", strategy="hooks", protocol_state=True)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(tmp_path: Path, request: pytest.FixtureRequest) -> FakeHost:
    made = FakeHost(tmp_path, request.param)
    made.make("/pod")
    return made


def quota(host: FakeHost) -> str:
    text = host.text("/pod", "cpu.max" if host.version == 2 else "cpu.cfs_quota_us").split()[0]
    return "max" if text == "-1" else text


def weight(host: FakeHost) -> str:
    return host.text("/pod", "cpu.weight" if host.version == 2 else "cpu.shares")


def handed_over(host: FakeHost, *, seconds: float = 60.0) -> tuple[Enforcer, str]:
    """A successor of a run that left a quota and a weight; and the weight of before."""
    before = weight(host)
    first = host.enforcer()
    first.step([QUOTA, WEIGHT, BATCH], BE, host.later(1))
    first.close(host.later(1), handover_seconds=seconds)
    assert first.handed_over_until == host.clock.monotonic_seconds + seconds
    host.later(2)
    return host.enforcer(), before


def test_what_is_asked_for_again_stays_without_a_write(host: FakeHost) -> None:
    successor, before = handed_over(host)
    assert quota(host) == "20000"
    assert outcomes(successor.step([QUOTA, BATCH], BE, host.later(1)))[0][1] == "overlaid"
    assert weight(host) != before
    for _ in range(60):
        successor.step([QUOTA, BATCH], BE, host.later(1))
    assert quota(host) == "20000"
    assert weight(host) == before
    successor.step([BATCH], BE, host.later(1))
    assert quota(host) == "50000"


def test_a_successor_that_comes_late_has_a_minute_to_decide(host: FakeHost) -> None:
    first = host.enforcer()
    first.step([QUOTA, BATCH], BE, host.later(1))
    first.close(host.later(1), handover_seconds=60.0)
    host.later(59)
    successor = host.enforcer()
    assert successor.adopted_until == host.clock.monotonic_seconds + 60.0
    successor.step([BATCH], BE, host.later(30))
    assert quota(host) == "20000"
    successor.step([QUOTA, BATCH], BE, host.later(10))
    successor.step([QUOTA, BATCH], BE, host.later(60))
    assert quota(host) == "20000"
    successor.step([BATCH], BE, host.later(1))
    assert quota(host) == "50000"
    successor.close(host.later(1))


def test_what_a_late_successor_does_not_ask_for_ends_after_a_minute(host: FakeHost) -> None:
    successor, _ = handed_over(host, seconds=10.0)
    successor.step([BATCH], BE, host.later(58))
    assert quota(host) == "20000"
    successor.step([BATCH], BE, host.later(3))
    assert quota(host) == "50000"
    successor.close(host.later(1))


def test_a_weight_that_the_kernel_changed_is_restored_once(host: FakeHost) -> None:
    before = weight(host)
    killed = host.enforcer()
    killed.step([want(Knob.CPU_IDLE, "1")], BE, host.later(1))
    entries = list(killed._journal.live.values())
    (by_kernel,) = (entry for entry in entries if entry.by_kernel)
    host.file("/pod", "cpu.weight" if host.version == 2 else "cpu.shares").write_text(f"{by_kernel.ours[-1]}\n")
    for expected in (["restored", "restored"], ["unchanged", "unchanged"]):
        results = roll_back(entries, KernelWriter())
        assert [result.outcome.value for result in results] == expected
        assert weight(host) == before
    killed.close(host.later(1))


def test_another_value_replaces_it_and_the_original_is_known(host: FakeHost) -> None:
    successor, _ = handed_over(host)
    successor.step([want(Knob.CPU_MAX, "30000 100000"), WEIGHT], BE, host.later(1))
    assert quota(host) == "30000"
    successor.step([], BE, host.later(1))
    successor.close(host.later(1))
    assert quota(host) == "max"


def test_a_successor_that_comes_too_late_restores(host: FakeHost) -> None:
    successor, before = handed_over(host, seconds=1.0)
    assert (quota(host), weight(host)) == ("50000", before)
    assert successor.adopted_until is None
    successor.close(host.later(1))


def test_a_successor_that_dies_before_it_decides_leaves_nothing_to_hand_over(host: FakeHost) -> None:
    handed_over(host)[0]._journal.close()
    assert decode((host.root / "state/journal").read_bytes()).handover_until is None
    third = host.enforcer()
    assert quota(host) == "50000"
    third.close(host.later(1))


def test_the_command_waits_for_no_successor(host: FakeHost) -> None:
    first = host.enforcer()
    first.step([QUOTA], BE, host.later(1))
    first.close(host.later(1), handover_seconds=60.0)
    restore(host.settings(), host.tree)
    assert quota(host) == "max"


def test_what_cannot_be_written_down_is_restored_instead(host: FakeHost) -> None:
    disk = Disk()
    first = host.enforcer(journal=host.journal(write=disk.write))
    first.step([QUOTA], BE, host.later(1))
    disk.is_full = True
    first.close(host.later(1), handover_seconds=60.0)
    assert first.handed_over_until is None
    assert quota(host) == "max"


def test_no_action_outlives_a_pause_of_the_ticks(host: FakeHost) -> None:
    enforcer = host.enforcer(guardian_seconds=30.0)
    enforcer.step([QUOTA, BATCH], BE, host.later(1))
    enforcer.step([QUOTA, BATCH], BE, host.later(30))
    assert quota(host) == "20000"
    found = outcomes(enforcer.step([BATCH], BE, host.later(31)))
    assert ("cpu.max", "restored", "50000 100000") in found or quota(host) == "50000"
    assert quota(host) == "50000"


def test_steps_between_ticks_are_no_sign_of_life(host: FakeHost) -> None:
    enforcer = host.enforcer(guardian_seconds=30.0)
    enforcer.step([QUOTA], BE, host.later(1))
    enforcer.step([QUOTA], BE, host.later(20), is_tick=False)
    file = host.file("/pod", "cpu.max" if host.version == 2 else "cpu.cfs_quota_us")
    file.write_text("max 100000\n" if host.version == 2 else "-1\n")  # as the guardian does
    enforcer.step([QUOTA], BE, host.later(20))
    assert quota(host) == "20000"
    enforcer.close(host.later(1))
