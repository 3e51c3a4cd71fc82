"""What of a pod is resized: what lies outside the bounds, within its class, and never memory away."""

from typing import Any

import msgspec
import pytest

from controllers.kinds import Pod
from controllers.recommend.advice import Advice, ContainerAdvice
from controllers.recommend.report import Amounts
from controllers.recommend.resizing import resized, why_not
from tests.controllers.recommend.cluster import pod

MI = 1 << 20
REFUSED = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
ADVICE = Advice(
    containers=[
        ContainerAdvice(
            name="app",
            cpu_millicores=Amounts(400, 600, 900),
            memory_bytes=Amounts(200 * MI, 300 * MI, 500 * MI),
            limit_millicores=2500,
        )
    ],
    confidence_days=1.0,
)


def a_pod(requests: dict[str, str], limits: dict[str, str] | None = None, **more: Any) -> Pod:
    container = {"name": "app", "resources": {"requests": requests, "limits": limits or {}}}
    made = pod("p", container)
    status = {"phase": "Running", "qosClass": "Burstable", **more}
    return msgspec.structs.replace(made, status=msgspec.convert(status, type(made.status)))


def changes(made: Pod, advice: Advice = ADVICE) -> dict[str, dict[str, str]]:
    found = resized(made, advice)
    assert [each["name"] for each in found] in ([], ["app"])
    return found[0]["resources"] if found else {}


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        pytest.param({"cpu": "500m", "memory": "256Mi"}, {}, {}, id="within the bounds"),
        pytest.param({"cpu": "2"}, {}, {"requests": {"cpu": "600m"}}, id="too much"),
        pytest.param({"cpu": "100m"}, {}, {"requests": {"cpu": "600m"}}, id="too little"),
        pytest.param({"memory": "100Mi"}, {}, {"requests": {"memory": str(300 * MI)}}, id="memory rises"),
        pytest.param({"memory": "4Gi"}, {}, {}, id="memory is not taken away"),
        pytest.param({}, {}, {}, id="nothing is asked for"),
        pytest.param({"cpu": "many"}, {}, {}, id="odd request"),
        pytest.param(
            {"cpu": "100m"},
            {"cpu": "500m"},
            {"requests": {"cpu": "499m"}, "limits": {"cpu": "2500m"}},
            id="below its limit",
        ),
        pytest.param({"cpu": "500m"}, {"cpu": "2"}, {"limits": {"cpu": "2500m"}}, id="throttled"),
        pytest.param({"cpu": "500m"}, {"cpu": "4"}, {}, id="a limit that is large enough"),
        pytest.param({"memory": "100Mi"}, {"memory": "101Mi"}, {}, id="no room below the limit"),
    ],
)
def test_what_changes(requests: dict[str, str], limits: dict[str, str], expected: dict[str, dict[str, str]]) -> None:
    assert changes(a_pod(requests, limits)) == expected


def test_limits_of_a_guaranteed_pod_go_with_its_requests() -> None:
    same = {"cpu": "2", "memory": "100Mi"}
    amounts = {"cpu": "600m", "memory": str(300 * MI)}
    assert changes(a_pod(same, same, qosClass="Guaranteed")) == {"requests": amounts, "limits": amounts}


def test_a_container_without_a_recommendation_is_left_alone() -> None:
    assert changes(a_pod({"cpu": "9"}), Advice()) == {}
    nothing_known = Advice(containers=[ContainerAdvice(name="app")])
    assert changes(a_pod({"cpu": "9"}), nothing_known) == {}


def with_labels(**meta: Any) -> Pod:
    made = a_pod({"cpu": "9"})
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, **meta))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        pytest.param(a_pod({"cpu": "9"}), "", id="it may"),
        pytest.param(a_pod({"cpu": "9"}, phase="Pending"), "does not run", id="pending"),
        pytest.param(with_labels(deletion_timestamp="2026-01-01T00:00:00Z"), "does not run", id="deleted"),
        pytest.param(with_labels(annotations={"kubernetes.io/config.mirror": "x"}), "static", id="static"),
        pytest.param(with_labels(labels={"koordinator.sh/qosClass": "BE"}), "BE", id="batch"),
        pytest.param(with_labels(labels={"koordinator.sh/qosClass": "LSR"}), "LSR", id="own CPUs"),
        pytest.param(
            a_pod({"cpu": "9"}, conditions=[{"type": "PodResizePending", "status": "True"}]), "under way", id="pending"
        ),
        pytest.param(a_pod({"cpu": "9"}, conditions=[REFUSED]), "", id="refused"),
        pytest.param(
            a_pod({"cpu": "9"}, conditions=[{"type": "PodResizeInProgress", "status": "False"}]), "", id="done"
        ),
    ],
)
def test_which_pods_are_left_alone(made: Pod, words: str) -> None:
    found = why_not(made)
    assert (words in found) if words else found == ""
