"""From a Reservation object to its stand-in pod and to the value that rules see."""

from typing import Any

import msgspec
import pytest

from api.crds import Reservation as ReservationObject
from scheduler.reservation.standin import stand_in, value_of
from scheduler.reservation.value import ControllerMatch, ObjectMatch, Owner, Policy, ReservationPhase


def reservation(meta: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Any:
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    template = {"metadata": {"labels": {"app": "web", "tier": "tin"}}, "spec": {"containers": [container]}}
    template["spec"] |= spec.pop("pod", {})
    document = {
        "metadata": {"name": "r", "uid": "u-r", "creationTimestamp": "1970-01-01T00:01:40Z", **(meta or {})},
        "spec": {"template": template, "owners": [{}], **spec},
        "status": status or {},
    }
    return msgspec.convert(document, ReservationObject)


def test_the_stand_in_is_the_template_under_the_uid() -> None:
    pod = stand_in(reservation({"labels": {"tier": "gold"}, "annotations": {"a": "1"}}))
    assert (pod.metadata.name, pod.metadata.uid, pod.metadata.namespace) == ("u-r", "u-r", "default")
    assert pod.metadata.labels == {"app": "web", "tier": "gold"}
    assert pod.metadata.annotations["scheduling.koordinator.sh/reserve-pod"] == "true"
    assert pod.spec.priority == 2**31 - 1
    assert pod.spec.preemption_policy == "Never"
    assert stand_in(reservation({"labels": {"koordinator.sh/priority": "7"}})).spec.priority == 7


def test_a_pinned_stand_in_has_affinity_and_no_node() -> None:
    pod = stand_in(reservation(pod={"nodeName": "n1"}))
    assert pod.spec.node_name == ""
    affinity = pod.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    required = affinity.node_affinity.required
    assert required is not None
    assert required.node_selector_terms[0].match_fields[0].values == ["n1"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {"ttl_seconds": 86400.0, "allocate_once": True, "policy": Policy.DEFAULT}, id="defaults"),
        pytest.param({"ttl": "0s"}, {"ttl_seconds": 0.0}, id="ttl 0"),
        pytest.param({"ttl": "1h"}, {"ttl_seconds": 3600.0}, id="ttl"),
        pytest.param({"expires": "1970-01-01T00:05:00Z"}, {"expires_seconds": 300.0}, id="expires"),
        pytest.param({"allocateOnce": False}, {"allocate_once": False}, id="shared"),
        pytest.param({"allocatePolicy": "Restricted"}, {"policy": Policy.RESTRICTED}, id="policy"),
        pytest.param(
            {"owners": [{"object": {"name": "p"}}, {"controller": {"kind": "Job", "name": "j", "uid": ""}}]},
            {"owners": (Owner(ObjectMatch(name="p")), Owner(controller=ControllerMatch(kind="Job", name="j")))},
            id="owners",
        ),
    ],
)
def test_value(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    value = value_of(reservation(**spec))
    assert {name: getattr(value, name) for name in expected} == expected
    assert value.request == {"cpu": 2000}
    assert value.created_seconds == 100.0
    assert value.phase is ReservationPhase.PENDING


def test_value_of_one_that_is_available() -> None:
    meta = {
        "labels": {"scheduling.koordinator.sh/reservation-order": "3"},
        "annotations": {"scheduling.koordinator.sh/reservation-restricted-options": '{"resources":["cpu"]}'},
    }
    value = value_of(reservation(meta, {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "3"}}))
    assert (value.phase, value.node, value.allocatable) == (ReservationPhase.AVAILABLE, "n1", {"cpu": 3000})
    assert (value.order, value.restricted_names) == (3, frozenset({"cpu"}))
