"""Totals of pairs: as if each pair were added by itself, whatever comes, goes and is numbered anew."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.metrics import pair_totals
from koordlet.metrics.labels import Labels
from koordlet.metrics.pair_totals import PairTotals

OTHER: Labels = ("", "", "", "other")
MOST = 2

pairs = st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(1, 5))
steps = st.lists(st.one_of(st.lists(pairs, max_size=12), st.integers(1, 3)), max_size=12)


def label(identity: int) -> Labels:
    return ("", "", "", str(identity))


def victim(seat: int) -> Labels:
    return ("", "", "", f"seat {seat}")


@pytest.mark.parametrize(("codes", "keys"), [(3, 65_536), (512, 4), (512, 65_536)])
@given(steps=steps)
@settings(deadline=None)
def test_totals_are_those_of_pairs_added_one_by_one(
    codes: int, keys: int, steps: list[list[tuple[int, int, int]] | int]
) -> None:
    found = PairTotals(MOST, OTHER)
    expected: dict[int, dict[Labels, float]] = defaultdict(dict)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_totals, "_SWEEP_AT", codes)
        patch.setattr(pair_totals, "_MAX_KEYS", keys)
        for step in steps:
            if isinstance(step, int):
                found.forget(step, victim(step))
                expected.pop(step, None)
                continue
            rows = sorted(step)
            found.add(
                np.array([row[0] for row in rows], dtype=np.int64),
                np.array([row[1] for row in rows], dtype=np.uint64),
                np.array([row[2] for row in rows], dtype=np.float64),
                victim,
                label,
            )
            for seat, culprit, amount in rows:
                series, name = expected[seat], label(culprit)
                if name not in series and (len(series) > MOST or not seat):
                    name = OTHER
                series[name] = series.get(name, 0.0) + amount
    totals = {(one, other): value for one, other, value in found.items()}
    sums = {key: sum(value for (one, _), value in totals.items() if one == victim(key)) for key in expected}
    assert sums == {key: sum(series.values()) for key, series in expected.items()}
    for key in expected:
        mine = [other for one, other in totals if one == victim(key)]
        assert len(mine) <= (MOST + 2 if key else 1)


def test_more_pairs_than_there_was_room_for() -> None:
    found = PairTotals(1000, OTHER)
    for _ in range(2):
        culprits = np.arange(1, 701, dtype=np.uint64)
        found.add(np.ones(700, dtype=np.int64), culprits, np.ones(700), victim, label)
    assert [value for _, _, value in found.items()] == [2.0] * 700


def test_culprits_that_are_gone_are_not_remembered() -> None:
    """A hundred at a time, each of them for four rounds."""
    found = PairTotals(MOST, OTHER)
    for step in range(400):
        culprits = np.arange(step * 25, step * 25 + 100, dtype=np.uint64)
        seats = np.arange(100, dtype=np.int64) % 10
        found.add(seats, culprits, np.ones(100), victim, label)
        assert found.remembered <= 700
    assert sum(value for _, _, value in found.items()) == 400 * 100
    again = np.array([3], dtype=np.uint64)
    before = {(one, other): value for one, other, value in found.items()}
    found.add(np.array([3], dtype=np.int64), again, np.ones(1), victim, label)
    after = {(one, other): value for one, other, value in found.items()}
    assert {key: value - before[key] for key, value in after.items() if value != before[key]} == {
        (victim(3), label(3)): 1.0
    }
