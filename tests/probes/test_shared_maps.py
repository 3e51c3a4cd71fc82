"""Shards of CPUs, and shared maps read as per-CPU maps are."""

import numpy as np
import pytest

from probes.shared_maps import MAX_CPUS, MAX_SHARDS, PER_CPU_AT_MOST, gathered, online_shards, shards_of

KERNEL = (1 << 64) - 1


def test_few_cpus_have_maps_of_their_own() -> None:
    assert shards_of(PER_CPU_AT_MOST, {0: 0}) == ()


def test_cpus_of_a_cache_share() -> None:
    caches = {cpu: 7 if cpu % 64 < 32 else 9 for cpu in range(64)}
    shards = shards_of(128, caches)
    assert len(shards) == 128
    assert set(shards[:32]) == {0}
    assert set(shards[32:64]) == {1}
    assert set(shards[64:]) == {0}, "CPUs that are offline have no cache yet"


@pytest.mark.parametrize("possible", [33, 255, 4096])
def test_without_known_caches_neighbouring_cpus_share(possible: int) -> None:
    shards = shards_of(possible, dict.fromkeys(range(possible), 0))
    assert len(shards) == min(possible, MAX_CPUS)
    assert max(shards) < MAX_SHARDS
    assert max(np.bincount(shards)) <= 32


def test_many_caches_use_the_same_shards_again() -> None:
    assert max(shards_of(512, {cpu: cpu // 4 for cpu in range(512)})) == MAX_SHARDS - 1


def test_entries_of_a_cgroup_come_together() -> None:
    keys = np.array([5, 5 | 3 << 56, 9 | 1 << 56, KERNEL], dtype=np.uint64)
    values = np.array([(1, 10), (2, 20), (4, 40), (8, 80)], dtype=[("a", np.uint64), ("b", np.uint64)])
    ids, spread = gathered(keys, values, 4)
    assert ids.tolist() == [5, 9, KERNEL]
    assert spread.shape == (3, 4)
    assert spread["a"].sum(axis=1).tolist() == [3, 4, 8]
    assert spread["b"][0].tolist() == [10, 0, 0, 20]


def test_nothing_is_gathered_from_an_empty_map() -> None:
    ids, spread = gathered(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64), 2)
    assert (len(ids), spread.shape) == (0, (0, 2))


def test_only_shards_that_run_anything_keep_room() -> None:
    shards = shards_of(255, {})
    assert online_shards(shards, {0, 1}) == (0,)
    assert online_shards(shards, {1, 17, 254}) == (0, 1, 15)
    assert online_shards(shards, {4000}) == tuple(range(16)), "which is better than none"
