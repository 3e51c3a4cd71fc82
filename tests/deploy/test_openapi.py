"""The chart's objects by the schemas of Kubernetes 1.36; a real server takes them in tests/cluster_e2e."""

from typing import Any

import pytest
import yaml

from tests.deploy.charts import documents, renderer
from tests.deploy.openapi import RECORDED, refusals
from tests.deploy.test_chart import VARIANTS

EVERYTHING: dict[str, Any] = {
    "koordlet": {"enforce": True, "evict": True, "network": True, "resctrl": True},
    "manager": {"enabled": True},
    "scheduler": {"enabled": True, "tlsSecret": "tls"},
    "descheduler": {"enabled": True, "beyondEviction": True},
    "webhooks": {"enabled": True, "reservations": True, "nodeStatus": True},
    "policies": {"podClasses": True, "exclusiveClasses": True, "elasticQuotas": True},
    "rbac": {"nodesProxy": True},
}


@pytest.mark.parametrize("variant", [*sorted(VARIANTS), "everything"])
def test_every_object_is_one_of_its_kind(variant: str) -> None:
    found = documents(EVERYTHING if variant == "everything" else VARIANTS[variant], hooks=True)
    assert len(found) > 5
    assert [refusal for document in found for refusal in refusals(document)] == []


def test_the_plain_manifests_too() -> None:
    for path in sorted(renderer.MANIFESTS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            assert document is None or refusals(document) == [], path.name


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return an object with one field set."""
    *parts, last = path.split(".")
    place = document
    for part in parts:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec.template.spec.hostPid", True, "'hostPid' was unexpected"),
        ("spec.minReadySeconds", "30", "not of type 'integer'"),
        ("spec.template.spec.containers.0.resources.limits", [], "not of type 'object'"),
        ("spec.updateStrategy.rollingUpdate.maxUnavailable", [1], "not of type"),
        ("spec.template.spec.containers.0.ports.0.containerPort", "web", "not of type 'integer'"),
    ],
    ids=["unknown-field", "text", "list", "neither", "name"],
)
def test_what_a_server_would_refuse_is_refused(path: str, value: Any, said: str) -> None:
    (daemon_set,) = (each for each in documents() if each["kind"] == "DaemonSet")
    assert any(said in refusal for refusal in refusals(changed(daemon_set, path, value)))


def test_a_kind_that_is_not_recorded_is_refused() -> None:
    assert refusals({"apiVersion": "extensions/v1beta1", "kind": "DaemonSet", "metadata": {"name": "x"}})


def test_the_schemas_are_of_a_release() -> None:
    assert '"version":"v1.36' in RECORDED.read_text()[:100]
