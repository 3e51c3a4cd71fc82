"""What the response is told that this host can set."""

from pathlib import Path

from koordlet.control.capabilities import CapabilityReader
from koordlet.host.knobs.knobs import Knobs
from tests.koordlet.enforcer.hosts import FakeHost


def test_disks_under_io_cost_heed_weights(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, 2)
    rules = "8:0 enable=1 ctrl=auto rpct=0.00\n8:16 enable=0 ctrl=auto rpct=0.00\n"
    host.file("/", "io.cost.qos").write_text(rules)
    assert CapabilityReader(host.tree, Knobs(host.tree), "/agent").reach(()).weighing_disks == {"8:0"}


def test_on_cgroup_v1_there_is_no_io_cost(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, 1)
    assert CapabilityReader(host.tree, Knobs(host.tree), "/agent").reach(()).weighing_disks == frozenset()
