"""Effective requests: one table for every struct that pods are decoded into."""

from typing import Any

import msgspec
import pytest

from api.kube.objects import Pod
from api.kube.pod_requests import effective_limits, effective_requests, held_amounts
from api.kube.resources import QuantityError
from controllers.capacity.pods import requests_of as counted_by_overcommit
from controllers.kinds import Pod as LeanPod
from scheduler.cluster_state.podinfo import requests_of as counted_by_scheduler

MIB = 1024 * 1024


def container(cpu: str = "", memory: str = "", name: str = "c", **fields: Any) -> dict[str, Any]:
    asked = {key: text for key, text in (("cpu", cpu), ("memory", memory)) if text}
    return {"name": name, "resources": {"requests": asked}, **fields}


def spec(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **fields}}


def sidecar(cpu: str, memory: str = "") -> dict[str, Any]:
    return container(cpu, memory, name=f"s{cpu}", restartPolicy="Always")


def placed(status: dict[str, Any], *, pod: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A pod of one core on a node; `fields` are of its container's status, `status` of its own."""
    statuses = {"containerStatuses": [{"name": "c", **fields}]} if fields else {}
    return spec(container("1"), nodeName="n", **(pod or {})) | {"status": {**statuses, **status}}


def amounts(cpu: str) -> dict[str, str]:
    return {"cpu": cpu}


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
LEVEL = {"resources": {"requests": {"cpu": "2"}}}


@pytest.mark.parametrize(
    ("document", "cpu", "memory"),
    [
        pytest.param(spec(container("1", "1Mi")), 1000, 1, id="one-container"),
        pytest.param(spec(container("1", "1Mi"), container("500m", "2Mi")), 1500, 3, id="sum"),
        pytest.param(spec(container("1", "1Mi"), initContainers=[container("3", "1Mi")]), 3000, 1, id="init-peak"),
        pytest.param(
            spec(container("1", "1Mi"), initContainers=[sidecar("1", "1Mi"), container("3", "1Mi")]),
            4000,
            2,
            id="sidecar-beside-init-and-main",
        ),
        pytest.param(
            spec(container("1"), initContainers=[container("3"), sidecar("1")]), 3000, 0, id="sidecar-after-init"
        ),
        pytest.param(
            spec(container("1"), initContainers=[sidecar("1"), sidecar("2"), container("1")]), 4000, 0, id="sidecars"
        ),
        pytest.param(spec(container("1", "1Mi"), overhead={"cpu": "250m"}), 1250, 1, id="overhead"),
        pytest.param(spec(container("1", "1Mi"), **LEVEL), 2000, 1, id="pod-level"),
        pytest.param(spec(container("4"), **LEVEL, overhead={"cpu": "1"}), 3000, 0, id="pod-level-below-sum"),
        pytest.param(spec(container("4"), resources={"limits": {"cpu": "2"}}), 2000, 0, id="pod-level-limit"),
        pytest.param(
            spec(container(resources={"limits": {"cpu": "2", "memory": "1Mi"}})), 2000, 1, id="limit-is-request"
        ),
        pytest.param(placed({}, allocatedResources=amounts("4")), 4000, 0, id="allocated"),
        pytest.param(placed({}, resources={"requests": amounts("3")}), 3000, 0, id="in-effect"),
        pytest.param(placed(DEFERRED, allocatedResources=amounts("500m")), 1000, 0, id="deferred"),
        pytest.param(placed(INFEASIBLE, allocatedResources=amounts("500m")), 500, 0, id="infeasible"),
        pytest.param(
            placed(INFEASIBLE, allocatedResources=amounts("500m"), resources={"requests": amounts("700m")}),
            700,
            0,
            id="infeasible-not-carried-out",
        ),
        pytest.param(placed({"allocatedResources": amounts("3")}, pod=LEVEL), 3000, 0, id="pod-level-allocated"),
        pytest.param(placed({"resources": {"requests": amounts("4")}}, pod=LEVEL), 4000, 0, id="pod-level-in-effect"),
        pytest.param(placed({"allocatedResources": amounts("4")}), 1000, 0, id="pod-level-never-asked"),
    ],
)
def test_effective_requests(document: dict[str, Any], cpu: int, memory: int) -> None:
    full, lean = msgspec.convert(document, Pod), msgspec.convert(document, LeanPod)
    found = effective_requests(full)
    assert (found.get("cpu", 0), found.get("memory", 0)) == (cpu, memory * MIB)
    assert counted_by_scheduler(full) == found
    assert counted_by_overcommit(lean) == (cpu, memory * MIB)


def test_a_status_counts_on_a_node_alone() -> None:
    document = placed({}, allocatedResources=amounts("4"))
    document["spec"]["nodeName"] = ""
    assert effective_requests(msgspec.convert(document, Pod)) == {"cpu": 1000}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"name": "c", "allocatedResources": amounts("x" * 99)}, id="unreadable"),
        pytest.param({"name": "gone", "allocatedResources": amounts("4")}, id="no-such-container"),
        pytest.param({"name": "", "allocatedResources": amounts("4")}, id="no-name"),
        pytest.param({"name": "c", "allocatedResources": amounts("1")}, id="carried-out"),
    ],
)
def test_statuses_that_change_nothing(status: dict[str, Any]) -> None:
    document = placed({"containerStatuses": [status]})
    assert not held_amounts(msgspec.convert(document, Pod))


def test_what_is_no_quantity_is_refused_or_counts_as_nothing() -> None:
    document = spec(container("one"), container("1"))
    with pytest.raises(QuantityError):
        effective_requests(msgspec.convert(document, Pod))
    assert counted_by_overcommit(msgspec.convert(document, LeanPod)) == (1000, 0)


def test_limits_add_up_and_those_of_the_pod_go_before() -> None:
    limited = {"resources": {"limits": {"cpu": "1", "memory": "1Mi"}}}
    document = spec(container(**limited), container(**limited), resources={"limits": {"cpu": "3"}})
    assert effective_limits(msgspec.convert(document, Pod)) == {"cpu": 3000, "memory": 2 * MIB}
