"""Hardware events that the `pmu` probe opens, by CPU: a table, and how the CPU is recognised. Reads sysfs.

The four quantities are cycles, instructions, and references to and misses of the last-level cache that this core's
own execution caused. Cycles and instructions are the kernel's generic events everywhere. The generic cache events
are not the last-level cache everywhere, so they are replaced where they mislead:

| CPU | cache references | cache misses |
|---|---|---|
| Intel | generic: LONGEST_LAT_CACHE.REFERENCE, architectural | generic: LONGEST_LAT_CACHE.MISS |
| AMD, family 19h and later | 0x44, 0x5e: data-cache fills not from the own L2 | 0x44, 0x5c: from beyond the complex |
| AMD 17h, Hygon 18h | 0x43, 0x5a: demand data-cache fills not from the own L2 | 0x43, 0x58: DRAM or another die |
| Arm with ll_cache_rd | 0x36 LL_CACHE_RD | 0x37 LL_CACHE_MISS_RD |
| Arm with l3d_cache | 0x2b L3D_CACHE | 0x2a L3D_CACHE_REFILL |
| other | not opened | not opened |

The generic pair counts the L2 on AMD and the L1 data cache on Arm, which no neighbour on another core can spoil.
AMD's L3 counters proper belong to the complex, not to a core, and cannot be told apart by cgroup; the core's fills
by source can. They leave out instruction fetches and, on 17h, prefetches. Codes: the kernel's
tools/perf/pmu-events/arch/x86/amdzen*/{cache,memory}.json, arch/x86/events/amd/core.c, include/linux/perf/arm_pmuv3.h.
On hybrid Intel CPUs generic events are directed to the core type's PMU by its number in the upper half of the
config (PERF_PMU_TYPE_SHIFT).
"""

from dataclasses import dataclass
from pathlib import Path

from api.cpuset import parse_cpuset
from probes.perf_event import PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE

PERF_TYPE_RAW = 4
PMU_TYPE_SHIFT = 32
HYBRID_PMUS = ("cpu_core", "cpu_atom", "cpu_lowpower")
QUANTITIES = ("cycles", "instructions", "llc_references", "llc_misses")
"""Quantities measured, in the order of the program's record."""


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """One perf event: `struct perf_event_attr` type and config."""

    kind: int
    config: int


@dataclass(frozen=True, slots=True)
class EventSet:
    """Event opened for each quantity; None where no event of this CPU measures it."""

    cpu: str
    cycles: PerfEvent
    instructions: PerfEvent
    llc_references: PerfEvent | None
    llc_misses: PerfEvent | None

    def event(self, quantity: str) -> PerfEvent | None:
        """The event of one of `QUANTITIES`."""
        event: PerfEvent | None = getattr(self, quantity)
        return event


_CYCLES, _INSTRUCTIONS = PerfEvent(PERF_TYPE_HARDWARE, 0), PerfEvent(PERF_TYPE_HARDWARE, 1)
_GENERIC_REFERENCES, _GENERIC_MISSES = PerfEvent(PERF_TYPE_HARDWARE, 2), PerfEvent(PERF_TYPE_HARDWARE, 3)


def _set(cpu: str, references: PerfEvent | None, misses: PerfEvent | None) -> EventSet:
    return EventSet(cpu, _CYCLES, _INSTRUCTIONS, references, misses)


def _raw(event: int, umask: int = 0) -> PerfEvent:
    return PerfEvent(PERF_TYPE_RAW, umask << 8 | event)


INTEL = _set("Intel", _GENERIC_REFERENCES, _GENERIC_MISSES)
AMD_ZEN3 = _set("AMD family 19h and later", _raw(0x44, 0x5E), _raw(0x44, 0x5C))
AMD_ZEN = _set("AMD family 17h", _raw(0x43, 0x5A), _raw(0x43, 0x58))
ARM_LL = _set("Arm with LL_CACHE", _raw(0x36), _raw(0x37))
ARM_L3 = _set("Arm with L3D_CACHE", _raw(0x2B), _raw(0x2A))
UNKNOWN = _set("unknown", None, None)

STAND_IN = EventSet(
    "software stand-in",
    cycles=PerfEvent(PERF_TYPE_SOFTWARE, 0),  # PERF_COUNT_SW_CPU_CLOCK: ns on the CPU
    instructions=PerfEvent(PERF_TYPE_SOFTWARE, 1),  # PERF_COUNT_SW_TASK_CLOCK: the same by another clock
    llc_references=PerfEvent(PERF_TYPE_SOFTWARE, 5),  # PERF_COUNT_SW_PAGE_FAULTS_MIN
    llc_misses=PerfEvent(PERF_TYPE_SOFTWARE, 3),  # PERF_COUNT_SW_CONTEXT_SWITCHES: switches into the cgroup
)
"""Software events that any kernel has, for the same plumbing where there is no PMU. Never for production."""


@dataclass(frozen=True, slots=True)
class CpuIdentity:
    """Identity of a CPU from /proc/cpuinfo; `family` is 0 and `vendor` "Arm" on Arm."""

    vendor: str
    family: int


def parse_cpuinfo(text: str) -> CpuIdentity:
    """The first processor's identity; an empty vendor where the text names none."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            fields.setdefault(key.strip(), value.strip())
    if "CPU implementer" in fields:
        return CpuIdentity("Arm", 0)
    family = fields.get("cpu family", "")
    return CpuIdentity(fields.get("vendor_id", ""), int(family) if family.isdecimal() else 0)


def choose(identity: CpuIdentity, offered: frozenset[str]) -> EventSet:
    """The events for a CPU; `offered` are the names under its PMU's `events` directory (they decide on Arm only)."""
    if identity.vendor == "GenuineIntel":
        return INTEL
    if identity.vendor in ("AuthenticAMD", "HygonGenuine"):
        if identity.family >= 0x19:
            return AMD_ZEN3
        return AMD_ZEN if identity.family >= 0x17 else UNKNOWN
    if identity.vendor == "Arm":
        if {"ll_cache_rd", "ll_cache_miss_rd"} <= offered:
            return ARM_LL
        if {"l3d_cache", "l3d_cache_refill"} <= offered:
            return ARM_L3
    return UNKNOWN


def directed(event: PerfEvent, pmu_type: int | None) -> PerfEvent:
    """A generic event sent to one core type's PMU; any other event is left as it is."""
    if pmu_type is None or event.kind != PERF_TYPE_HARDWARE:
        return event
    return PerfEvent(event.kind, pmu_type << PMU_TYPE_SHIFT | event.config)


def detect(root: Path) -> EventSet:
    """The events for the host under `root`."""
    offered = frozenset(path.name for path in root.glob("sys/bus/event_source/devices/armv8*/events/*"))
    return choose(parse_cpuinfo((root / "proc/cpuinfo").read_text()), offered)


def hybrid_pmu_types(root: Path) -> dict[int, int]:
    """CPU number to the PMU type of its core type; empty unless the CPU is an Intel hybrid."""
    types: dict[int, int] = {}
    for name in HYBRID_PMUS:
        directory = root / "sys/bus/event_source/devices" / name
        try:
            kind = int((directory / "type").read_text())
            cpus = parse_cpuset((directory / "cpus").read_text())
        except FileNotFoundError:
            continue
        types.update(dict.fromkeys(cpus, kind))
    return types
