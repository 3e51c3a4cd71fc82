"""A write that the kernel may keep for as long as it likes, ended after a time.

On cgroup v1 a memory limit below usage is set once usage fits it. While the cgroup takes as fast as the kernel
reclaims, that is never, and only a signal ends the write (mem_cgroup_resize_max, mm/memcontrol-v1.c). Python repeats
what a signal interrupts: hence a process of its own, which timers end.
"""

import errno
import gc
import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

BY_THE_CLOCK = 10
"""Times the CPU time that a write may take: where CPUs are full, as long as that."""
_NO_LATER = 2
"""Times the time of all turns after which they are ended wherever they are."""


class _TurnOver(Exception):
    """Raised by the signal that ends a turn."""


def write_within(seconds: float, fd: int, content: bytes) -> None:
    """Write by one write(2), with so many seconds of CPU time, and ten times as many by the clock.

    Raises OSError with the kernel's reason, InterruptedError where time was up.
    """

    def write() -> None:
        signal.setitimer(signal.ITIMER_REAL, BY_THE_CLOCK * seconds)
        os.write(fd, content)

    _in_a_process(seconds, write)


def write_in_turns(next_seconds: Callable[[], float], seconds: float, fd: int, content: bytes, undo: bytes) -> None:
    """Write in turns for so many seconds by the clock, until one ends by itself or the next is of 0 seconds.

    `next_seconds` says before each turn how long it may take by the clock. It is called in a process that has this
    one's locks without its threads: it should only read from descriptors. A write that succeeds is followed at once by
    one of `undo`.

    Raises OSError with the kernel's reason or that of `next_seconds`, InterruptedError where time was up.
    """
    is_writing = False
    latest = 0.0

    def end_turn(_number: int, _frame: object) -> None:
        nonlocal is_writing
        if is_writing:
            is_writing = False
            raise _TurnOver
        if time.monotonic() > latest:
            os._exit(errno.EINTR)

    def write() -> None:
        nonlocal is_writing, latest
        began = time.monotonic()
        latest = began + _NO_LATER * seconds
        signal.signal(signal.SIGALRM, end_turn)
        signal.setitimer(signal.ITIMER_REAL, _NO_LATER * seconds, seconds)
        while (turn := next_seconds()) > 0.0:
            try:
                try:
                    is_writing = True
                    # Repeated: the first signal may come just before the kernel is entered, where it ends nothing.
                    signal.setitimer(signal.ITIMER_REAL, turn, turn)
                    os.write(fd, content)
                finally:
                    is_writing = False
                os.pwrite(fd, undo, 0)
            except _TurnOver:
                if time.monotonic() < began + seconds:
                    continue
                raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR)) from None
            return

    _in_a_process(seconds, write)


def _in_a_process(seconds: float, write: Callable[[], None]) -> None:
    # This process's handlers are not the other's, which must not stop an agent or wake its event loop.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        writer = os.fork()
        if not writer:
            _write_and_exit(seconds, write)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    try:
        _pid, status = os.waitpid(writer, 0)
    except BaseException:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        raise
    why = os.WEXITSTATUS(status) if os.WIFEXITED(status) else errno.EINTR
    if why:
        raise OSError(why, os.strerror(why))


def _write_and_exit(seconds: float, write: Callable[[], None]) -> NoReturn:
    """Write in a process that may have other threads' locks without the threads: system calls, and no finalizers.

    It ends itself, for its parent may be killed meanwhile: it holds what the parent had open.
    """
    why = errno.EIO
    try:
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.setitimer(signal.ITIMER_PROF, seconds)
        write()
        why = 0
    except OSError as error:
        why = error.errno or errno.EIO
    finally:
        os._exit(why)
