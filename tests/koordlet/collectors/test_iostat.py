"""IO counters of both versions."""

from koordlet.collectors.iostat import parse_blkio, parse_io_stat


def test_io_of_both_versions() -> None:
    assert parse_io_stat(b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=9 dios=9\n8:16 rbytes=10 wios=1\n") == (
        11,
        2,
        3,
        5,
    )
    assert parse_io_stat(b"") == (0, 0, 0, 0)
    assert parse_blkio(b"8:0 Read 5\n8:0 Write 6\n8:0 Sync 11\n8:0 Total 11\nTotal 11\n") == (5, 6)
