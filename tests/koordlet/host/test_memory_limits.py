"""Memory limits that the kernel reclaims for in the writer's time, as it does before Linux 6.16."""

import errno
import os
import threading
from pathlib import Path

import pytest

from koordlet.host.attribute_formats import Format
from koordlet.host.attributes import KernelFile
from koordlet.host.files import HostError
from tests.waiting import wait_for


def test_a_memory_limit_is_left_while_the_kernel_reclaims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next value waits for it: no older one comes after a newer one."""
    file = tmp_path / "memory.high"
    file.write_text("max\n")
    attribute = KernelFile(str(file), Format.BYTES)
    go_on, write = threading.Event(), os.write

    def slow(fd: int, content: bytes) -> int:
        if b"4096" in content:
            go_on.wait()
        return write(fd, content)

    monkeypatch.setattr("koordlet.host.attributes.os.write", slow)
    monkeypatch.setattr("koordlet.host.attributes._EARLIER_SECONDS", 30.0)
    attribute.write("4096", ("max",), attribute.identity() or "")
    assert file.read_text() == ""
    threading.Timer(0.05, go_on.set).start()
    attribute.write("max", ("4096",), attribute.identity() or "")
    wait_for(lambda: file.read_text() == "max\n")


def test_a_write_behind_one_that_does_not_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step goes on without it, and asks again."""
    file = tmp_path / "memory.high"
    file.write_text("max\n")
    attribute = KernelFile(str(file), Format.BYTES)
    go_on, write = threading.Event(), os.write

    def slow(fd: int, content: bytes) -> int:
        go_on.wait()
        return write(fd, content)

    monkeypatch.setattr("koordlet.host.attributes.os.write", slow)
    monkeypatch.setattr("koordlet.host.attributes._EARLIER_SECONDS", 0.05)
    attribute.write("4096", ("max",), attribute.identity() or "")
    for _ in range(2):
        with pytest.raises(HostError, match="Device or resource busy"):
            attribute.write("max", ("4096",), attribute.identity() or "")
    go_on.set()
    wait_for(lambda: file.read_text() == "4096\n")


def test_what_the_kernel_says_to_a_memory_limit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "memory.max"
    file.write_text("max\n")
    attribute = KernelFile(str(file), Format.BYTES)

    def refuse(_fd: int, _content: bytes) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("koordlet.host.attributes.os.write", refuse)
    with pytest.raises(HostError):
        attribute.write("4096", ("max",), attribute.identity() or "")


V1_LIMIT = "memory.limit_in_bytes"
V1_NONE = "9223372036854771712"


@pytest.mark.parametrize(
    ("present", "wanted", "is_kept"),
    [
        pytest.param(V1_NONE, "4096", True, id="below-none"),
        pytest.param("8192", "4096", True, id="lower"),
        pytest.param("4096", "8192", False, id="higher"),
        pytest.param("4096", "max", False, id="none"),
    ],
)
def test_only_a_lower_limit_of_v1_has_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: str, wanted: str, is_kept: bool
) -> None:
    file = tmp_path / V1_LIMIT
    file.write_text(f"{present}\n")
    attribute = KernelFile(str(file), Format.LIMIT_BYTES)
    asked: list[bytes] = []

    def never_fits(_seconds: float, _fd: int, content: bytes) -> None:
        asked.append(content)
        raise InterruptedError

    monkeypatch.setattr("koordlet.host.attributes.write_within", never_fits)
    if is_kept:
        with pytest.raises(HostError, match="temporarily unavailable"):
            attribute.write(wanted, (), attribute.identity() or "")
    else:
        attribute.write(wanted, (), attribute.identity() or "")
    assert asked == ([b"4096\n"] if is_kept else [])


def test_a_limit_that_was_set_just_before_time_was_up_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / V1_LIMIT
    file.write_text(f"{V1_NONE}\n")

    def late(_seconds: float, fd: int, content: bytes) -> None:
        os.write(fd, content)
        raise InterruptedError

    monkeypatch.setattr("koordlet.host.attributes.write_within", late)
    attribute = KernelFile(str(file), Format.LIMIT_BYTES)
    attribute.write("4096", (), attribute.identity() or "")


def test_a_lower_limit_of_v1_is_written(tmp_path: Path) -> None:
    file = tmp_path / V1_LIMIT
    file.write_text(f"{V1_NONE}\n")
    attribute = KernelFile(str(file), Format.LIMIT_BYTES)
    attribute.write("4096", (), attribute.identity() or "")
    assert file.read_text() == "4096\n"
