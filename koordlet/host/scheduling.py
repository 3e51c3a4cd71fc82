"""How the kernel schedules a thread of the agent beside the workloads of its node.

Under EEVDF a thread that woke up waits until the running one has used up its slice, and with few timer ticks a second
until the next of these: a request that meets a tick of the agent then answers milliseconds late. Since Linux 6.12 a
thread may ask for a slice of its own (`sched_setattr`), and one that wakes with a shorter slice need not wait for it
(kernel/sched/fair.c, PREEMPT_SHORT). A thread with a long slice gets the same share of the CPU.
"""

import ctypes
import logging
import os
import platform
import struct
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

SLICE_NS = 100_000_000
"""The longest that the kernel grants. Its own is at most 3 ms, but the agent's deadline must be later than that of a
service of any weight, too."""

_NUMBERS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""System calls sched_setattr and sched_getattr by machine."""
_RESET_ON_FORK = 1
"""SCHED_FLAG_RESET_ON_FORK: what the thread starts has the kernel's slice. The policy passes on all the same."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""`struct sched_attr` (include/uapi/linux/sched/types.h), version 0: size, policy, flags, nice, priority, runtime,
deadline, period."""


def let_others_first(slice_ns: int = SLICE_NS) -> bool:
    """Let threads that wake up preempt the calling thread at once, and let it preempt none when it wakes.

    A thread whose policy was chosen by others (real-time, idle) keeps it. Threads and processes that it starts inherit
    the policy without the slice; those that must be prompt call `come_promptly`. Return whether the kernel took the
    policy; kernels before 6.12 take it and ignore the slice.
    """
    return _set(os.SCHED_BATCH, slice_ns, _RESET_ON_FORK)


def come_promptly() -> bool:
    """Let the calling thread be scheduled as any other, though the one that started it lets others first.

    For what must act in time: the guardian, the ends of leases, trips, starts of pods. A policy that was chosen by
    others stays. Return whether the kernel took it.
    """
    return _set(os.SCHED_OTHER, 0, 0)


def _set(policy: int, slice_ns: int, flags: int) -> bool:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None or os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK not in (os.SCHED_OTHER, os.SCHED_BATCH):
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, flags, nice, 0, slice_ns, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(numbers[0], 0, attributes, 0):
        _log.debug("the kernel refuses a slice: %s", os.strerror(ctypes.get_errno()))
        return False
    return True


def own_slice_ns() -> int:
    """Return the slice that the calling thread asked for; 0 where it did not, or the kernel does not know of slices."""
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        return 0
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if ctypes.CDLL(None).syscall(numbers[1], 0, attributes, _ATTRIBUTES.size, 0):
        return 0
    return int(_ATTRIBUTES.unpack(attributes.raw)[5])


class Breaks:
    """Short sleeps between the parts of a long piece of work, so that no stretch of it on a CPU is long.

    Older schedulers let a thread that wakes wait for the running one's slice, whatever it is; and a sleep lets other
    threads of this process have the interpreter.
    """

    def __init__(
        self,
        stretch_seconds: float = 0.002,
        break_seconds: float = 0.0005,
        *,
        used: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Sleep for `break_seconds` whenever the thread has `used` so much CPU time."""
        self._stretch_seconds, self._break_seconds = stretch_seconds, break_seconds
        self._used, self._sleep = used, sleep
        self._since = used()

    def __call__(self) -> None:
        """Sleep if it is time; called between parts."""
        if self._used() - self._since >= self._stretch_seconds:
            self._sleep(self._break_seconds)
            self._since = self._used()
