"""The CPU model as /proc/cpuinfo has it."""

from pathlib import Path

import pytest

from koordlet.host.cpumodel import cpu_model
from koordlet.host.files import HostTree
from tests.trees import make_tree


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        pytest.param(
            "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)  CPU @ 2.1GHz\n\nprocessor\t: 1\n",
            "Intel(R) Xeon(R) CPU @ 2.1GHz",
            id="x86",
        ),
        pytest.param("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "arm 0x41 0xd0c", id="arm"),
        pytest.param("processor\t: 0\n", "", id="unnamed"),
    ],
)
def test_model(tmp_path: Path, cpuinfo: str, model: str) -> None:
    assert cpu_model(HostTree(make_tree(tmp_path, {"proc/cpuinfo": cpuinfo}))) == model


def test_without_cpuinfo_there_is_no_model(tmp_path: Path) -> None:
    assert cpu_model(HostTree(tmp_path)) == ""
