"""The guardian's process. What it needs to restore is in its memory from the start: a disk may hang by then."""

import contextlib
import json
import math
import os
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.guardian.apart import leave_cgroups, leave_nothing, lock_memory
from koordlet.enforcer.guardian.restoring import (
    Keeping,
    Left,
    keep_files,
    restore_files,
    restore_files_of_dead,
    restore_left,
)
from koordlet.enforcer.guardian.telling import Teller
from koordlet.enforcer.guardian.watch import Duty, Watch
from koordlet.enforcer.journal import JournalHeld
from koordlet.enforcer.leases import LEFT_BY_EARLIER_RUN
from koordlet.host.files import HostTree
from koordlet.host.scheduling import come_promptly

_READ_BYTES = 1 << 16
_OOM_SCORE = "-999"
_RETRIES = 30
_RETRY_SECONDS = 1.0
_KEEP_SECONDS = 0.5
"""Time between two looks at actions that wait for a successor."""
_TELL_SECONDS = 1.0
"""Time that the audit has, once all is restored, for what was set again."""


def main(arguments: list[str]) -> None:
    """Watch the agent at the other end of standard input; the argument is what `Guardian` gives, as JSON."""
    come_promptly()
    given = json.loads(arguments[0])
    _report(leave_cgroups(given["root"]))
    lock_memory()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    is_asked = _ask_by_signal()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:  # noqa: PTH123
        stream.write(_OOM_SCORE)
    watch = Watch(given["pause_seconds"], time.monotonic(), first_until=given["first_until"])
    _serve(watch, is_asked, given)
    leave_nothing(given["root"])


def _report(reason: str) -> None:
    """Tell the agent, once, whether this process outlives its container or unit."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), f"beside {reason}\n".encode() if reason else b"apart\n")
    with contextlib.suppress(OSError):
        os.close(sys.stdout.fileno())


def _ask_by_signal() -> list[bool]:
    """SIGTERM counts once the agent is gone: the whole service is ended then, and no successor is expected."""
    asked: list[bool] = []

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.append(True)

    signal.signal(signal.SIGTERM, ask)
    return asked


def _serve(watch: Watch, is_asked: list[bool], given: dict[str, Any]) -> None:
    pipe = sys.stdin.fileno()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    sources, rest = select.poll(), b""  # of any descriptors: select takes those below 1024
    for each in (pipe, wake_read):
        sources.register(each, select.POLLIN)
    left, tree = Left(**given["left"]), HostTree(Path(given["root"]))
    keeping, teller = Keeping(), Teller(left)
    while True:
        # A line that came during the last attempt counts before the next.
        wait_seconds = watch.wait_seconds(time.monotonic())
        if watch.is_handed_over and wait_seconds is not None:
            wait_seconds = min(wait_seconds, _KEEP_SECONDS)
        wait_ms = None if wait_seconds is None else math.ceil(max(wait_seconds, 0.0) * 1e3)
        ready = {descriptor for descriptor, _events in sources.poll(wait_ms)}
        if wake_read in ready:
            os.read(wake_read, _READ_BYTES)
        if pipe in ready:
            content = os.read(pipe, _READ_BYTES)
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                watch.take(line.decode(errors="replace"), time.monotonic())
            if not content:
                watch.take_end()
                sources.unregister(pipe)
        duty = watch.duty(time.monotonic())
        if duty is Duty.END:
            return
        if duty is Duty.RESTORE or (is_asked and watch.is_handed_over):
            _restore_of_dead(given)
            teller.close(_TELL_SECONDS)
            return
        if duty is Duty.WAIT and watch.is_handed_over:
            # Whatever fails here, this is the last process that would restore the actions at their deadline.
            with contextlib.suppress(Exception):
                teller.tell(keep_files(left, tree, keeping))
        if duty is Duty.RESTORE_BESIDE and not ready:
            if _attempt(given, beside=True):
                watch.note_restored()
            else:
                watch.note_left(time.monotonic())


def _restore_of_dead(given: dict[str, Any]) -> None:
    """Restore until nothing is left, or another agent holds the journal by now: that one restores."""
    for _ in range(_RETRIES):
        with contextlib.suppress(JournalHeld):
            if not _attempt(given, beside=False):
                time.sleep(_RETRY_SECONDS)
                continue
        return


def _attempt(given: dict[str, Any], *, beside: bool) -> bool:
    """Restore the actions that the journal names, once; return whether nothing is left.

    Kernel files come before the journal, whose disk may be full or hang. Raises JournalHeld.
    """
    left, tree = Left(**given["left"]), HostTree(Path(given["root"]))
    try:
        if beside:
            return restore_files(left, tree, "no tick was completed in time")
        is_done = restore_files_of_dead(left, tree, LEFT_BY_EARLIER_RUN)
        # The journal is brought up to what the first line has told the audit.
        events = restore_left(replace(left, audit_file=""), tree)
        return is_done and all(event.outcome is not Outcome.FAILED for event in events)
    except JournalHeld:
        raise
    except Exception:  # noqa: BLE001 - whatever failed, what is left is to try again
        return False
