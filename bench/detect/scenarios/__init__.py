"""Scenarios of interference on a node, a module for each resource; every scenario states its truth beside its
making."""

from bench.detect.claims import Scenario
from bench.detect.scenarios import clean, cpu, disk, memory, network, quota

SCENARIOS: tuple[Scenario, ...] = (
    *cpu.SCENARIOS,
    *quota.SCENARIOS,
    *memory.SCENARIOS,
    *disk.SCENARIOS,
    *network.SCENARIOS,
    *clean.SCENARIOS,
)
"""All, in the order in which they run. Names are unique."""
