"""The command line of a guest with a node in it."""

import pytest

from tests.cluster_e2e.control_plane import CONTROL_PLANE
from tests.cluster_e2e.guest import AGENTS, SHORTENED, command
from tests.cluster_e2e.machine import DIRECTORIES


def test_the_guest_reaches_the_control_plane_outside_and_runs_what_was_chosen() -> None:
    line = command(["tests/cluster_e2e/test_node.py"], "https://10.0.2.2:6443", "systemd")
    assert f"{CONTROL_PLANE}=/run/koord-vm/results/control=https://10.0.2.2:6443" in line
    assert "KOORD_CGROUP_DRIVER=systemd" in line
    assert "test_node.py" in line
    assert not [name for name in SHORTENED if name != "test_node.py" and f" tests/cluster_e2e/{name}" in line]
    assert line.endswith("exit $status")


def test_logs_of_the_agents_are_kept() -> None:
    line = command([], "https://10.0.2.2:6443", "systemd")
    assert "-name audit.jsonl" in line
    assert line.index("status=$?") < line.index(f"-t {AGENTS}") < line.index("exit $status")


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_node_on_this_machine_is_out_of_its_sight(directory: str) -> None:
    assert f"mount -t tmpfs own {directory};" in command([], "https://10.0.2.2:6443", "cgroupfs")


def test_the_shortened_run_has_every_chosen_file() -> None:
    line = command([], "https://10.0.2.2:6443", "cgroupfs")
    assert [name for name in SHORTENED if f"tests/cluster_e2e/{name}" not in line] == []
