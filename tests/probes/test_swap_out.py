"""Writes to swap are borne by those who take pages: parts sum, waits for the first count of pages, and the kernel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.frame import KERNEL_ID, OTHER_ID, Reading, Table
from koordlet.agent.probe_set import ProbeSet
from probes.blockio import with_swap_out
from probes.page_shares import PageShares
from probes.probe import Kernel, Probe, ProbeLimits
from probes.swap_out import SWAP_OUT_ID, Pairs, SwapOut, parts

OWNER, HOG, OTHER_HOG, READER = 1, 2, 3, 4


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def pairs(*rows: tuple[int, int, int]) -> Pairs:
    return Pairs(*np.array(rows, dtype=np.uint64).reshape(-1, 3).T)


def rows(found: Pairs) -> dict[tuple[int, int], int]:
    keys = zip(found.victims.tolist(), found.culprits.tolist(), strict=True)
    return dict(zip(keys, found.amounts_ns.tolist(), strict=True))


@pytest.fixture
def shares() -> PageShares:
    return PageShares()


@pytest.fixture
def swap_out(shares: PageShares) -> SwapOut:
    made = SwapOut()
    made.takers = shares
    return made


def test_those_who_take_pages_bear_it_and_ones_own_part_stays_apart(swap_out: SwapOut, shares: PageShares) -> None:
    shares.add(ids(HOG, OTHER_HOG, READER), ids(600, 300, 100))
    found = swap_out.named(pairs((READER, SWAP_OUT_ID, 1000), (READER, OWNER, 7), (OWNER, SWAP_OUT_ID, 10)), 4000)
    assert rows(found) == {
        (READER, OWNER): 7,
        (READER, HOG): 600,
        (READER, OTHER_HOG): 300,
        (OWNER, HOG): 6,
        (OWNER, OTHER_HOG): 3,
        (OWNER, READER): 1,
    }
    assert swap_out.own_ns == {READER: 100}
    assert swap_out.written_bytes == {HOG: 2400, OTHER_HOG: 1200, READER: 400}


def test_what_the_writes_wait_is_no_loss(swap_out: SwapOut) -> None:
    assert rows(swap_out.named(pairs((SWAP_OUT_ID, READER, 9), (OWNER, READER, 1)), 0)) == {(OWNER, READER): 1}


def test_without_swap_out_nothing_changes(swap_out: SwapOut) -> None:
    usual = pairs((READER, HOG, 5), (OWNER, KERNEL_ID, 3))
    assert swap_out.named(usual, 0) is usual


def test_only_growth_is_shared_out(swap_out: SwapOut, shares: PageShares) -> None:
    shares.add(ids(HOG), ids(10))
    swap_out.named(pairs(), 100)
    swap_out.named(pairs(), 100)
    shares.add(ids(OTHER_HOG), ids(10_000_000))
    swap_out.named(pairs(), 150)
    assert swap_out.written_bytes == {HOG: 100, OTHER_HOG: 50}


def test_it_waits_once_for_the_first_count_of_pages(swap_out: SwapOut, shares: PageShares) -> None:
    assert rows(swap_out.named(pairs((READER, SWAP_OUT_ID, 10)), 100)) == {}
    shares.add(ids(HOG), ids(3))
    assert rows(swap_out.named(pairs((READER, SWAP_OUT_ID, 1)), 110)) == {(READER, HOG): 11}
    assert swap_out.written_bytes == {HOG: 110}


def test_where_no_page_is_ever_counted_it_is_the_kernels(swap_out: SwapOut) -> None:
    found = [rows(swap_out.named(pairs((READER, SWAP_OUT_ID, 10)), 0)) for _ in range(3)]
    assert found == [{}, {(READER, KERNEL_ID): 20}, {(READER, KERNEL_ID): 10}], "it waits for pages once"
    assert rows(swap_out.named(pairs(), 0)) == {}
    assert rows(swap_out.named(pairs((READER, SWAP_OUT_ID, 10)), 0)) == {}, "and once more after a pause"


def test_where_nothing_counts_pages_it_is_the_kernels_at_once() -> None:
    assert rows(SwapOut().named(pairs((READER, SWAP_OUT_ID, 10)), 100)) == {(READER, KERNEL_ID): 10}


def test_a_crowd_of_small_takers_is_named(swap_out: SwapOut, shares: PageShares) -> None:
    shares.add(ids(*range(100, 300)), ids(*[10] * 200))
    found = rows(swap_out.named(pairs((100, SWAP_OUT_ID, 2000)), 2000))
    assert found == pytest.approx({(100, taker): 10 for taker in range(101, 300)}, abs=1)
    assert swap_out.own_ns == pytest.approx({100: 10}, abs=1)
    assert sum(found.values()) + sum(swap_out.own_ns.values()) == 2000
    assert len(swap_out.written_bytes) == 200


def test_with_many_victims_those_who_took_fewest_are_one(
    swap_out: SwapOut, shares: PageShares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.swap_out.MOST_PAIRS", 2)
    monkeypatch.setattr("probes.swap_out.LEAST_TAKERS", 1)
    shares.add(ids(HOG, OTHER_HOG, READER, *range(100, 105)), ids(900, 40, 10, *[10] * 5))
    found = rows(swap_out.named(pairs((READER, SWAP_OUT_ID, 1000), (OWNER, SWAP_OUT_ID, 1000)), 0))
    told = {(READER, HOG): 900, (READER, OTHER_ID): 90, (OWNER, HOG): 900, (OWNER, OTHER_ID): 100}
    assert found == pytest.approx(told, abs=1)
    assert swap_out.own_ns == {READER: 10}, "its own part is no loss, however small"


def test_the_gone_are_kept_in_mind_no_longer_than_they_are_takers(swap_out: SwapOut, shares: PageShares) -> None:
    shares.add(ids(HOG), ids(1))
    swap_out.forget(ids(HOG, *range(100, 200)))
    assert len(swap_out._gone) == 1
    shares.add(ids(OTHER_HOG), ids(1))
    swap_out.named(pairs(), 0)
    assert not swap_out._gone


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=5),
    st.lists(st.integers(1, 10**9), min_size=1, max_size=9),
)
def test_parts_sum_to_the_whole(amounts: list[int], weights: list[int]) -> None:
    whole = np.array(amounts, dtype=np.uint64)[:, None]
    found = parts(whole, np.array(weights) / sum(weights))
    assert found.sum(axis=1).tolist() == amounts
    assert found.shape == (len(amounts), len(weights))
    assert (found <= whole).all()


def test_a_taker_without_io_has_a_row_and_identities_that_are_no_cgroup_have_none(
    swap_out: SwapOut, shares: PageShares
) -> None:
    shares.add(ids(HOG, READER, KERNEL_ID), ids(50, 25, 25))
    swap_out.named(pairs((READER, SWAP_OUT_ID, 100)), 1000)
    dense = Table({"cgroup": ids(READER)}, {"blockio.self_ns": ids(7), "blockio.queue_hist": np.ones((1, 3))})
    table = with_swap_out(dense, swap_out)
    assert table.ids.tolist() == [READER, HOG]
    assert table.columns["blockio.swapped_bytes"].tolist() == [250, 500]
    assert table.columns["blockio.self_ns"].tolist() == [7 + 25, 0]
    assert table.columns["blockio.queue_hist"].sum(axis=1).tolist() == [3, 0]


def test_the_gone_get_no_row_again_and_what_they_do_is_still_theirs(swap_out: SwapOut, shares: PageShares) -> None:
    shares.add(ids(HOG), ids(10))
    swap_out.named(pairs(), 100)
    swap_out.forget(ids(HOG))
    assert rows(swap_out.named(pairs((READER, SWAP_OUT_ID, 10)), 200)) == {(READER, HOG): 10}
    assert swap_out.written_bytes == {}


class Ordered(Probe):
    """Notes the order in which probes are read."""

    def __init__(self, name: str, order: list[str], shares: PageShares | None = None) -> None:
        self.label, self._order, self.page_shares = name, order, shares
        self.followed: PageShares | None = None

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Ordered":
        raise NotImplementedError

    def read(self) -> Reading:
        self._order.append(self.label)
        return Reading()

    def forget(self, gone: np.ndarray) -> None:
        """Keeps nothing."""

    def close(self) -> None:
        """Holds nothing."""

    def follow_pages(self, shares: PageShares) -> None:
        self.followed = shares


def test_who_counts_pages_is_read_first_and_all_others_follow_it(shares: PageShares) -> None:
    order: list[str] = []
    opened = {name: Ordered(name, order, shares if name == "memory" else None) for name in ("blockio", "memory", "net")}
    ProbeSet(opened, {}, {}, {}).read()
    assert order == ["memory", "blockio", "net"]
    assert opened["blockio"].followed is shares
