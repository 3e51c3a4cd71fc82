"""systemd is told once that the agent is ready, and with each tick that it lives."""

import socket
from pathlib import Path
from typing import cast

import pytest

from koordlet.agent.service_notices import ServiceNotices
from koordlet.tick import Tick

TICK = cast(Tick, None)


def test_ready_then_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notices = ServiceNotices()
        notices.step(TICK)
        notices.step(TICK)
        assert receiver.recv(100) == b"READY=1\nWATCHDOG=1"
        assert receiver.recv(100) == b"WATCHDOG=1"


def test_without_systemd_or_with_one_that_is_gone_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    ServiceNotices().step(TICK)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    ServiceNotices().step(TICK)
