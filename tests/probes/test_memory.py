"""Sharing out global stalls: parts sum, self is apart, and nothing is blamed twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from api.frame import OTHER_ID
from probes.memory import GlobalBlame, PageShares


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def blamed(blame: GlobalBlame) -> dict[tuple[int, int], int]:
    table = blame.pairs.table("memory.blame_ns")
    keys = zip(table.keys["cgroup"].tolist(), table.keys["culprit"].tolist(), strict=True)
    return dict(zip(keys, table.columns["memory.blame_ns"].tolist(), strict=True))


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**7), max_size=9))
def test_parts_sum_to_the_whole(amount_ns: int, pages: list[int]) -> None:
    shares = PageShares()
    shares.add(np.arange(2, len(pages) + 2, dtype=np.uint64), np.array(pages, dtype=np.uint64))
    assert sum(shares.split(amount_ns).values()) == amount_ns


def test_stall_is_shared_by_pages_and_self_stays_apart() -> None:
    blame = GlobalBlame()
    blame.shares.add(ids(1, 2, 3), ids(100, 200, 700))
    own = blame.update(ids(1, 4), ids(1000, 0))
    assert own.tolist() == [100, 0]
    assert blamed(blame) == {(1, 2): 200, (1, 3): 700}


def test_only_what_grew_is_blamed_and_on_whoever_takes_pages_then() -> None:
    blame = GlobalBlame()
    blame.shares.add(ids(2), ids(10))
    blame.update(ids(1), ids(1000))
    blame.update(ids(1), ids(1000))
    assert blamed(blame) == {(1, 2): 1000}
    for _ in range(4):
        blame.shares.add(ids(3), ids(10))
    blame.update(ids(1), ids(1500))
    assert blamed(blame) == {(1, 2): 1000, (1, 3): 500}


def test_a_stall_longer_than_a_round_is_blamed_on_the_rounds_before() -> None:
    blame = GlobalBlame()
    blame.shares.add(ids(2), ids(1000))
    for _ in range(3):
        blame.shares.add(ids(), ids())
    blame.update(ids(1), ids(700))
    assert blamed(blame) == {(1, 2): 700}


def test_stalls_before_the_first_pages_are_blamed_by_the_next() -> None:
    blame = GlobalBlame()
    blame.update(ids(1), ids(700))
    assert blamed(blame) == {}
    blame.shares.add(ids(2), ids(1))
    blame.update(ids(1), ids(800))
    assert blamed(blame) == {(1, 2): 800}


def test_without_pages_nobody_is_named() -> None:
    blame = GlobalBlame()
    blame.update(ids(1), ids(700))
    blame.update(ids(1), ids(700))
    assert blamed(blame) == {(1, OTHER_ID): 700}


def test_a_forgotten_victim_starts_anew() -> None:
    blame = GlobalBlame()
    blame.shares.add(ids(2), ids(1))
    blame.update(ids(1), ids(700))
    blame.forget(ids(1))
    assert blamed(blame) == {}
    blame.update(ids(1), ids(30))
    assert blamed(blame) == {(1, 2): 30}
