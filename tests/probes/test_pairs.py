"""The ledger of pairs keeps those that matter now, and every amount."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.frame import OTHER_ID, CgroupInfo, Frame, Table
from detector.blame import blame_between
from probes.pairs import PairLedger
from probes.parents import Parents

MILLISECOND = 1_000_000
_VICTIMS, _CULPRITS = st.sampled_from([2, 5, 59]), st.sampled_from([1, 2, 3, *range(5, 14), 58, 59])
"""Cgroups of `_jobs(40)`, and some that are not known; few enough for pairs to come again."""


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
        ledger.table("x")
    before = 0
    for _ in range(3):
        newcomer = np.append(victims, 7), np.append(culprits, 5000)
        _add(ledger, *newcomer, np.append(np.full(len(victims), 2 * MILLISECOND), 300 * MILLISECOND))
        after = _amounts(ledger)[7, 5000]
        assert after - before == 300 * MILLISECOND
        before = after


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


def test_what_comes_late_of_a_forgotten_victim_is_dropped_until_the_next_table() -> None:
    ledger = PairLedger()
    ledger.forget(np.array([7], dtype=np.uint64))
    _add(ledger, np.array([7, 8]), np.array([9, 9]), np.array([1, 2]))
    assert _amounts(ledger) == {(8, 9): 2}
    _add(ledger, np.array([7]), np.array([9]), np.array([3]))
    assert _amounts(ledger) == {(7, 9): 3, (8, 9): 2}, "an id may be used again"


def test_victims_that_go_while_a_probe_is_not_read_take_bounded_memory() -> None:
    ledger = PairLedger()
    for start in range(0, 40_000, 1_000):
        ledger.forget(np.arange(start, start + 1_000, dtype=np.uint64))
    assert len(ledger._forgotten) <= 9_192


def _jobs(count: int) -> tuple[CgroupInfo, ...]:
    paths = ["/", "/web", "/ci", "/ci/jobs", *(f"/ci/jobs/j{number}" for number in range(count))]
    return tuple(CgroupInfo(identity, path, path) for identity, path in enumerate(paths, start=1))


WEB, CI, JOBS, FIRST_JOB = 2, 3, 4, 5


def _hundreds_of_jobs(ledger: PairLedger, jobs: np.ndarray) -> None:
    """Each waits behind each, and the service a thousandth as long behind each."""
    victims, culprits = np.repeat(np.append(jobs, WEB), len(jobs)), np.tile(jobs, len(jobs) + 1)
    amounts = np.where(victims == WEB, MILLISECOND, 1000 * MILLISECOND)
    others = victims != culprits
    _add(ledger, victims[others], culprits[others], amounts[others])


def test_what_hundreds_of_jobs_do_is_their_parents_who_are_too_many_to_be_kept() -> None:
    infos = _jobs(400)
    ledger, jobs = PairLedger(), np.arange(FIRST_JOB, FIRST_JOB + 400)
    ledger.parents = Parents(lambda: infos)
    for tick in range(1, 4):
        before = _amounts(ledger)
        _hundreds_of_jobs(ledger, jobs)
        after = _amounts(ledger)
        grown = _growth(before, after)
        read = blame_between(_frame(0, before), _frame(1, after), "cpu.blame")
        assert read.sums(np.array([WEB], dtype=np.uint64)) == pytest.approx([0.4])
        assert read.against(np.array([WEB], dtype=np.uint64), np.array([JOBS], dtype=np.uint64)) >= 0.95 * 0.4
        assert grown[WEB, JOBS] >= 0.95 * 400 * MILLISECOND, f"tick {tick}"
        assert sum(amount for (victim, _), amount in grown.items() if victim == WEB) == 400 * MILLISECOND
        assert (FIRST_JOB, JOBS) not in grown, "a job is in the cgroup of all jobs"


def _frame(second: int, amounts: Mapping[tuple[int, int], int]) -> Frame:
    keys = np.array(list(amounts) or np.empty((0, 2)), dtype=np.uint64)
    columns = {"cpu.blame_ns": np.array(list(amounts.values()), dtype=np.uint64)}
    table = Table({"cgroup": keys[:, 0], "culprit": keys[:, 1]}, columns)
    return Frame(second * 10**9, 0, (), {"cpu.blame": table})


def _growth(before: Mapping[tuple[int, int], int], after: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """As `detector.blame` reads it: what gone pairs had told before is `OTHER_ID`'s and no growth."""
    grown = {pair: amount - before.get(pair, 0) for pair, amount in after.items()}
    for victim, culprit in before.keys() - after.keys():
        grown[victim, OTHER_ID] -= before[victim, culprit]
    assert all(amount >= 0 for amount in grown.values())
    return {pair: amount for pair, amount in grown.items() if amount}


def test_what_was_told_of_a_folded_pair_is_no_growth_of_the_cgroup_above() -> None:
    infos = _jobs(100)
    ledger, jobs = PairLedger(max_pairs=64), np.arange(FIRST_JOB, FIRST_JOB + 60)
    ledger.parents = Parents(lambda: infos)
    _add(ledger, np.full(60, WEB), jobs, np.full(60, 9 * MILLISECOND))
    before = _amounts(ledger)
    assert before[WEB, FIRST_JOB] == 9 * MILLISECOND
    _add(ledger, np.full(100, WEB), np.arange(FIRST_JOB, FIRST_JOB + 100), np.full(100, MILLISECOND))
    grown = _growth(before, _amounts(ledger))
    assert sum(grown.values()) == 100 * MILLISECOND
    assert 60 * MILLISECOND <= grown[WEB, JOBS] <= 100 * MILLISECOND
    assert (WEB, OTHER_ID) not in grown


def test_lone_containers_of_many_pods_go_up_until_they_fit() -> None:
    paths = ["/", "/web", "/pods", *(f"/pods/p{number}" for number in range(300))]
    paths += [f"/pods/p{number}/main" for number in range(300)]
    infos = tuple(CgroupInfo(identity, path, path) for identity, path in enumerate(paths, start=1))
    ledger, containers = PairLedger(max_pairs=64), np.arange(304, 604)
    ledger.parents = Parents(lambda: infos)
    _add(ledger, np.full(300, WEB), containers, np.full(300, MILLISECOND))
    amounts = _amounts(ledger)
    assert amounts[WEB, 3] >= 200 * MILLISECOND
    assert len(amounts) <= 64
    assert sum(amounts.values()) == 300 * MILLISECOND


@pytest.mark.parametrize("additions", [2, 3, 6])
def test_pairs_that_come_again_before_the_next_table_are_not_the_others_growth(additions: int) -> None:
    infos = _jobs(100)
    ledger, jobs = PairLedger(max_pairs=64), np.arange(FIRST_JOB, FIRST_JOB + 100)
    ledger.parents = Parents(lambda: infos)
    _add(ledger, np.full(3, WEB), jobs[:3], np.full(3, 100_000 * MILLISECOND))
    for _ in range(900):  # those are quiet for long
        _add(ledger, np.array([CI]), np.array([WEB]), np.array([MILLISECOND]))
        ledger.table("x")
    before = _amounts(ledger)
    assert before[WEB, FIRST_JOB] == 100_000 * MILLISECOND
    _add(ledger, np.full(97, WEB), jobs[3:], np.full(97, MILLISECOND))
    for _ in range(additions - 1):
        _add(ledger, np.full(3, WEB), jobs[:3], np.full(3, MILLISECOND))
    after = _amounts(ledger)
    grown = _growth(before, after)
    assert (WEB, OTHER_ID) not in grown
    assert sum(grown.values()) == (97 + 3 * (additions - 1)) * MILLISECOND
    read = blame_between(_frame(0, before), _frame(1, after), "cpu.blame")
    assert read.sums(np.array([WEB], dtype=np.uint64)) == pytest.approx([0.097 + 0.003 * (additions - 1)])
    assert len(after) <= 64


def test_any_number_of_additions_without_a_table_takes_bounded_memory() -> None:
    infos = _jobs(1000)
    ledger, sizes = PairLedger(max_pairs=64), []
    ledger.parents = Parents(lambda: infos)
    _add(ledger, np.full(60, WEB), np.arange(FIRST_JOB, FIRST_JOB + 60), np.full(60, 9 * MILLISECOND))
    before = _amounts(ledger)
    for step in range(50):
        _add(ledger, np.full(20, WEB), FIRST_JOB + 20 * step + np.arange(20), np.full(20, MILLISECOND))
        sizes.append(ledger.collected)
    assert max(sizes) <= 4 * 64
    grown = _growth(before, _amounts(ledger))
    assert sum(grown.values()) == 1000 * MILLISECOND
    assert (WEB, OTHER_ID) not in grown


@given(st.data())
def test_folding_into_parents_keeps_each_victims_sum_and_blames_none_that_it_is_in(data: st.DataObject) -> None:
    infos = _jobs(40)
    ledger, total = PairLedger(max_pairs=8), dict.fromkeys(range(1, 60), 0)
    ledger.parents = Parents(lambda: infos)
    before: dict[tuple[int, int], int] = {}
    for _ in range(6):
        grown = dict.fromkeys(total, 0)
        for _ in range(data.draw(st.integers(1, 4))):
            rows = data.draw(st.lists(st.tuples(_VICTIMS, _CULPRITS, st.integers(1, 1000)), min_size=1, max_size=40))
            for victim, _culprit, amount in rows:
                grown[victim] += amount
            _add(ledger, *np.array(rows, dtype=np.int64).reshape(-1, 3).T)
        after = _amounts(ledger)
        for (victim, culprit), amount in _growth(before, after).items():
            grown[victim] -= amount
            assert culprit != JOBS or not FIRST_JOB <= victim < FIRST_JOB + 40
        assert not any(grown.values())
        before = after
