"""A write that the kernel may keep for as long as it likes, ended after a time.

On cgroup v1 a memory limit below usage is set once usage fits it. While the cgroup takes as fast as the kernel
reclaims, that is never, and only a signal ends the write (mem_cgroup_resize_max, mm/memcontrol-v1.c). Python repeats
what a signal interrupts: hence a process of its own, which is killed.
"""

import errno
import os
import select
import signal
import time
from typing import NoReturn


def write_until(deadline: float, fd: int, content: bytes) -> None:
    """Write by one write(2), until `deadline` of the monotonic clock.

    Raises OSError with the kernel's reason, InterruptedError where time was up.
    """
    writer = os.fork()
    if not writer:
        _write_and_exit(fd, content)
    why = _ended(writer, deadline)
    if why:
        raise OSError(why, os.strerror(why))


def _write_and_exit(fd: int, content: bytes) -> NoReturn:
    """In a process that may have other threads' locks without the threads: nothing but system calls."""
    why = errno.EIO
    try:
        os.write(fd, content)
        why = 0
    except OSError as error:
        why = error.errno or errno.EIO
    finally:
        os._exit(why)


def _ended(child: int, deadline: float) -> int:
    """Wait for a child, which is killed at the deadline; return its exit status, EINTR where it was killed."""
    descriptor = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(max(deadline - time.monotonic(), 0.0) * 1e3)
    finally:
        os.close(descriptor)
        os.kill(child, signal.SIGKILL)  # nothing to one that has ended
        _pid, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else errno.EINTR
