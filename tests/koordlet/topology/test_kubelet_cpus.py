"""The kubelet's CPU manager: its state file, and the CPUs that it keeps for an amount."""

import pytest

from koordlet.topology.kubelet_cpus import KubeletCpus, StateError, exclusive_cpus, lowest_cores
from tests.koordlet.topology.machines import machine

STATE = (
    '{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"u1":{"main":"1","side":"2"},"u2":{"main":""}},'
    '"checksum":3242152201}'
)


def test_sets_of_the_containers_are_joined() -> None:
    assert exclusive_cpus(STATE) == {"u1": {1, 2}}


def test_policy_none_has_no_entries() -> None:
    assert exclusive_cpus('{"policyName":"none","defaultCpuSet":"","checksum":1353318690}') == {}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(STATE[:60], id="torn"),
        pytest.param('{"entries":{"u":{"c":"9-1"}}}', id="no-list"),
        pytest.param('{"entries":[]}', id="other-shape"),
    ],
)
def test_an_unreadable_state(text: str) -> None:
    with pytest.raises(StateError):
        exclusive_cpus(text)


@pytest.mark.parametrize(
    ("millicores", "cpus"),
    [
        pytest.param(0, set(), id="nothing"),
        pytest.param(-5, set(), id="negative"),
        pytest.param(500, {0}, id="rounded-up"),
        pytest.param(2000, {0, 1}, id="one-core"),
        pytest.param(3000, {0, 1, 2}, id="core-and-thread"),
        pytest.param(5000, {0, 1, 2, 3, 4}, id="node-and-thread"),
        pytest.param(99_000, set(range(8)), id="more-than-there-are"),
    ],
)
def test_lowest_cores(millicores: int, cpus: set[int]) -> None:
    assert lowest_cores(machine(sockets=2, nodes=1, cores=2, threads=2), millicores) == cpus


def test_only_the_static_policy_gives_cpus() -> None:
    assert KubeletCpus(policy="static").static
    assert not KubeletCpus().static
