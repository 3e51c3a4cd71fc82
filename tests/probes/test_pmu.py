"""The CPUs that a read of the pmu probe interrupts."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from probes.bpf_object import BpfObject
from probes.libbpf import possible_cpus
from probes.pmu import CPU_RECORD, Pmu, undisturbed_cpus
from tests.trees import make_tree

CPUS = "sys/devices/system/cpu/"


class Map:
    def __init__(self, values: Any) -> None:
        self._values = values

    def read(self, *, drain: bool = False) -> tuple[Any, Any]:
        assert not drain
        return np.arange(len(self._values)), self._values


class Object:
    """The object of a machine on whose CPUs cgroups run all the time."""

    def __init__(self) -> None:
        self.settled: list[int] = []

    def map(self, name: str, *_types: Any) -> Map:
        return Map(np.full(possible_cpus(), 7, dtype=np.uint64).astype(CPU_RECORD) if name == "cpus" else np.zeros(0))

    def run(self, program: str, cpu: int) -> None:
        assert program == "settle"
        self.settled.append(cpu)


@pytest.mark.parametrize(
    ("files", "undisturbed"),
    [
        pytest.param({}, set(), id="old-kernel"),
        pytest.param({f"{CPUS}isolated": "\n", f"{CPUS}nohz_full": "  (null)\n"}, set(), id="none"),
        pytest.param({f"{CPUS}isolated": "2-3\n", f"{CPUS}nohz_full": "3,5\n"}, {2, 3, 5}, id="both-kinds"),
    ],
)
def test_isolated_cpus_are_those_that_the_kernel_lists(
    tmp_path: Path, files: dict[str, str], undisturbed: set[int]
) -> None:
    make_tree(tmp_path, files)
    assert undisturbed_cpus(tmp_path) == undisturbed


def test_a_read_does_not_interrupt_isolated_cpus(tmp_path: Path) -> None:
    last = possible_cpus() - 1
    if not last:
        pytest.skip("one CPU: none could be isolated")
    make_tree(tmp_path, {f"{CPUS}isolated": f"{last}\n"})
    bpf = Object()
    Pmu(cast("BpfObject", bpf), {}, tmp_path)._settle()
    assert bpf.settled == list(range(last))
