"""Events chosen for each CPU, from the text and trees of such hosts."""

from pathlib import Path

import pytest

from probes.pmu_events import (
    AMD_ZEN,
    AMD_ZEN3,
    ARM_L3,
    ARM_LL,
    INTEL,
    STAND_IN,
    UNKNOWN,
    CpuIdentity,
    EventSet,
    PerfEvent,
    choose,
    detect,
    directed,
    hybrid_pmu_types,
    parse_cpuinfo,
)

LL = frozenset({"ll_cache_rd", "ll_cache_miss_rd", "l3d_cache", "l3d_cache_refill", "cpu_cycles"})
L3 = frozenset({"l3d_cache", "l3d_cache_refill"})


@pytest.mark.parametrize(
    ("identity", "offered", "expected"),
    [
        pytest.param(CpuIdentity("GenuineIntel", 6), frozenset(), INTEL, id="intel"),
        pytest.param(CpuIdentity("AuthenticAMD", 0x15), frozenset(), UNKNOWN, id="amd-before-zen"),
        pytest.param(CpuIdentity("AuthenticAMD", 0x17), frozenset(), AMD_ZEN, id="amd-zen2"),
        pytest.param(CpuIdentity("HygonGenuine", 0x18), frozenset(), AMD_ZEN, id="hygon"),
        pytest.param(CpuIdentity("AuthenticAMD", 0x19), frozenset(), AMD_ZEN3, id="amd-zen3-and-4"),
        pytest.param(CpuIdentity("AuthenticAMD", 0x1A), frozenset(), AMD_ZEN3, id="amd-zen5"),
        pytest.param(CpuIdentity("Arm", 0), LL, ARM_LL, id="arm-with-ll-cache"),
        pytest.param(CpuIdentity("Arm", 0), L3, ARM_L3, id="arm-with-l3d-only"),
        pytest.param(CpuIdentity("Arm", 0), frozenset({"ll_cache_rd"}), UNKNOWN, id="arm-without-misses"),
        pytest.param(CpuIdentity("", 0), LL, UNKNOWN, id="unknown"),
    ],
)
def test_choice(identity: CpuIdentity, offered: frozenset[str], expected: EventSet) -> None:
    assert choose(identity, offered) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n",
            CpuIdentity("AuthenticAMD", 26),
            id="amd",
        ),
        pytest.param(
            "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n",
            CpuIdentity("Arm", 0),
            id="arm",
        ),
        pytest.param("", CpuIdentity("", 0), id="empty"),
        pytest.param(
            "vendor_id : GenuineIntel\ncpu family : 6\n\nvendor_id : Other\ncpu family : 9\n",
            CpuIdentity("GenuineIntel", 6),
            id="first-cpu-counts",
        ),
    ],
)
def test_cpuinfo(text: str, expected: CpuIdentity) -> None:
    assert parse_cpuinfo(text) == expected


def test_raw_codes_carry_the_umask_above_the_event() -> None:
    assert AMD_ZEN3.llc_references == PerfEvent(4, 0x5E44)
    assert AMD_ZEN.llc_misses == PerfEvent(4, 0x5843)
    assert ARM_LL.llc_misses == PerfEvent(4, 0x37)


def test_misses_are_part_of_references_on_amd() -> None:
    for events in (AMD_ZEN, AMD_ZEN3):
        assert events.llc_references and events.llc_misses
        references, misses = events.llc_references.config >> 8, events.llc_misses.config >> 8
        assert misses & references == misses
        assert not references & 0x01  # fills from the own L2 never reach the last level


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_hybrid_host_directs_generic_events_to_the_core_types_pmu(tmp_path: Path) -> None:
    devices = tmp_path / "sys/bus/event_source/devices"
    for name, kind, cpus in (("cpu_core", 4, "0-1"), ("cpu_atom", 10, "2-3")):
        _write(devices / name / "type", f"{kind}\n")
        _write(devices / name / "cpus", f"{cpus}\n")
    types = hybrid_pmu_types(tmp_path)
    assert types == {0: 4, 1: 4, 2: 10, 3: 10}
    assert directed(INTEL.cycles, types[2]) == PerfEvent(0, 10 << 32)
    assert directed(PerfEvent(4, 0x5E44), types[2]) == PerfEvent(4, 0x5E44)
    assert directed(INTEL.cycles, None) == INTEL.cycles


def test_a_uniform_host_directs_nothing(tmp_path: Path) -> None:
    assert hybrid_pmu_types(tmp_path) == {}


def test_detection_reads_the_host_under_its_root(tmp_path: Path) -> None:
    _write(tmp_path / "proc/cpuinfo", "CPU implementer : 0x41\n")
    for name in LL:
        _write(tmp_path / f"sys/bus/event_source/devices/armv8_pmuv3_0/events/{name}", "event=0x0\n")
    assert detect(tmp_path) is ARM_LL


def test_the_stand_ins_are_four_different_software_events() -> None:
    events = {STAND_IN.cycles, STAND_IN.instructions, STAND_IN.llc_references, STAND_IN.llc_misses}
    assert len(events) == 4
    assert all(event and event.kind == 1 for event in events)
