"""Maps are read in short calls: every entry comes once, whatever the number of calls."""

import numpy as np
import pytest

from probes.bpf_object import BpfObject
from probes.build import object_path
from probes.cpu import PAIR_RECORD, U64
from probes.libbpf import possible_cpus

pytestmark = pytest.mark.kernel

PAIRS = 3000
"""More than a dozen calls return."""


@pytest.mark.parametrize("drain", [False, True])
def test_every_pair_of_a_large_map_is_read_once(drain: bool) -> None:
    bpf = BpfObject.open(object_path("cpu"))
    try:
        bpf.without("charge_queue")  # older kernels do not know what it calls
        bpf.resize("cpus", possible_cpus())
        bpf.resize("blame", PAIRS)
        bpf.load()
        blame = bpf.map("blame", PAIR_RECORD, U64)
        for number in range(PAIRS):
            key = np.array((number, number + 1), dtype=PAIR_RECORD)
            blame.update(key, np.full((possible_cpus(), 1), number, dtype=U64))
        keys, values = blame.read(drain=drain)
        assert sorted(keys["victim"].tolist()) == list(range(PAIRS))
        assert np.array_equal(values[:, 0], keys["victim"])
        assert len(blame.read()[0]) == (0 if drain else PAIRS)
    finally:
        bpf.close()
