"""Births wait for their settings for a moment only, and none is applied once its birth went on."""

import threading
from collections.abc import Sequence

import pytest

from api.intents import Knob, Setting
from koordlet.control.birth_writer import BirthWriter
from tests.koordlet.enforcer.hosts import want
from tests.waiting import wait_for

ONE = [want(Knob.CPU_IDLE, "1")]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of a busy machine may not run within a tenth of a second."""
    monkeypatch.setattr("koordlet.control.birth_writer.WAIT_SECONDS", 30.0)


@pytest.mark.usefixtures("patient")
def test_settings_are_applied_before_the_birth_goes_on() -> None:
    applied: list[Sequence[Setting]] = []
    writer = BirthWriter(applied.append)
    assert writer.write(ONE)
    assert applied == [ONE]
    writer.close()
    writer.close()


def test_while_one_hangs_births_go_on_and_are_not_made_up_for() -> None:
    go_on, applied = threading.Event(), []

    def apply(settings: Sequence[Setting]) -> None:
        applied.append(settings)
        go_on.wait()

    writer = BirthWriter(apply)
    assert not writer.write(ONE)
    assert not writer.write([want(Knob.CPU_IDLE, "0")])
    assert writer.late == 2
    go_on.set()
    wait_for(lambda: writer.write(ONE))
    assert [want(Knob.CPU_IDLE, "0")] not in applied
    writer.close()


def test_no_more_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koordlet.control.birth_writer.WAIT_SECONDS", 0.001)
    monkeypatch.setattr("koordlet.control.birth_writer._MOST_WAITING", 2)
    go_on = threading.Event()
    writer = BirthWriter(lambda _settings: bool(go_on.wait()) and None)
    assert not any(writer.write(ONE) for _ in range(10))
    assert writer.late == 10
    writer.close()
    go_on.set()


@pytest.mark.usefixtures("patient")
def test_a_failure_ends_neither_the_birth_nor_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_settings: Sequence[Setting]) -> None:
        raise OSError("the disk is gone")

    writer = BirthWriter(fail)
    assert writer.write(ONE)
    assert writer.write(ONE)
    assert "could not be applied" in caplog.text
    writer.close()
