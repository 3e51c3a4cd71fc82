"""Maps that groups of CPUs share, in place of per-CPU maps, on machines of many CPUs.

A per-CPU hash takes a value for every possible CPU with each entry, whether or not the cgroup ever runs there: 296
bytes by cgroup are 155 MB for 2,048 cgroups and 255 CPUs, and each read copies what the entries in use hold. There the
maps are plain hashes instead. Those by cgroup have an entry for each shard, a group of CPUs with a last-level cache in
common, so that a sum is written by few CPUs; maps of pairs have one entry. `COUNT` and `sharded` of bpf/maps.bpf.h are
the other half.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.cpuset import parse_cpuset
from probes.bpf_map import Map
from probes.bpf_object import BpfObject

PER_CPU_AT_MOST = 16
"""Possible CPUs up to which maps are per CPU."""
MAX_SHARDS = 32
MAX_CPUS = 1024
"""CPUs whose shard the programs look up; those beyond share with these."""
_CPUS_WITHOUT_CACHE = 16
"""CPUs that share where the kernel names no last-level cache."""
_SHARD_SHIFT = np.uint64(56)
_NO_CGROUP = np.uint64(0xFF)
"""Upper byte of identities that are no cgroup; they have one entry."""
_BPF_MAP_TYPE_HASH = 1
_BPF_F_NO_PREALLOC = 1


def shards_of(possible: int, caches: Mapping[int, int]) -> tuple[int, ...]:
    """Shard of each CPU, from the id of its last-level cache where that is known; empty where maps stay per CPU."""
    if possible <= PER_CPU_AT_MOST:
        return ()
    numbers = {identity: number for number, identity in enumerate(sorted(set(caches.values())))}
    count = min(possible, MAX_CPUS)
    if len(numbers) < 2:
        return tuple(cpu // _CPUS_WITHOUT_CACHE % MAX_SHARDS for cpu in range(count))
    return tuple(numbers.get(caches.get(cpu, -1), 0) % MAX_SHARDS for cpu in range(count))


@cache
def shards_of_machine() -> tuple[int, ...]:
    """Shards of this machine's CPUs, which need no library to be known."""
    possible = max(parse_cpuset(Path("/sys/devices/system/cpu/possible").read_text())) + 1
    if possible <= PER_CPU_AT_MOST:
        return ()
    caches = {}
    for file in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index3/id"):
        caches[int(file.parts[-4].removeprefix("cpu"))] = int(file.read_text())
    return shards_of(possible, caches)


def online_shards(shards: Sequence[int], online: Collection[int] | None = None) -> tuple[int, ...]:
    """Return the shards of CPUs that are online, by default on this machine; all where none of them is known."""
    if online is None:
        online = parse_cpuset(Path("/sys/devices/system/cpu/online").read_text())
    return tuple(sorted({shards[cpu] for cpu in online if cpu < len(shards)} or set(shards)))


def share(bpf: BpfObject, shards: Sequence[int], *, by_cgroup: Mapping[str, int] | None = None, **entries: int) -> None:
    """Make maps shared, before load: those by cgroup with so many cgroups, others with so many entries.

    Without shards they stay per CPU, of the same sizes.
    """
    by_cgroup = dict(by_cgroup or {})
    for name, count in (entries | by_cgroup).items():
        bpf.resize(name, count)
    if not shards:
        return
    width, live = max(shards) + 1, online_shards(shards)
    table = bytes(shards).ljust(MAX_CPUS, b"\0")
    bpf.set_rodata({"shards": width, "shard_of_cpu": int.from_bytes(table, "little")})
    for name, count in by_cgroup.items():
        bpf.resize(name, count * width)
    for name in entries | by_cgroup:
        bpf.retype(name, _BPF_MAP_TYPE_HASH, _BPF_F_NO_PREALLOC)
        bpf.map_kinds[name] = partial(SharedMap, shards=width if name in by_cgroup else 0, live=live)


class SharedMap(Map):
    """A shared map that reads as a per-CPU map does: values have shape (n, shards)."""

    def __init__(
        self, fd: int, key_dtype: np.dtype[Any], value_dtype: np.dtype[Any], shards: int, live: Sequence[int]
    ) -> None:
        """`shards` is 0 for a map whose entries all CPUs share; `live` are the shards that have CPUs online."""
        super().__init__(fd, key_dtype, value_dtype)
        self._shards = shards
        self._live = tuple(live)

    def read(self, *, drain: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
        keys, values = super().read(drain=drain)
        if not self._shards:
            return keys, values[:, None]
        return gathered(keys, values, self._shards)

    def reserve(self, keys: NDArray[Any]) -> int:
        """Make an entry for each key in each shard that runs anything; return how many keys lack one, at least.

        Each entry is copied in every read, so a shard whose CPUs are all offline gets its entries from the programs,
        once a CPU of it comes online.
        """
        refused = super().reserve(self._in_shards(keys, self._live))
        return -(-refused // len(self._live)) if self._shards else refused

    def delete(self, keys: NDArray[Any]) -> int:
        return super().delete(self._in_shards(keys, range(self._shards)))

    def _in_shards(self, keys: NDArray[Any], shards: Sequence[int]) -> NDArray[Any]:
        if not self._shards:
            return keys
        upper = np.array(shards, dtype=np.uint64) << _SHARD_SHIFT
        return np.unique(np.asarray(keys, dtype=np.uint64)[:, None] | upper)


def gathered(keys: NDArray[np.uint64], values: NDArray[Any], shards: int) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Return ids and values of shape (n, shards), zero where a shard has no entry."""
    upper = keys >> _SHARD_SHIFT
    whole = upper == _NO_CGROUP
    lower = keys & ((np.uint64(1) << _SHARD_SHIFT) - np.uint64(1))
    ids, rows = np.unique(np.where(whole, keys, lower), return_inverse=True)
    spread = np.zeros((len(ids), shards), dtype=values.dtype)
    spread[rows, np.where(whole, np.uint64(0), upper).astype(np.intp)] = values
    return ids, spread
