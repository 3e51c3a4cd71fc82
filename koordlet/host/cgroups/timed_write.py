"""A write that the kernel may keep for as long as it likes, ended after a time.

On cgroup v1 a memory limit below usage is set once usage fits it. While the cgroup takes as fast as the kernel
reclaims, that is never, and only a signal ends the write (mem_cgroup_resize_max, mm/memcontrol-v1.c). Python repeats
what a signal interrupts: hence a process of its own, which timers end.
"""

import errno
import os
import signal
from typing import NoReturn

BY_THE_CLOCK = 10
"""Times the CPU time that a write may take: where CPUs are full, as long as that."""


def write_within(seconds: float, fd: int, content: bytes) -> None:
    """Write by one write(2), with so many seconds of CPU time, and ten times as many by the clock.

    Raises OSError with the kernel's reason, InterruptedError where time was up.
    """
    writer = os.fork()
    if not writer:
        _write_and_exit(seconds, fd, content)
    try:
        _pid, status = os.waitpid(writer, 0)
    except BaseException:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        raise
    why = os.WEXITSTATUS(status) if os.WIFEXITED(status) else errno.EINTR
    if why:
        raise OSError(why, os.strerror(why))


def _write_and_exit(seconds: float, fd: int, content: bytes) -> NoReturn:
    """Write in a process that may have other threads' locks without the threads: nothing but system calls.

    It ends itself, for its parent may be killed meanwhile: it holds what the parent had open.
    """
    why = errno.EIO
    try:
        for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, BY_THE_CLOCK * seconds)
        os.write(fd, content)
        why = 0
    except OSError as error:
        why = error.errno or errno.EIO
    finally:
        os._exit(why)
