"""Lines on a descriptor: at once, whole, in order, and no waiting for readers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from koordlet.outputs.line_stream import LineStream, ReaderGone


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        for descriptor in (reader, writer):
            try:
                os.close(descriptor)
            except OSError:
                continue


def test_lines_are_there_at_once() -> None:
    with pipe() as (reader, writer):
        LineStream(writer).write([b"one", b"two"])
        assert os.read(reader, 100) == b"one\ntwo\n"


def test_a_slow_reader_costs_the_oldest_lines_and_they_are_counted() -> None:
    with pipe() as (reader, writer):
        stream = LineStream(writer, kept_lines=3)
        lines = [b"%04d" % number + b"x" * 4000 for number in range(40)]
        for line in lines:
            stream.write([line])
        read = b""
        while len(read.splitlines()) + stream.dropped < len(lines):
            read += os.read(reader, 1 << 20)
            stream.write()
        assert stream.dropped > 0
        numbers = [int(line[:4]) for line in read.splitlines()]
        assert numbers == sorted(numbers)
        assert numbers[-3:] == [37, 38, 39]


def test_a_reader_that_went_is_noticed_without_a_line_to_write() -> None:
    with pipe() as (reader, writer):
        stream = LineStream(writer)
        stream.write()
        os.close(reader)
        with pytest.raises(ReaderGone):
            stream.write()


def test_a_closed_descriptor_has_no_reader() -> None:
    with pipe() as (_reader, writer):
        stream = LineStream(writer)
        os.close(writer)
        with pytest.raises(ReaderGone):
            stream.write([b"x"])


def test_a_file_takes_everything(tmp_path: Path) -> None:
    with (tmp_path / "lines").open("wb") as file:
        LineStream(file.fileno()).write([b"x" * 100_000, b"y"])
    assert (tmp_path / "lines").read_bytes() == b"x" * 100_000 + b"\ny\n"
