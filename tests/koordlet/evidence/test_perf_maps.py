"""Names from perf maps: those of the addresses that were asked for, from as much of a map as it is worth."""

import io

from koordlet.evidence.perf_maps import MAX_BYTES, MAX_BYTES_IN_ALL, PerfMaps


def test_a_function_ends_with_its_size() -> None:
    content = b"1000 20 hot_loop\nnot a line\n2000 0 tail\n1000 10 py::serve:/app/serve.py\n"
    names, is_whole = PerfMaps().names(io.BytesIO(content), [0xFFF, 0x100F, 0x1010, 0x9000])
    assert names == {0x100F: "py::serve:/app/serve.py", 0x9000: "tail"}  # the later entry of an address counts
    assert is_whole


def test_lines_that_are_none_make_no_map() -> None:
    assert PerfMaps().names(io.BytesIO(b"\x00\xff\nroot:x:0:0::/root:/bin/sh\n"), [0, 1 << 63]) == ({}, True)


def test_the_nearest_function_may_be_in_any_part() -> None:
    filler = b"".join(b"%x 8 far\n" % (0x100000 + each * 16) for each in range(20_000))
    lines = b"1000 10 first\n" + filler + b"2000 10 second\n" + filler + b"1000 10 later\n"
    names, _ = PerfMaps().names(io.BytesIO(lines), [0x1004, 0x2004])
    assert names == {0x1004: "later", 0x2004: "second"}


def test_all_maps_of_a_measurement_share_one_size() -> None:
    maps = PerfMaps()
    long = [io.BytesIO(b"\n" * (MAX_BYTES + 1)) for _ in range(MAX_BYTES_IN_ALL // MAX_BYTES)]
    assert [maps.names(each, [1])[1] for each in long] == [False] * len(long)
    assert maps.names(io.BytesIO(b"1 1 late\n"), [1]) == ({}, False)
