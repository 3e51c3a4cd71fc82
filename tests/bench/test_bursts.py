"""Stretches on a CPU, from the text of the kernel's trace."""

import pytest

from bench.bursts import stretches

SWITCH = (
    "  python-{a} [00{cpu}] d..2. {at:.6f}: sched_switch: prev_comm=x prev_pid={a} prev_prio=120 prev_state=S ==> "
    "next_comm=y next_pid={b} next_prio=120"
)
STARTED = "  python-7 [000] ..... 1.000000: task_newtask: pid={pid} comm=python clone_flags={flags} oom_score_adj=0"
THREAD, PROCESS = "3d0f00", "1200011"


def switch(cpu: int, at: float, a: int, b: int) -> str:
    return SWITCH.format(cpu=cpu, at=at, a=a, b=b)


def test_a_stretch_is_from_the_switch_to_a_thread_to_the_switch_from_it() -> None:
    trace = [switch(0, 1.0, 0, 7), switch(1, 1.1, 0, 8), switch(0, 1.25, 7, 9), switch(1, 1.3, 8, 0)]
    assert stretches("\n".join(trace), frozenset({7})) == pytest.approx([0.25])


@pytest.mark.parametrize(
    ("flags", "found"), [pytest.param(THREAD, [0.04], id="thread"), pytest.param(PROCESS, [], id="process")]
)
def test_what_a_thread_starts_counts_as_long_as_it_is_a_thread(flags: str, found: list[float]) -> None:
    """A server answers each request in a thread of its own, which is not there when the trace begins."""
    trace = [STARTED.format(pid=12, flags=flags), switch(0, 2.0, 0, 12), switch(0, 2.04, 12, 0)]
    assert stretches("\n".join(trace), frozenset({7})) == pytest.approx(found)


def test_a_switch_that_was_not_recorded_makes_no_stretch() -> None:
    trace = [switch(0, 1.0, 0, 7), switch(0, 3.0, 0, 5), switch(0, 4.0, 7, 0)]
    assert stretches("\n".join(trace), frozenset({7})) == []
