"""Pods that a profile would have changed and did not."""

import msgspec
import pytest

from api.kube.objects import Pod
from controllers.webhooks.rules.unmutated import unmutated
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import PRIORITY_CLASSES, Document, container, pod, profile, review

LABELS = {"spark-job": {"colocation": "true"}, "web": {}}
PROFILE = profile(
    "batch",
    namespaceSelector={"matchLabels": {"colocation": "true"}},
    qosClass="BE",
    priorityClassName="koord-batch",
    schedulerName="koord-scheduler",
    koordinatorPriority=7,
)


def stored(document: Document, namespace: str = "spark-job", phase: str = "Pending") -> Pod:
    metadata = document["metadata"] | {"namespace": namespace}
    return msgspec.convert(document | {"metadata": metadata, "status": {"phase": phase}}, Pod)


GIVEN = pod(None, container(requests={"cpu": "1"}))


def test_a_pod_that_the_webhook_did_not_see_is_found_with_what_it_lacks() -> None:
    (found,) = unmutated([stored(GIVEN)], [PROFILE], LABELS)
    assert found.profile == "batch"
    assert found.lacks == (
        "label koordinator.sh/qosClass",
        "priorityClassName",
        "schedulerName",
        "label koordinator.sh/priority",
    )
    assert "create it again" in found.message


def test_a_pod_that_the_webhook_changed_is_not_found() -> None:
    view = ClusterView(
        profiles=[PROFILE], priority_classes=PRIORITY_CLASSES, namespace_labels=lambda name: LABELS[name]
    )
    done = review("/mutate-pod", view, obj=GIVEN)
    assert done.object is not None
    assert not [*unmutated([stored(done.object)], [PROFILE], LABELS)]


def test_native_resources_of_a_batch_pod_are_found() -> None:
    labels = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "7"}
    spec = {"priorityClassName": "koord-batch", "priority": 5000, "schedulerName": "koord-scheduler"}
    document = pod(labels, container(requests={"cpu": "1"}), **spec)
    (found,) = unmutated([stored(document)], [PROFILE], LABELS)
    assert found.lacks == ("resources kubernetes.io/batch-cpu",)
    skipping = profile("skip", {"config.koordinator.sh/skip-update-resources": ""})
    assert not [*unmutated([stored(document)], [PROFILE, skipping], LABELS)]


@pytest.mark.parametrize(
    ("namespace", "phase", "given"),
    [
        pytest.param("web", "Pending", {}, id="not-selected"),
        pytest.param("unknown", "Pending", {}, id="unknown-namespace"),
        pytest.param("spark-job", "Succeeded", {}, id="finished"),
        pytest.param("spark-job", "Running", {"probability": "50%"}, id="part-of-the-pods"),
        pytest.param("spark-job", "Running", {"probability": "often"}, id="unreadable-profile"),
        pytest.param("kube-system", "Running", {"namespaceSelector": None}, id="exempt"),
    ],
)
def test_who_is_not_found(namespace: str, phase: str, given: Document) -> None:
    fields = msgspec.to_builtins(PROFILE)["spec"] | given
    found = unmutated([stored(GIVEN, namespace, phase)], [profile("p", **fields)], LABELS, frozenset({"kube-system"}))
    assert not [*found]
