"""Reclaim by a limit that usage cannot fit: how much is reclaimed, and that the present limit stays."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet.host.cgroups import reclaim
from koordlet.host.cgroups.reclaim import reclaim_by_limit, reclaimable_by_limit
from koordlet.host.files import HostError

MIB = 1 << 20


class Kernel:
    """Files of a v1 cgroup of which a write of a limit below usage reclaims `piece_bytes` in a turn."""

    def __init__(self, directory: Path, piece_bytes: int) -> None:
        self.directory = directory
        self.piece_bytes = piece_bytes
        self.cache_bytes = 0
        self.rest_bytes = 1 * MIB
        self.turns: list[float] = []
        self.hold(200 * MIB)
        self.limit.write_text("-1\n")

    @property
    def limit(self) -> Path:
        return self.directory / "memory.limit_in_bytes"

    def hold(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        (self.directory / "memory.usage_in_bytes").write_text(f"{cache_bytes + self.rest_bytes}\n")
        (self.directory / "memory.stat").write_text(f"total_rss 0\ntotal_inactive_file {cache_bytes}\n")

    def write(self, next_seconds: Callable[[], float], _seconds: float, fd: int, content: bytes, _undo: bytes) -> None:
        while (turn := next_seconds()) > 0.0:
            self.turns.append(turn)
            self.hold(max(self.cache_bytes - self.piece_bytes, 0))
            if self.cache_bytes + self.rest_bytes <= int(content):
                os.ftruncate(fd, 0)
                os.write(fd, content)
                return
            if not self.cache_bytes:
                raise OSError(errno.EBUSY, "Device or resource busy")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(tmp_path, 4 * MIB)
    monkeypatch.setattr(reclaim, "write_in_turns", made.write)
    return made


def children() -> str:
    return Path("/proc/thread-self/children").read_text()


def test_reclaim_ends_with_the_amount(kernel: Kernel) -> None:
    assert reclaim_by_limit(kernel.directory, 22 * MIB, "-1") == 24 * MIB
    assert kernel.limit.read_text() == "-1\n"


def test_reclaim_ends_at_the_reserve(kernel: Kernel) -> None:
    """As of a cgroup that allocates meanwhile: usage falls by less than page cache."""
    kernel.rest_bytes = 500 * MIB
    kernel.hold(200 * MIB)
    kernel.rest_bytes = 600 * MIB
    assert reclaim_by_limit(kernel.directory, 100 * MIB, "-1") == 68 * MIB
    assert kernel.cache_bytes == 32 * MIB


@pytest.mark.parametrize(
    ("cache_bytes", "amount_bytes", "spare_bytes"),
    [
        (200 * MIB, 16 * MIB + 5, 16 * MIB),
        (64 * MIB, 100 * MIB, 32 * MIB),
        (800 * MIB, 900 * MIB, 700 * MIB),
        (9, 9, 0),
    ],
)
def test_the_reserve_is_not_asked_for(kernel: Kernel, cache_bytes: int, amount_bytes: int, spare_bytes: int) -> None:
    kernel.hold(cache_bytes)
    assert reclaimable_by_limit(kernel.directory, amount_bytes) == spare_bytes


def test_turns_get_longer_where_little_was_reclaimed_and_shorter_towards_the_end(kernel: Kernel) -> None:
    kernel.piece_bytes = 1 * MIB
    reclaim_by_limit(kernel.directory, 16 * MIB, "-1")
    assert kernel.turns[0] == min(kernel.turns)
    assert kernel.turns[0] < max(kernel.turns)
    assert kernel.turns[-1] < max(kernel.turns)
    assert all(later <= 2 * earlier for earlier, later in zip(kernel.turns, kernel.turns[1:], strict=False))


def test_a_kernel_that_gets_no_further_is_asked_no_more(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def busy(_next_seconds: Callable[[], float], _seconds: float, _fd: int, content: bytes, _undo: bytes) -> None:
        asked.append(content)
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(reclaim, "write_in_turns", busy)
    assert reclaim_by_limit(kernel.directory, 32 * MIB, "-1") == 0
    assert asked == [b"0"]


def test_a_limit_that_is_in_force_after_all_is_set_back(kernel: Kernel) -> None:
    kernel.rest_bytes = 0
    kernel.hold(200 * MIB)
    kernel.piece_bytes = 200 * MIB
    assert reclaim_by_limit(kernel.directory, 32 * MIB, "-1") == 200 * MIB
    assert kernel.limit.read_text() == "-1"


def test_a_limit_that_cannot_be_set_back_is_told(kernel: Kernel) -> None:
    def fail(_next_seconds: Callable[[], float], *_rest: object) -> None:
        kernel.limit.unlink()
        kernel.limit.mkdir()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reclaim, "write_in_turns", fail)
        with pytest.raises(HostError, match=r"memory\.limit_in_bytes") as raised:
            reclaim_by_limit(kernel.directory, 32 * MIB, "-1")
    assert raised.value.operation == reclaim.SET_BACK


def test_a_cgroup_that_ends_meanwhile_is_told_with_its_file(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(*_arguments: object) -> None:
        kernel.limit.unlink()
        monkeypatch.setattr(reclaim.os, "pread", gone)

    def gone(_fd: int, _count: int, _offset: int) -> bytes:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(reclaim, "write_in_turns", vanish)
    with pytest.raises(HostError, match=r"read .*memory\.usage_in_bytes") as raised:
        reclaim_by_limit(kernel.directory, 32 * MIB, "-1")
    assert raised.value.errno == errno.ENODEV


def test_statistics_of_another_shape_are_told_with_their_file(kernel: Kernel) -> None:
    (kernel.directory / "memory.stat").write_text("total_rss what\n")
    with pytest.raises(HostError, match=r"memory\.stat: its text is of another shape"):
        reclaimable_by_limit(kernel.directory, 32 * MIB)


def test_a_write_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nothing reads from lets its writer wait, as a cgroup does that takes as fast as it gives up."""
    limit = Kernel(tmp_path, 0).limit
    limit.unlink()
    os.mkfifo(limit)
    reader = os.open(limit, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(limit, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(filler, bytes(65536))
    set_back: list[str] = []
    monkeypatch.setattr(reclaim, "_set_back", lambda _path, text: set_back.append(text))
    before, began = children(), time.monotonic()
    try:
        assert reclaim_by_limit(tmp_path, 32 * MIB, "-1") == 0
    finally:
        os.close(filler)
        os.close(reader)
    assert time.monotonic() - began >= 0.2
    assert set_back == ["-1"], "one attempt, and time was up"
    assert children() == before


def test_a_refusal_is_told_with_its_file(tmp_path: Path) -> None:
    limit = Kernel(tmp_path, 0).limit
    limit.unlink()
    limit.symlink_to("/proc/version")
    with pytest.raises(HostError, match=r"memory\.limit_in_bytes") as raised:
        reclaim_by_limit(tmp_path, 16 * MIB, "-1")
    assert raised.value.errno == errno.EIO
