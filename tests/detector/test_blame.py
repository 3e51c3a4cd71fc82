"""Growth of blame tables: the same as pair by pair, whatever order rows come in, and no leap when pairs are folded."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.frame import OTHER_ID, Frame, Table
from api.window import subtract
from detector.blame import Blame, blame_between

Pairs = Mapping[tuple[int, int], int]


def frame(second: int, pairs: Pairs, order: int = 1) -> Frame:
    rows = list(pairs)[::order]
    keys = np.array(rows or np.empty((0, 2)), dtype=np.uint64)
    amounts = np.array([pairs[row] for row in rows], dtype=np.uint64)
    table = Table({"cgroup": keys[:, 0], "culprit": keys[:, 1]}, {"cpu.blame_ns": amounts})
    return Frame(second * 10**9, 0, (), {"cpu.blame": table})


def between(before: Pairs, after: Pairs, order: int = 1) -> Blame:
    return blame_between(frame(0, before, order), frame(2, after, order), "cpu.blame")


def rows(blame: Blame) -> dict[tuple[int, int], float]:
    found = zip(blame.victims.tolist(), blame.culprits.tolist(), blame.amounts.tolist(), strict=True)
    return {(victim, culprit): amount for victim, culprit, amount in found}


pairs = st.dictionaries(st.tuples(st.integers(1, 9), st.integers(1, 9)), st.integers(0, 10**9), max_size=30)


@given(pairs, pairs, st.sampled_from([1, -1]))
def test_growth_pair_by_pair(before: Pairs, after: Pairs, order: int) -> None:
    grown = {pair: now - before.get(pair, 0) if now >= before.get(pair, 0) else now for pair, now in after.items()}
    expected = {pair: amount * 1e-9 / 2 for pair, amount in sorted(grown.items()) if amount}
    blame = between(before, after, order)
    assert rows(blame) == pytest.approx(expected)
    assert list(rows(blame)) == list(expected)


@given(pairs, pairs)
def test_sums_biggest_and_single_ones_agree_with_the_rows(before: Pairs, after: Pairs) -> None:
    blame = between(before, after)
    found, victims = rows(blame), np.arange(0, 12, dtype=np.uint64)
    mine = [{culprit: amount for (one, culprit), amount in found.items() if one == victim} for victim in range(12)]
    assert blame.sums(victims) == pytest.approx([sum(each.values()) for each in mine])
    culprits, amounts = blame.biggest(victims)
    assert amounts == pytest.approx([max(each.values(), default=0.0) for each in mine])
    assert blame.against(victims, culprits) == pytest.approx(amounts)
    assert [culprit for culprit, amount in zip(culprits.tolist(), amounts, strict=True) if not amount] == [
        0 for amount in amounts if not amount
    ]


def test_folding_small_pairs_is_no_growth_of_the_others() -> None:
    before = {(1, 2): 10**9, (1, 3): 4 * 10**8, (1, 4): 3 * 10**8, (1, OTHER_ID): 10**8, (5, 6): 10**8}
    folded = {(1, 2): 15 * 10**8, (1, OTHER_ID): 9 * 10**8, (5, OTHER_ID): 10**8}
    assert rows(between(before, folded)) == pytest.approx({(1, 2): 0.25, (1, OTHER_ID): 0.05})


def test_a_pair_that_was_folded_and_came_again_is_no_growth_of_the_others() -> None:
    before = {(1, 2): 100 * 10**9, (1, 3): 100 * 10**9, (1, OTHER_ID): 10**8, (5, 2): 10**9, (5, OTHER_ID): 10**9}
    after = {(1, 2): 10**8, (1, OTHER_ID): 200 * 10**9 + 3 * 10**8, (5, 2): 2 * 10**9, (5, OTHER_ID): 2 * 10**9}
    expected = {(1, 2): 0.05, (1, OTHER_ID): 0.1, (5, 2): 0.5, (5, OTHER_ID): 0.5}
    assert rows(between(before, after)) == pytest.approx(expected)
    same_rows = {(1, 2): 10**8, (1, 3): 101 * 10**9, (1, OTHER_ID): 100 * 10**9 + 3 * 10**8}
    expected = {(1, 2): 0.05, (1, 3): 0.5, (1, OTHER_ID): 0.1}
    before = {(1, 2): 100 * 10**9, (1, 3): 100 * 10**9, (1, OTHER_ID): 10**8}
    assert rows(between(before, same_rows)) == pytest.approx(expected)


_CULPRITS = st.sampled_from([1, 2, 3, OTHER_ID])
_folding = st.dictionaries(st.tuples(st.integers(1, 3), _CULPRITS), st.integers(0, 10**9), min_size=1)


@given(_folding, _folding, st.sampled_from([1, -1]))
def test_a_delta_of_the_table_counts_the_same(before: Pairs, after: Pairs, order: int) -> None:
    tables = [frame(0, each, order).tables["cpu.blame"] for each in (before, after)]
    grown, _ = subtract(tables[1], tables[0])
    keys = zip(grown.ids.tolist(), grown.keys["culprit"].tolist(), strict=True)
    amounts = (grown.columns["cpu.blame_ns"] * 1e-9 / 2).tolist()
    found = {pair: amount for pair, amount in zip(keys, amounts, strict=True) if amount}
    assert found == pytest.approx(rows(between(before, after, order)))


def test_named_sums_leave_out_what_is_nobodys() -> None:
    blame = between({}, {(1, 2): 4 * 10**8, (1, OTHER_ID): 2 * 10**8})
    assert blame.sums(np.array([1], dtype=np.uint64), named=True) == pytest.approx([0.2])


@given(pairs, st.integers(1, 9), st.floats(0, 1))
def test_what_is_moved_to_another_culprit_leaves_every_victims_sum(after: Pairs, culprit: int, part: float) -> None:
    blame, victims = between({}, after), np.arange(0, 12, dtype=np.uint64)
    moved = blame.moved(np.where(blame.culprits == 3, part * blame.amounts, 0.0), culprit)
    assert moved.sums(victims) == pytest.approx(blame.sums(victims))
    found = rows(moved)
    assert list(found) == sorted(found)
    assert len(found) == len(moved.victims), "each pair once"
    assert all(amount > 0 for amount in found.values())
    for victim in range(1, 10):
        took, before = found.get((victim, culprit), 0.0), rows(blame).get((victim, 3), 0.0)
        kept = rows(blame).get((victim, culprit), 0.0) if culprit != 3 else before
        assert took == pytest.approx(kept + (part * before if culprit != 3 else 0.0))
