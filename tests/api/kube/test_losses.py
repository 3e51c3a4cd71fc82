"""Open verdicts from NodeMetric objects, hostile ones included."""

import msgspec
import pytest

from api.crds import NodeMetric
from api.kube.losses import by_node, losses
from api.kube.times import rfc3339

NOW = 1_000_000.0


def metric(name: str, *verdicts: dict[str, object], pod: str = "web", age: float | None = 5.0) -> NodeMetric:
    told = {} if age is None else {"updateTime": rfc3339(NOW - age)}
    entry = {"name": pod, "namespace": "shop", "extensions": {"interference": {"verdicts": list(verdicts)}}}
    return msgspec.convert({"metadata": {"name": name}, "status": {"podsMetric": [entry], **told}}, NodeMetric)


def verdict(lost: float, until: float | None = NOW + 30, **more: object) -> dict[str, object]:
    end = {} if until is None else {"until": rfc3339(until)}
    return {"resource": "cpu", "lostSecondsPerSecond": lost, "culprits": ["batch/xz"], **end, **more}


def test_the_largest_loss_comes_first_and_ended_ones_not_at_all() -> None:
    found = losses([metric("n1", verdict(0.1), verdict(0.5, NOW - 1)), metric("n2", verdict(0.3, None))], NOW)
    assert [(loss.node, loss.victim, loss.lost_seconds_per_second) for loss in found] == [
        ("n2", "shop/web", 0.3),
        ("n1", "shop/web", 0.1),
    ]


@pytest.mark.parametrize(("subject", "named"), [("shop/web", True), ("batch/xz", True), ("shop/we", False)])
def test_a_pod_is_named_as_victim_or_culprit(subject: str, named: bool) -> None:
    assert losses([metric("n1", verdict(0.1))], NOW)[0].names(subject) is named


def test_victims_that_are_no_pods_have_their_own_name() -> None:
    status = {"extensions": {"interference": {"verdicts": [verdict(0.2, victim="/system.slice/nginx.service")]}}}
    host = msgspec.convert({"metadata": {"name": "n1"}, "status": status}, NodeMetric)
    assert losses([host], NOW)[0].victim == "/system.slice/nginx.service"


def test_an_unreadable_extension_hides_no_other() -> None:
    broken = metric("n1", {"resource": 7})
    assert [loss.node for loss in losses([broken, metric("n2", verdict(0.1))], NOW)] == ["n2"]


def test_nodes_are_summed_and_those_that_never_reported_say_so() -> None:
    rows = by_node([metric("n1", age=None), metric("n2", verdict(0.1), verdict(0.2))], NOW)
    assert [(row.node, row.victims, round(row.lost_seconds_per_second, 3), row.age_seconds) for row in rows] == [
        ("n2", 1, 0.3, 5.0),
        ("n1", 0, 0, None),
    ]
