"""The order of moves: Koordinator's keys one by one, and its numeric example."""

from typing import Any

import pytest

from cluster import Key
from controllers.descheduler.order import cost, covering, in_order, rank
from tests.descheduling import a_pod

BAND = "koordinator.sh/priority-class"
CLASS = "koordinator.sh/qosClass"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"labels": {BAND: "koord-free"}}, {"labels": {BAND: "koord-batch"}}, id="free-batch"),
        pytest.param({"labels": {BAND: "koord-mid"}}, {"labels": {BAND: "koord-prod"}}, id="mid-prod"),
        pytest.param({"labels": {BAND: "koord-prod"}}, {}, id="prod-none"),
        pytest.param({"priority": 5001}, {"priority": 5002}, id="priority"),
        pytest.param({"status": {"qosClass": "BestEffort"}}, {"status": {"qosClass": "Burstable"}}, id="kube-class"),
        pytest.param({"labels": {CLASS: "BE"}}, {"labels": {CLASS: "LS"}}, id="qos"),
        pytest.param({"labels": {CLASS: "LSE"}}, {}, id="qos-none-last"),
        pytest.param({}, {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "5"}}, id="deletion-cost"),
        pytest.param({"annotations": {"scheduling.koordinator.sh/eviction-cost": "-5"}}, {}, id="eviction-cost"),
    ],
)
def test_keys(first: dict[str, Any], second: dict[str, Any]) -> None:
    pods = [a_pod("second", **second), a_pod("first", **first)]
    assert [pod.metadata.name for pod in in_order(pods)] == ["first", "second"]
    assert rank(pods[1]) < rank(pods[0])


def test_the_pod_that_just_covers_the_excess_goes_first() -> None:
    pods = [a_pod(name) for name in ("p1000", "p2000", "p4000", "unmeasured")]
    usage = {Key("shop", f"p{milli}"): {"cpu": milli} for milli in (1000, 2000, 4000)}
    found = in_order(pods, usage, {"cpu": 2000})
    assert [pod.metadata.name for pod in found] == ["p2000", "p4000", "p1000", "unmeasured"]
    assert [covering({"cpu": milli}, {"cpu": 2000}, {}) for milli in (1000, 2000, 4000)] == [0.5, 2.0, 1.5]


def test_equal_pods_go_newest_first() -> None:
    pods = [a_pod("old", age_seconds=900), a_pod("new", age_seconds=10)]
    assert [pod.metadata.name for pod in in_order(pods)] == ["new", "old"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("-7", -7),
        ("", 0),
        ("x", 0),
        pytest.param("9" * 400, 0, id="long"),
        ("--1", 0),
        ("1.5", 0),
        ("9999999999", 2**31 - 1),
    ],
)
def test_costs_that_are_no_numbers_are_none(text: str, expected: int) -> None:
    assert cost(a_pod("p", annotations={"a": text}), "a") == expected
