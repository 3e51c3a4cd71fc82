"""Entitlement: division by weight, requests and limits, and the part of a loss that is a claim."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.entitlement import (
    DEFAULT_WEIGHT,
    Competitors,
    Floats,
    claimable,
    entitled_cores,
    share_by_weight,
)

NAN, INF = float("nan"), float("inf")


def fair_shares(amount: float, wanted: Floats, weights: Floats) -> Floats:
    """Divide `amount` among competitors by weight; none gets more than it wants, and the rest goes to the others."""
    if not len(wanted):
        return np.zeros(0)
    weights = np.where(weights > 0, weights, DEFAULT_WEIGHT)
    order = np.argsort(wanted / weights, kind="stable")
    want, weight = wanted[order], weights[order]
    before = np.concatenate([[0.0], np.cumsum(want)[:-1]])  # infinite wishes come last
    left = np.cumsum(weight[::-1])[::-1]
    level = np.maximum(amount - before, 0.0) / left
    unmet = np.flatnonzero(want > level * weight)
    if not len(unmet):
        return wanted.copy()
    first = int(unmet[0])
    shares = want.copy()
    shares[first:] = level[first] * weight[first:]
    found = np.empty(len(wanted))
    found[order] = shares
    return found


@pytest.mark.parametrize(
    ("amount", "wanted", "weights", "shares"),
    [
        pytest.param(2.0, [INF, INF], [100, 100], [1.0, 1.0], id="equal"),
        pytest.param(4.0, [INF, INF], [300, 100], [3.0, 1.0], id="by-weight"),
        pytest.param(2.0, [INF, 0.5, INF], [100, 100, 100], [0.75, 0.5, 0.75], id="what-one-leaves-goes-to-the-others"),
        pytest.param(2.0, [0.1, 0.2], [1, 10_000], [0.1, 0.2], id="enough-for-all"),
        pytest.param(2.0, [INF, 100.0], [10_000, 1], [1.9998, 0.0002], id="best-effort-weight"),
        pytest.param(2.0, [INF, INF], [0, NAN], [1.0, 1.0], id="unknown-weights-are-the-default"),
        pytest.param(2.0, [], [], [], id="nobody"),
    ],
)
def test_shares(amount: float, wanted: list[float], weights: list[float], shares: list[float]) -> None:
    found = fair_shares(amount, np.array(wanted), np.nan_to_num(np.array(weights, dtype=float)))
    assert found == pytest.approx(shares, abs=1e-4)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(1, 10_000)), min_size=1, max_size=20),
    st.floats(0.1, 64),
)
def test_shares_are_fair(rows: list[tuple[float, float]], amount: float) -> None:
    """None gets more than it wants, all is given out, and one that wants more has no less per weight than another."""
    wanted, weights = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    shares = fair_shares(amount, wanted, weights)
    assert (shares <= wanted + 1e-9).all()
    assert shares.sum() == pytest.approx(min(amount, wanted.sum()))
    unmet = shares < wanted - 1e-6
    if unmet.any():
        assert (shares[unmet] / weights[unmet]).min() >= (shares / weights).max() - 1e-6


@given(
    st.lists(st.tuples(st.floats(0, 100), st.just(0.0) | st.floats(0.1, 10_000)), min_size=1, max_size=20),
    st.floats(0.1, 64),
)
def test_one_share_is_that_of_a_division_where_it_wants_all(rows: list[tuple[float, float]], amount: float) -> None:
    wanted, weights = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    competitors = Competitors(wanted, weights)
    for child in range(len(rows)):
        asking = wanted.copy()
        asking[child] = INF
        expected = fair_shares(amount, asking, weights)[child]
        assert competitors.share_of(child, amount) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_share_is_divided_on_each_level() -> None:
    outer = (Competitors(np.array([50.0, 50.0]), np.array([100.0, 100.0])), 0)
    inner = (Competitors(np.array([0.0, 10.0]), np.array([100.0, 300.0])), 0)
    assert share_by_weight(4.0, [outer]) == pytest.approx(2.0)
    assert share_by_weight(4.0, [outer, inner]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("share", "request_", "limit", "entitled"),
    [
        pytest.param(1.0, NAN, NAN, 1.0, id="weight"),
        pytest.param(0.1, 2.0, NAN, 2.0, id="request"),
        pytest.param(1.0, 2.0, 0.5, 0.5, id="limit"),
    ],
)
def test_entitlement(share: float, request_: float, limit: float, entitled: float) -> None:
    assert entitled_cores(share, request=request_, limit=limit) == entitled


@pytest.mark.parametrize(
    ("lost", "entitled", "used", "claim"),
    [
        pytest.param(0.3, 1.0, 0.2, 0.3, id="below-its-share"),
        pytest.param(90.0, 1.0, 1.0, 0.0, id="a-hundred-spinning-threads"),
        pytest.param(0.5, 1.0, 0.8, 0.2, id="up-to-its-share"),
        pytest.param(0.5, 1.0, 1.4, 0.0, id="above-its-share"),
    ],
)
def test_claims(lost: float, entitled: float, used: float, claim: float) -> None:
    assert claimable(lost, entitled=entitled, used=used) == pytest.approx(claim)
