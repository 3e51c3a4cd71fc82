"""Sharing out global stalls: parts sum, self is apart, nothing is blamed twice. How they are measured on a kernel."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.frame import OTHER_ID
from api.plugin import Unsupported
from probes.bpf_object import BpfObject
from probes.memory import (
    CGROUP_RECORD,
    GLOBAL,
    HELD_BACK,
    LONGEST_UNSEEN_NS,
    STALL_RECORD,
    GlobalBlame,
    Memory,
    StallsUnderWay,
)
from probes.page_shares import PageShares
from probes.probe import Kernel, ProbeLimits


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


SECOND = 10**9


def stalls(*begun: tuple[float, int, int]) -> np.ndarray:
    """Stalls under way: since when, of which cgroup, by which cause."""
    return np.array([(int(since * SECOND), cgroup, cause, 0) for since, cgroup, cause in begun], dtype=STALL_RECORD)


def global_ns(under_way: StallsUnderWay, ended_ns: int, now: float, *begun: tuple[float, int, int]) -> int:
    """Nanoseconds told of cgroup 7, of which the kernel side has summed `ended_ns`."""
    ended = np.zeros(1, dtype=CGROUP_RECORD)
    ended["stall_ns"][0, GLOBAL] = ended_ns
    known, values = under_way.add(ids(7), ended, stalls(*begun), int(now * SECOND))
    return int(values["stall_ns"][known == 7, GLOBAL].sum())


def test_a_long_stall_grows_a_second_a_second_and_its_end_adds_nothing() -> None:
    under_way = StallsUnderWay()
    told = [global_ns(under_way, 0, 10 + tick, (10, 7, GLOBAL)) for tick in range(1, 10)]
    told += [global_ns(under_way, 9 * SECOND + 5, 20.0), global_ns(under_way, 9 * SECOND + 5, 21.0)]
    assert np.diff(told).tolist() == [SECOND] * 8 + [5, 0]


def test_an_end_between_both_readings_takes_nothing_back() -> None:
    under_way = StallsUnderWay()
    told = [global_ns(under_way, 0, 13.0, (10, 7, GLOBAL)), global_ns(under_way, 0, 14.0)]
    assert [*told, global_ns(under_way, 3 * SECOND + 9, 15.0)] == [3 * SECOND, 3 * SECOND, 3 * SECOND + 9]


def test_a_stall_of_a_cgroup_without_sums_is_told() -> None:
    known, values = StallsUnderWay().add(ids(), np.zeros(0, dtype=CGROUP_RECORD), stalls((1, 9, GLOBAL)), 3 * SECOND)
    assert known.tolist() == [9]
    assert values["stall_ns"][0, GLOBAL] == 2 * SECOND


def test_a_stall_that_ended_unseen_stops_to_grow() -> None:
    under_way = StallsUnderWay()
    assert global_ns(under_way, 0, 1000.0, (1, 7, GLOBAL)) == global_ns(under_way, 0, 2000.0, (1, 7, GLOBAL))
    assert global_ns(under_way, 0, 2001.0, (1, 7, GLOBAL)) == LONGEST_UNSEEN_NS


def opened(monkeypatch: pytest.MonkeyPatch, *accepted: bool) -> dict[str, str]:
    """Open the probe on a kernel that accepts these values of `traced`; returns the refusals."""

    def attached(_kernel: Kernel, _limits: ProbeLimits, *, traced: bool) -> BpfObject:
        if traced not in accepted:
            raise Unsupported("functions cannot be traced here" if traced else "the kernel has no BPF")
        return cast("BpfObject", SimpleNamespace(map=lambda *_arguments: None))

    monkeypatch.setattr(Memory, "attached", staticmethod(attached))
    kernel = SimpleNamespace(require_tracepoints=lambda *_names: None, refusals={})
    try:
        Memory.open(cast("Kernel", kernel), ProbeLimits())
    except Unsupported as refusal:
        assert not kernel.refusals
        return {"memory": refusal.reason}
    return kernel.refusals


def test_the_traced_function_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(monkeypatch, True, False) == {}


def test_where_functions_cannot_be_traced_the_wait_for_kswapd_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = opened(monkeypatch, False)
    assert refusals.keys() == {HELD_BACK}
    assert "functions cannot be traced here" in refusals[HELD_BACK]


def test_a_kernel_that_takes_neither_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(monkeypatch) == {"memory": "the kernel has no BPF"}
