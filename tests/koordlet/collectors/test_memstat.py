"""Memory files of both versions."""

import pytest

from koordlet.collectors.memstat import parse_limit, parse_memory_stat


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        pytest.param(b"max\n", float("inf"), id="v2-unlimited"),
        pytest.param(b"9223372036854771712\n", float("inf"), id="v1-unlimited"),
        pytest.param(b"4096\n", 4096.0, id="limited"),
    ],
)
def test_memory_limit(content: bytes, limit: float) -> None:
    assert parse_limit(content) == (limit,)


def test_memory_stat_of_both_versions() -> None:
    v1 = (
        b"cache 1\nrss 2\ntotal_cache 10\ntotal_rss 20\ntotal_pgmajfault 3\ntotal_workingset_refault_file 4\n"
        b"total_active_anon 20\ntotal_unevictable 6\n"
    )
    v2 = (
        b"anon 20\nfile 10\npgmajfault 3\nworkingset_refault_anon 1\nworkingset_refault_file 3\n"
        b"active_anon 14\ninactive_anon 6\nunevictable 6\n"
    )
    assert tuple(parse_memory_stat(v1)) == tuple(parse_memory_stat(v2)) == (4, 3, 10, 20, 26)
