"""Scheduling of the agent's threads, on the running kernel."""

import os
import platform
import subprocess
import sys
import threading

import pytest

from koordlet.host.scheduling import SLICE_NS, Breaks, come_promptly, let_others_first, own_slice_ns


def policy() -> int:
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK


def _in_thread(work: threading.Thread) -> None:
    work.start()
    work.join()


def test_a_thread_asks_for_its_own_policy_and_slice_alone() -> None:
    seen: list[tuple[int, int]] = []

    others: list[int] = []

    def ask() -> None:
        assert let_others_first()
        seen.append((policy(), own_slice_ns()))

    def start() -> None:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        _in_thread(threading.Thread(target=ask))
        others.append(os.sched_getscheduler(0))

    _in_thread(threading.Thread(target=start))
    version = tuple(int(word) for word in platform.release().split("-")[0].split(".")[:2])
    assert seen[0][0] == os.SCHED_BATCH
    if version >= (6, 12):
        assert seen[0][1] == SLICE_NS
    assert others == [os.SCHED_OTHER]


def test_what_a_yielding_thread_starts_has_no_long_slice_and_may_come_promptly() -> None:
    seen: dict[str, tuple[int, int]] = {}

    def start() -> None:
        assert let_others_first()
        _in_thread(threading.Thread(target=lambda: seen.update(thread=(policy(), own_slice_ns()))))
        _in_thread(threading.Thread(target=lambda: seen.update(prompt=(come_promptly() and policy(), own_slice_ns()))))
        command = "import os; print(os.sched_getscheduler(0))"
        told = subprocess.run([sys.executable, "-P", "-c", command], check=True, capture_output=True, text=True)
        seen["process"] = (int(told.stdout), 0)
        seen["itself"] = (policy(), own_slice_ns())

    _in_thread(threading.Thread(target=start))
    assert seen["thread"][1] != SLICE_NS
    assert seen["prompt"][0] == os.SCHED_OTHER
    assert seen["prompt"][1] != SLICE_NS
    assert not seen["process"][0] & os.SCHED_RESET_ON_FORK
    assert seen["itself"][0] == os.SCHED_BATCH


def test_nice_is_kept_and_asking_twice_is_once() -> None:
    seen: list[int] = []

    def ask() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
        assert let_others_first()
        assert let_others_first()
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))

    _in_thread(threading.Thread(target=ask))
    assert seen == [7]


def test_a_policy_that_others_chose_is_kept() -> None:
    seen: list[tuple[bool, int]] = []

    def ask() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        seen.append((let_others_first(), os.sched_getscheduler(0)))
        seen.append((come_promptly(), os.sched_getscheduler(0)))

    _in_thread(threading.Thread(target=ask))
    assert seen == [(False, os.SCHED_IDLE), (False, os.SCHED_IDLE)]


def test_a_machine_whose_numbers_are_unknown_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    assert not let_others_first()
    assert own_slice_ns() == 0


def test_work_is_broken_up_after_each_stretch_of_cpu_time() -> None:
    used, slept = [0.0], list[tuple[float, float]]()
    breaks = Breaks(0.002, 0.0005, used=lambda: used[0], sleep=lambda seconds: slept.append((used[0], seconds)))
    for _ in range(10):
        used[0] += 0.0009
        breaks()
    assert [round(at, 4) for at, _seconds in slept] == [0.0027, 0.0054, 0.0081]
    assert {seconds for _at, seconds in slept} == {0.0005}
