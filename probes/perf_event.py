"""perf_event_open(2): counting events and the sampling clock that BPF programs are attached to."""

import ctypes
import os

from api.plugin import Unsupported
from probes.libbpf import BpfError

PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE, PERF_TYPE_HW_CACHE = 0, 1, 3


class _PerfAttr(ctypes.Structure):
    """`struct perf_event_attr`, version 0 (64 bytes) as far as the fields used here."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    ]


_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_PERF_COUNT_SW_CPU_CLOCK = 0
_EXCLUDE_IDLE, _BY_FREQUENCY = 1 << 7, 1 << 10


def open_cpu_clock(cpu: int, hz: int) -> int:
    """Open a software clock that ticks `hz` times a second on one CPU, for a program; none while the CPU idles.

    Raises BpfError (ENODEV for an offline CPU).
    """
    flags = _EXCLUDE_IDLE | _BY_FREQUENCY
    attribute = _PerfAttr(
        type=PERF_TYPE_SOFTWARE, size=64, config=_PERF_COUNT_SW_CPU_CLOCK, sample_period=hz, flags=flags
    )
    return _perf_event(attribute, -1, cpu, -1, 0)


def perf_event_open(kind: int, config: int, *, pid: int = -1, cpu: int = -1, group: int = -1, flags: int = 0) -> int:
    """Open one counting perf event with enabled/running times; `flags` is 4 for a v2 cgroup descriptor in `pid`.

    Raises BpfError (ENOENT or EOPNOTSUPP where the host has no such event).
    """
    attribute = _PerfAttr(type=kind, size=64, config=config, read_format=3)
    return _perf_event(attribute, pid, cpu, group, flags)


def _perf_event(attribute: _PerfAttr, pid: int, cpu: int, group: int, flags: int) -> int:
    number = _PERF_EVENT_OPEN.get(os.uname().machine)
    if number is None:
        raise Unsupported(f"perf events are not known for {os.uname().machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, ctypes.byref(attribute), pid, cpu, group, flags | 8)
    if fd < 0:
        raise BpfError("perf_event_open", ctypes.get_errno())
    return int(fd)
