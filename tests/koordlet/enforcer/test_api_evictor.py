"""The way to the API server, tried at the twin."""

from collections.abc import Iterator
from typing import Any

import pytest

from cluster import (
    POD_DISRUPTION_BUDGETS,
    PODS,
    Binding,
    BindOutcome,
    Client,
    Key,
    bind,
    merge_patch,
    strategic_patch,
)
from cluster.events import Event
from cluster.twin import Twin
from koordlet.enforcer.evictions.api_evictor import ApiPodEvictor
from koordlet.enforcer.evictions.pod_rules import Answer
from koordlet.identity.pods import PodFacts

KEY = Key("default", "web-1")


@pytest.fixture
def client() -> Iterator[Client]:
    with Twin() as running, running.client() as opened:
        yield opened


def make_pod(client: Client) -> PodFacts:
    container = {"name": "main", "image": "registry.invalid/app"}
    document: dict[str, Any] = {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "labels": {"app": "web"}},
        "spec": {"containers": [container]},
    }
    created = client.create(PODS, document)
    assert bind(client, Binding(KEY, "", "n1")) is BindOutcome.BOUND
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    client.patch(PODS, KEY, strategic_patch({"status": status}), subresource="status")
    return PodFacts(str(KEY), uid=created["metadata"]["uid"], workload="Deployment/default/web")


def set_budget(client: Client, allowed: int) -> None:
    selector = {"matchLabels": {"app": "web"}}
    key = Key("default", "web")
    document = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": selector},
    }
    client.create(POD_DISRUPTION_BUDGETS, document)
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "observedGeneration": 1,
    }
    client.patch(POD_DISRUPTION_BUDGETS, key, merge_patch({"status": status}), subresource="status")


def test_an_eviction_with_its_reason_on_the_pod(client: Client) -> None:
    pod, events = make_pod(client), list[Event]()
    evictor = ApiPodEvictor(client, events.append)
    assert evictor.evict(pod, "memory is short").answer is Answer.ACCEPTED
    found = client.find(PODS, KEY)
    assert found is None or found["metadata"]["deletionTimestamp"]
    assert found is None or found["metadata"]["deletionGracePeriodSeconds"] == 30, "the pod's own"
    (event,) = events
    assert (event.regarding.name, event.regarding.uid, event.note) == ("web-1", pod.uid, "memory is short")


def test_a_budget_is_honoured(client: Client) -> None:
    pod, events = make_pod(client), list[Event]()
    set_budget(client, 0)
    answer = ApiPodEvictor(client, events.append).evict(pod, "memory is short")
    assert answer.answer is Answer.BUDGET
    assert "web" in answer.message
    assert events == []
    assert "deletionTimestamp" not in client.get(PODS, KEY)["metadata"]


def test_a_successor_of_the_name_is_never_met(client: Client) -> None:
    make_pod(client)
    former = PodFacts(str(KEY), uid="11111111-1111-1111-1111-111111111111")
    assert ApiPodEvictor(client).evict(former, "memory is short").answer is Answer.GONE
    assert "deletionTimestamp" not in client.get(PODS, KEY)["metadata"]
