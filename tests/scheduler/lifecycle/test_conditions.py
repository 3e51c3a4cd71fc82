"""What pending pods are told: once, with the time of the first refusal, and with the node that is held for them."""

from typing import Any

from cluster.resources import Patch
from scheduler.framework import Write
from scheduler.lifecycle.conditions import Conditions
from tests.schedobjects import pod


def status(write: Write | None) -> Any:
    assert write is not None
    assert isinstance(write.body, Patch)
    assert isinstance(write.body.body, dict)
    return write.body.body["status"]


def test_a_refusal_has_the_time_of_the_first_and_is_written_once() -> None:
    made = Conditions(lambda: 60.0)
    (told,) = status(made.of_pod(pod("p"), "no room"))["conditions"]
    assert told["lastTransitionTime"] == "1970-01-01T00:01:00Z"
    assert made.of_pod(pod("p"), "no room") is None
    known = {"type": "PodScheduled", "status": "False", "lastTransitionTime": "1970-01-01T00:00:30Z"}
    (told,) = status(made.of_pod(pod("p", status={"conditions": [known]}), "less room"))["conditions"]
    assert told == {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "less room"}


def test_an_expected_node_is_written_once_and_taken_back() -> None:
    made = Conditions()
    assert status(made.expected(pod("p"), "n0")) == {"nominatedNodeName": "n0"}
    assert made.expected(pod("p"), "n0") is None
    assert status(made.of_pod(pod("p"), "gone"))["nominatedNodeName"] is None
    shown = pod("q", status={"nominatedNodeName": "n1"})
    assert made.expected(shown, "n1") is None
    assert status(made.expected(shown, "n0")) == {"nominatedNodeName": "n0"}
    made.forget("uid-q")
    assert "nominatedNodeName" not in status(made.of_pod(pod("q"), "gone"))
