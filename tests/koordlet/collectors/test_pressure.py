"""PSI of cgroups."""

from pathlib import Path

import pytest

from api.plugin import Unsupported
from koordlet.collectors.pressure import Pressure
from koordlet.host.pressure import parse_pressure
from tests.koordlet.collectors.hosts import PSI, A, columns, make_host
from tests.trees import make_tree


def test_pressure(tmp_path: Path) -> None:
    assert parse_pressure(PSI.encode()) == (123, 45)
    assert parse_pressure(PSI.encode().splitlines(keepends=True)[0]) == (123, 0)
    make_tree(tmp_path, {"proc/pressure/cpu": PSI, "cpu.pressure": PSI})
    for resource in ("cpu", "memory", "io"):
        make_tree(tmp_path, {f"a/{resource}.pressure": PSI})
    found, _ = columns(Pressure.open(make_host(tmp_path, 2)), A)
    assert found["pressure.memory_full_us"] == [45]


def test_pressure_switched_off_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="PSI"):
        Pressure.open(make_host(tmp_path, 2))
