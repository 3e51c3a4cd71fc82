"""The ledger of pairs keeps those that matter now, and every amount."""

import numpy as np

from api.frame import OTHER_ID
from probes.pairs import PairLedger

MILLISECOND = 1_000_000


def _amounts(ledger: PairLedger) -> dict[tuple[int, int], int]:
    table = ledger.table("x")
    keys = zip(table.ids.tolist(), table.keys["culprit"].tolist(), strict=True)
    return dict(zip(keys, table.columns["x"].tolist(), strict=True))


def _add(ledger: PairLedger, victims: np.ndarray, culprits: np.ndarray, amounts: np.ndarray) -> None:
    ledger.add(victims.astype(np.uint64), culprits.astype(np.uint64), amounts.astype(np.uint64))


def test_a_newcomer_is_named_among_pairs_that_were_there_for_long() -> None:
    ledger = PairLedger()
    victims, culprits = np.repeat(np.arange(1, 501), 20), np.tile(np.arange(1000, 1020), 500)
    for _ in range(300):
        _add(ledger, victims, culprits, np.full(len(victims), 2 * MILLISECOND))
    for _ in range(3):
        before = _amounts(ledger).get((7, 5000), 0)
        newcomer = np.append(victims, 7), np.append(culprits, 5000)
        _add(ledger, *newcomer, np.append(np.full(len(victims), 2 * MILLISECOND), 300 * MILLISECOND))
        assert _amounts(ledger)[7, 5000] - before == 300 * MILLISECOND


def test_folding_loses_no_amount_of_any_victim() -> None:
    draw = np.random.default_rng(1)
    ledger, total = PairLedger(max_pairs=64), np.zeros(10, dtype=np.int64)
    for _ in range(50):
        victims, amounts = draw.integers(1, 10, 40), draw.integers(1, 1000, 40)
        _add(ledger, victims, draw.integers(100, 200, 40), amounts)
        np.add.at(total, victims, amounts)
        assert len(ledger.table("x").ids) <= 64 + 40
    kept = np.zeros(10, dtype=np.int64)
    for (victim, _culprit), amount in _amounts(ledger).items():
        kept[victim] += amount
    assert np.array_equal(kept, total)
    assert any(culprit == OTHER_ID for _victim, culprit in _amounts(ledger))


def test_a_forgotten_victim_has_no_pairs_and_what_gone_culprits_did_stays() -> None:
    ledger = PairLedger()
    _add(ledger, np.array([1, 2]), np.array([2, 1]), np.array([5, 6]))
    ledger.forget(np.array([1], dtype=np.uint64))
    assert _amounts(ledger) == {(2, 1): 6}
    _add(ledger, np.array([2]), np.array([1]), np.array([4]))
    assert _amounts(ledger) == {(2, 1): 10}
