"""Reservations: profiles for the template, owners, and what only schedulers write."""

from typing import Any

import pytest

from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import PRIORITY_CLASSES, Document, container, pod, profile, review

RESOURCE = ("scheduling.koordinator.sh", "reservations")


def reservation(template: Document | None, *owners: Document, **labels: str) -> Document:
    spec: Document = {"owners": list(owners) or [{"labelSelector": {"matchLabels": {"app": "a"}}}]}
    return {"metadata": {"name": "r", "labels": labels}, "spec": spec | ({"template": template} if template else {})}


def template(**given: Any) -> Document:
    return {"spec": {"containers": [container(requests={"cpu": "1"})], **given}}


def test_profiles_change_reservation_and_template() -> None:
    found = profile(
        selector={"matchLabels": {"app": "spark"}},
        namespaceSelector={"matchLabels": {"never": "asked"}},
        labels={"a": "b"},
        schedulerName="koord-scheduler",
        priorityClassName="koord-batch",
        qosClass="BE",
        patch={"spec": {"terminationGracePeriodSeconds": 30}},
    )
    view = ClusterView(profiles=[found], priority_classes=PRIORITY_CLASSES)
    given = reservation(template(), app="spark")
    stored = review("/mutate-reservation", view, obj=given, resource=RESOURCE, namespace="").object
    assert stored is not None
    assert stored["metadata"]["labels"] == {"app": "spark", "a": "b", "koordinator.sh/qosClass": "BE"}
    spec = stored["spec"]["template"]["spec"]
    assert spec["schedulerName"] == "koord-scheduler"
    assert spec["priority"] == 5000
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"] == given["spec"]["template"]["spec"]["containers"], "resources are not translated"
    again = review("/mutate-reservation", view, obj=stored, resource=RESOURCE, namespace="")
    assert again.patch == []
    other = reservation(template(), app="web")
    assert review("/mutate-reservation", view, obj=other, resource=RESOURCE, namespace="").patch == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(reservation(template()), "", id="right"),
        pytest.param(reservation(None), "spec.template is required", id="no-template"),
        pytest.param(reservation(template(containers=[])), "has no containers", id="empty"),
        pytest.param(reservation(template(), {}), "spec.owners[0] names no owner", id="owned-by-all"),
        pytest.param(
            reservation(pod({"koordinator.sh/qosClass": "LSR"}, container(requests={"cpu": "500m"}), priority=9500)),
            "whole CPUs",
            id="class",
        ),
        pytest.param(
            reservation(pod(annotations={"scheduling.koordinator.sh/resource-status": "{}"})),
            "only a scheduler may write",
            id="cpuset",
        ),
        pytest.param(reservation(template(overhead={"cpu": "x"})), "not a quantity", id="no-quantity"),
    ],
)
def test_reservations_are_checked_when_they_are_made(given: Document, message: str) -> None:
    done = review("/validate-reservation", ClusterView(), obj=given, resource=RESOURCE, namespace="")
    assert done.allowed == (not message)
    assert message in done.message
    assert review("/validate-reservation", ClusterView(), obj=given, old=given, resource=RESOURCE, namespace="").allowed
