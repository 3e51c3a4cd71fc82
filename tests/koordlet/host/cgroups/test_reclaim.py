"""A limit below usage is written for so long and no longer."""

import errno
import os
import time
from pathlib import Path

import pytest

from koordlet.host.cgroups import reclaim
from koordlet.host.cgroups.reclaim import reclaim_by_limit
from koordlet.host.files import HostError

MIB = 1 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "memory.usage_in_bytes").write_text(f"{200 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"total_rss 0\ntotal_inactive_file {200 * MIB}\n")
    (tmp_path / "memory.limit_in_bytes").write_text("-1\n")
    return tmp_path


def children() -> str:
    return Path("/proc/thread-self/children").read_text()


def test_each_limit_is_written_and_the_present_one_remains(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, found, set_back = directory / "memory.limit_in_bytes", [], reclaim._write

    def look(where: Path, text: str, operation: str) -> None:
        found.append(file.read_text())
        set_back(where, text, operation)

    monkeypatch.setattr(reclaim, "_write", look)
    reclaim_by_limit(directory, [184 * MIB, 168 * MIB], "-1")
    assert found == [str(184 * MIB), str(168 * MIB)]
    assert file.read_text() == "-1"


def test_a_kernel_that_gets_no_further_is_asked_no_more(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def busy(_seconds: float, _fd: int, content: bytes) -> None:
        asked.append(content)
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(reclaim, "write_within", busy)
    assert reclaim_by_limit(directory, [184 * MIB, 168 * MIB], "-1") == 0
    assert asked == [str(184 * MIB).encode()]


def test_a_write_that_does_not_end_is_ended(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nothing reads from lets its writer wait, as a cgroup does that takes as fast as it gives up."""
    limit = directory / "memory.limit_in_bytes"
    limit.unlink()
    os.mkfifo(limit)
    reader = os.open(limit, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(limit, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(filler, bytes(65536))
    set_back: list[str] = []
    monkeypatch.setattr(
        "koordlet.host.cgroups.reclaim._write", lambda _directory, text, _operation: set_back.append(text)
    )
    before, began = children(), time.monotonic()
    try:
        assert reclaim_by_limit(directory, [184 * MIB, 168 * MIB], "-1") == 0
    finally:
        os.close(filler)
        os.close(reader)
    assert time.monotonic() - began >= 0.2
    assert set_back == ["-1"], "one attempt, and time was up"
    assert children() == before


def test_a_refusal_is_told_with_its_file(directory: Path) -> None:
    (directory / "memory.limit_in_bytes").unlink()
    (directory / "memory.limit_in_bytes").symlink_to("/dev/full")
    with pytest.raises(HostError, match=r"memory\.limit_in_bytes") as raised:
        reclaim_by_limit(directory, [184 * MIB], "-1")
    assert raised.value.errno == errno.ENOSPC
