"""A gang that does not fit, and pods beside it: it takes no attempts of theirs."""

from collections import Counter

import pytest

from scheduler.engine import Engine
from scheduler.framework import Action
from scheduler.profile import SchedulerSettings
from tests.schedobjects import node, pod

GANG = "gang.scheduling.koordinator.sh/"
SETTINGS = SchedulerSettings(plugins={"loadaware": {"usage_thresholds": {}}})


@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_an_unrelated_pod_is_hardly_tried_while_a_gang_does_not_fit(mode: str) -> None:
    made = Engine(SETTINGS)
    for name in ("a", "b"):
        made.on_node(Action.ADD, node(name), 0.0)
    made.on_pod(Action.ADD, pod("too-large", {"cpu": "1000"}), 0.0)
    keys = {GANG + "name": "g", GANG + "min-available": "5", GANG + "mode": mode, GANG + "waiting-time": "30s"}
    for number in range(5):
        made.on_pod(Action.ADD, pod(f"g-{number}", {"cpu": "2"}, annotations=keys), 0.0)
    tried: Counter[str] = Counter()
    placed = 0
    for second in range(600):
        made.tick(float(second))
        while (outcome := made.schedule_one(float(second))) is not None:
            tried[outcome.info.pod.metadata.name] += 1
        placed += len(made.bindings)
    assert placed == 0
    assert all(tried[f"g-{number}"] for number in range(5))
    assert 1 <= tried["too-large"] <= 3
