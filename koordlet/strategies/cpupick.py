"""Choose CPUs for work that shares them: whole cores before single threads, evenly over sockets and NUMA nodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from koordlet.strategies.view import CpuThread


def pick_cpus(candidates: Iterable[CpuThread], count: int) -> list[int]:
    """Return `count` CPUs in the order of choice; empty when there are fewer.

    The order is Koordinator's: NUMA nodes by size, then by first CPU; round robin, first two threads of one core at a
    time, then single threads from where that ended.
    """
    buckets = _buckets(candidates)
    if count <= 0 or count > sum(len(bucket) for bucket in buckets):
        return []
    pairs, turn = _rounds(buckets, count, 0, _first_pair)
    singles, _ = _rounds(buckets, count - len(pairs), turn, _first_single)
    return pairs + singles


def pick_cores(cpus: Sequence[CpuThread], candidates: Iterable[CpuThread], count: int) -> list[int]:
    """Return at most `count` CPUs, all threads of each core or none, from cores whose threads are all candidates.

    No other work then runs on a sibling of a chosen CPU. At least one core where there is any.
    """
    threads = Counter(cpu.core for cpu in cpus)
    cores: dict[int, list[CpuThread]] = {}
    for cpu in candidates:
        cores.setdefault(cpu.core, []).append(cpu)
    heads = {min(cpu.id for cpu in core): core for number, core in cores.items() if len(core) == threads[number]}
    first_threads = [cpu for head, core in heads.items() for cpu in core if cpu.id == head]
    chosen: list[int] = []
    for head in pick_cpus(first_threads, len(first_threads)):
        if not chosen or len(chosen) + len(heads[head]) <= count:
            chosen += sorted(cpu.id for cpu in heads[head])
    return chosen


def _buckets(candidates: Iterable[CpuThread]) -> list[list[CpuThread]]:
    by_place: dict[tuple[int, int], list[CpuThread]] = {}
    for cpu in sorted(candidates, key=lambda cpu: (cpu.core, cpu.id)):
        by_place.setdefault((cpu.socket, cpu.node), []).append(cpu)
    return sorted(by_place.values(), key=lambda bucket: (-len(bucket), min(cpu.id for cpu in bucket)))


def _rounds(
    buckets: list[list[CpuThread]], count: int, turn: int, first: Callable[[list[CpuThread], int], list[CpuThread]]
) -> tuple[list[int], int]:
    """Take from the buckets in turn until `count` is reached or none has any left; returns the CPUs and the next
    turn."""
    taken: list[int] = []
    fruitless = 0
    while len(taken) < count and fruitless < len(buckets):
        bucket = buckets[turn % len(buckets)]
        step = first(bucket, count - len(taken))
        fruitless = 0 if step else fruitless + 1
        for cpu in step:
            bucket.remove(cpu)
            taken.append(cpu.id)
        turn += 1
    return taken, turn % len(buckets)


def _first_pair(bucket: list[CpuThread], need: int) -> list[CpuThread]:
    if need < 2:
        return []
    for left, right in pairwise(bucket):
        if left.core == right.core:
            return [left, right]
    return []


def _first_single(bucket: list[CpuThread], need: int) -> list[CpuThread]:
    return bucket[:1] if need > 0 else []
