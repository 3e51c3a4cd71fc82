"""Memory limits that the kernel reclaims for in the writer's time, as it does before Linux 6.16."""

import errno
import os
import threading
from pathlib import Path

import pytest

from koordlet.host.attribute_formats import Format
from koordlet.host.attributes import KernelFile
from koordlet.host.files import HostError


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
    attribute.write("4096", ("max",), attribute.identity() or "")
    assert file.read_text() == ""
    threading.Timer(0.05, go_on.set).start()
    attribute.write("max", ("4096",), attribute.identity() or "")
    assert file.read_text() == "max\n"


def test_what_the_kernel_says_to_a_memory_limit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "memory.max"
    file.write_text("max\n")
    attribute = KernelFile(str(file), Format.BYTES)

    def refuse(_fd: int, _content: bytes) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("koordlet.host.attributes.os.write", refuse)
    with pytest.raises(HostError):
        attribute.write("4096", ("max",), attribute.identity() or "")
