"""Interrupt records as columns. Needs no kernel."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP
from probes.bpf_object import BpfObject
from probes.irq import CGROUP_RECORD, VECTOR_RECORD, VECTORS, Irq
from probes.libbpf import possible_cpus


class FakeMap:
    def __init__(self, keys: NDArray[Any], values: NDArray[Any]) -> None:
        self._contents = keys, values

    def read(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._contents


class FakeObject:
    def __init__(self, **maps: FakeMap) -> None:
        self._maps = maps

    def map(self, name: str, _key: np.dtype[Any], _value: np.dtype[Any]) -> FakeMap:
        return self._maps[name]


def test_cpus_are_added_and_vectors_named() -> None:
    cpus = possible_cpus()
    per_cgroup = np.zeros((1, cpus), dtype=CGROUP_RECORD)
    per_cgroup["hard_ns"], per_cgroup["soft_ns"] = 3, 5
    per_vector = np.zeros((len(VECTORS), cpus), dtype=VECTOR_RECORD)
    per_vector["ns"][VECTORS.index("net_rx")] = 7
    probe = Irq(
        cast(
            "BpfObject",
            FakeObject(
                cgroups=FakeMap(np.array([42], dtype=np.uint64), per_cgroup),
                vectors=FakeMap(np.arange(len(VECTORS), dtype=np.uint32), per_vector),
                lost=FakeMap(np.zeros(1, dtype=np.uint32), np.ones((1, cpus), dtype=np.uint64)),
            ),
        )
    )
    reading = probe.read()
    dense, vectors = reading.tables[CGROUP], reading.tables["irq.vector"]
    assert dense.ids.tolist() == [42]
    assert np.asarray(dense.columns["cpu.irq_ns"]).tolist() == [3 * cpus]
    assert np.asarray(dense.columns["cpu.softirq_ns"]).tolist() == [5 * cpus]
    named = dict(zip(vectors.keys["vector"].tolist(), vectors.columns["irq.vector_ns"].tolist(), strict=True))
    assert named["net_rx"] == 7 * cpus
    assert sum(named.values()) == 7 * cpus
    assert reading.lost == {"irq.cgroup": cpus}
