"""What a guardian makes of the lines and silences of its agent."""

import pytest

from koordlet.enforcer.guardian.watch import Duty, Watch


def after(*lines: str, now: float = 5.0, ends: bool = False) -> Watch:
    watch = Watch(30.0, 0.0)
    for line in lines:
        watch.take(line, now)
    if ends:
        watch.take_end()
    return watch


@pytest.mark.parametrize(
    ("lines", "ends", "now", "duty"),
    [
        pytest.param(["beat"], False, 34.0, Duty.WAIT, id="alive"),
        pytest.param(["beat"], False, 35.0, Duty.RESTORE_BESIDE, id="hangs"),
        pytest.param([], False, 30.0, Duty.RESTORE_BESIDE, id="hangs-before-its-first-tick"),
        pytest.param(["beat"], True, 5.0, Duty.RESTORE, id="dead"),
        pytest.param(["beat", "bye"], True, 99.0, Duty.END, id="left"),
        pytest.param(["over 60.0"], True, 59.0, Duty.WAIT, id="handed-over"),
        pytest.param(["over 60.0"], True, 60.0, Duty.RESTORE, id="no-successor"),
        pytest.param(["over soon"], True, 6.0, Duty.RESTORE, id="a-deadline-that-is-none"),
        pytest.param(["", "\x00", "beatbeat"], False, 29.0, Duty.WAIT, id="noise"),
    ],
)
def test_duties(lines: list[str], ends: bool, now: float, duty: Duty) -> None:
    assert after(*lines, ends=ends).duty(now) is duty


def test_what_was_adopted_waits_for_the_first_tick() -> None:
    watch = Watch(30.0, 0.0, first_until=62.0)
    assert watch.duty(61.0) is Duty.WAIT
    assert watch.duty(62.0) is Duty.RESTORE_BESIDE
    watch.take("beat", 20.0)
    assert watch.duty(50.0) is Duty.RESTORE_BESIDE


def test_after_a_hang_it_watches_on() -> None:
    watch = after("beat")
    assert watch.duty(40.0) is Duty.RESTORE_BESIDE
    watch.note_restored()
    assert watch.duty(99.0) is Duty.WAIT
    assert watch.wait_seconds(99.0) is None
    watch.take("beat", 100.0)
    assert watch.duty(129.0) is Duty.WAIT
    assert watch.duty(131.0) is Duty.RESTORE_BESIDE


def test_what_an_attempt_left_is_tried_again_more_seldom() -> None:
    watch = after("beat")
    moments = []
    for now in range(35, 105):
        if watch.duty(float(now)) is Duty.RESTORE_BESIDE:
            moments.append(now)
            watch.note_left(float(now))
    assert moments == [35, 36, 38, 42, 50, 66, 96]
    assert watch.wait_seconds(100.0) == 26.0
    watch.take("beat", 100.0)
    assert watch.duty(129.0) is Duty.WAIT
    assert watch.duty(130.0) is Duty.RESTORE_BESIDE


def test_an_agent_that_restored_itself_meanwhile_is_left_alone() -> None:
    watch = after("beat")
    watch.note_left(36.0)
    watch.take("eased", 36.5)
    assert watch.duty(40.0) is Duty.WAIT
    assert watch.wait_seconds(40.0) is None


def test_it_sleeps_until_the_next_duty() -> None:
    assert after("beat").wait_seconds(10.0) == 25.0
    assert after("over 60.0").wait_seconds(10.0) == 50.0
    assert after("over 60.0").wait_seconds(61.0) == 0.0
