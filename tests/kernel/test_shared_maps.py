"""Memory of all probes' maps, on machines of few and of many possible CPUs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet.agent.agent import Agent
from koordlet.config import AgentSettings
from probes.libbpf import possible_cpus
from probes.probe import Kernel

pytestmark = pytest.mark.kernel

MIB = 1 << 20
LIMIT_BYTES = 64 * MIB


def map_bytes() -> dict[int, int]:
    """What the kernel charges for each BPF map that this process holds open, by map id."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}") != "anon_inode:bpf-map":
                continue
            lines = Path(f"/proc/self/fdinfo/{number}").read_text().splitlines()
        except FileNotFoundError:
            continue
        fields = dict(line.split(":", 1) for line in lines)
        found[int(fields["map_id"])] = int(fields["memlock"])
    return found


def test_maps_of_all_probes_are_bounded(kernel: Kernel, record_property: Callable[[str, object], None]) -> None:
    before = map_bytes()
    agent = Agent(AgentSettings())
    try:
        agent.collect(everything=True)
        taken = {number: size for number, size in map_bytes().items() if number not in before}
        shown = f"{len(taken)} maps for {possible_cpus()} possible CPUs: {sum(taken.values()) / MIB:.1f} MiB"
        record_property("figure", shown)
        assert "cpu" in agent.probes.opened, agent.unsupported
        assert sum(taken.values()) <= LIMIT_BYTES
    finally:
        agent.close()
