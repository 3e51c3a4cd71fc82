"""Slow attempts are found while they last and when they end, whatever holds them: a plugin, Permit or the binding."""

import threading
from collections import Counter
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest

from cluster.resources import NODES, PODS
from cluster.twin import Twin
from scheduler.__main__ import main
from scheduler.engine import Engine
from scheduler.explain import monitor as module
from scheduler.explain.monitor import AttemptMonitor
from scheduler.framework import Action, Attempt, Plugin, Reason
from scheduler.profile import SchedulerSettings
from tests.schedobjects import BASE, engine, node, pod, running_loop
from tests.waiting import wait_for

RELEASED = threading.Event()


class Stuck(Plugin[Any]):
    name = "Stuck"

    def pre_filter(self, attempt: Attempt, spec: Any) -> Reason | None:
        RELEASED.wait(20)
        return None


def watched(made: Engine) -> tuple[AttemptMonitor, Counter[str]]:
    counted: Counter[str] = Counter()
    monitor = AttemptMonitor(
        made.queue.in_flight,
        timeout_seconds=lambda: made.flags.scheduling_timeout_seconds,
        count=lambda name: counted.update([name]),
    )
    return monitor, counted


def test_a_binding_without_an_answer_is_counted_at_each_look_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    made = engine([node("n0")])
    monitor, counted = watched(made)
    made.on_pod(Action.ADD, pod("p"), 0.0)
    made.schedule_one(5.0)
    for now in (35.0, 35.1, 45.0):
        monitor.look(now)
    assert counted == {"koord-scheduler": 2}
    binding = made.bindings.popleft()
    made.bound(binding, 46.0)
    monitor.ended(binding.placed.info, 41.0)
    monitor.look(55.0)
    assert counted == {"koord-scheduler": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "scheduling default/p (uid-p) has taken 30 s, longer than the time-out of 30 s"
    ]


def test_an_attempt_that_ends_between_two_looks_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    made = engine([])
    monitor, counted = watched(made)
    info = made.classes.info(pod("p"))
    monitor.ended(info, 30.0)
    assert not counted
    monitor.ended(info, 31.0)
    assert counted == {"koord-scheduler": 1}
    assert "took 31 s" in caplog.text
    made.flags.set("t", "0")
    monitor.ended(info, 31.0)
    assert counted == {"koord-scheduler": 1}


def test_the_log_names_few_of_many(caplog: pytest.LogCaptureFixture) -> None:
    made = engine([node("n0")])
    monitor, counted = watched(made)
    for number in range(15):
        made.on_pod(Action.ADD, pod(f"p{number}"), 0.0)
        made.schedule_one(0.0)
    monitor.look(31.0)
    assert counted == {"koord-scheduler": 15}
    assert len(caplog.records) == module.MAX_LINES + 1
    assert "5 more pods" in caplog.text


@pytest.mark.parametrize("value", ["soon", "-1s", "30"])
def test_a_time_out_that_is_no_duration_is_refused(value: str) -> None:
    made = engine([])
    with pytest.raises(ValueError, match="no duration such as 30s"):
        made.flags.set("t", value)
    answer = CliRunner().invoke(main, ["run", "--scheduling-timeout", value])
    assert answer.exit_code == 2
    assert "expected a duration such as 30s" in answer.output


def test_an_attempt_that_does_not_end_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.01)
    RELEASED.clear()
    made = Engine(SchedulerSettings(scheduling_timeout_seconds=0.05), kinds={**BASE, "stuck": Stuck})
    with Twin() as twin:
        twin.load(NODES, [msgspec.to_builtins(node("n0"))])
        twin.load(PODS, [msgspec.to_builtins(pod("p"))])
        with running_loop(twin, made) as loop:
            try:
                counted = b'scheduler_scheduling_timeout{profile="koord-scheduler"}'
                wait_for(lambda: counted in generate_latest(loop.metrics.registry))
            finally:
                RELEASED.set()
            wait_for(lambda: all(item["spec"].get("nodeName") for item in twin.objects(PODS).values()))
