"""The writer: each kind of write against the twin, in order, on the version of the one before, and only if allowed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cluster import CONFIG_MAPS, NODES, POD_DISRUPTION_BUDGETS, PODS, Client, Key, merge_patch
from cluster.twin import UNLIMITED, Twin, TwinSettings
from controllers.kinds import NODE, POD
from controllers.runtime.writer import Answer, Result, Writer
from controllers.runtime.writes import Standing, Write, create, delete, evict, patch
from tests.waiting import wait_for


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin(TwinSettings(termination_seconds=0.05, disruption_controller=True)) as served:
        yield served


def carried_out(twin: Twin, writes: Sequence[Write], *, allowed: bool = True) -> Answer:
    answers: list[Answer] = []
    with twin.client() as client:
        writer = Writer(client, 1, answers.append, lambda: allowed)
        writer.submit("it", writes)
        wait_for(lambda: answers)
        writer.stop()
    return answers[0]


def a_pod(twin: Twin, name: str = "a") -> Any:
    document = {
        "metadata": {"name": name, "namespace": "d", "labels": {"app": "a"}},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "x"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    twin.load(PODS, [document])
    with twin.client() as client:
        return client.get(POD, Key("d", name))


def test_two_patches_of_one_object_follow_each_other(twin: Twin) -> None:
    twin.load(NODES, [{"metadata": {"name": "n"}}])
    with twin.client() as client:
        node = client.get(NODE, Key("", "n"))
    first = patch(NODE, node, {"status": {"allocatable": {"x": "1"}}}, "one", subresource="status")
    second = patch(NODE, node, {"metadata": {"labels": {"a": "b"}}}, "two")
    answer = carried_out(twin, [first, second])
    assert (answer.result, answer.done) == (Result.DONE, 2)
    document = twin.objects(NODES)[Key("", "n")]
    assert document["metadata"]["labels"] == {"a": "b"}
    assert document["status"]["allocatable"] == {"x": "1"}
    assert answer.version == document["metadata"]["resourceVersion"]


def test_a_patch_on_an_old_version_conflicts_and_ends_the_sequence(twin: Twin) -> None:
    twin.load(NODES, [{"metadata": {"name": "n"}}])
    with twin.client() as client:
        node = client.get(NODE, Key("", "n"))
        client.patch(NODES, Key("", "n"), merge_patch({"metadata": {"labels": {"x": "y"}}}))
    label = patch(NODE, node, {"metadata": {"labels": {"a": "b"}}}, "one")
    answer = carried_out(twin, [label, label])
    assert (answer.result, answer.done) == (Result.CONFLICT, 0)


def test_a_patch_of_what_is_gone_says_so(twin: Twin) -> None:
    node = NODE.model(metadata=NODE.model().metadata)
    answer = carried_out(twin, [Write(patch(NODE, node, {}, "x").verb, NODE, Key("", "none"), {}, "one")])
    assert answer.result is Result.GONE


def test_creating_what_exists_otherwise_conflicts(twin: Twin) -> None:
    twin.load(CONFIG_MAPS, [{"metadata": {"name": "c", "namespace": "d"}, "data": {"a": "1"}}])
    wanted = {"metadata": {"name": "c", "namespace": "d"}, "data": {"a": "2"}}
    assert carried_out(twin, [create(CONFIG_MAPS, wanted, "one")]).result is Result.CONFLICT


def test_deletion_is_of_the_object_that_was_seen(twin: Twin) -> None:
    pod = a_pod(twin)
    with twin.client() as client:
        client.delete(PODS, Key("d", "a"))
        wait_for(lambda: client.find(PODS, Key("d", "a")) is None)
    successor = a_pod(twin)
    assert carried_out(twin, [delete(POD, pod, "one")]).result is Result.CONFLICT
    assert carried_out(twin, [delete(POD, successor, "two")]).result is Result.DONE


def test_what_holds_only_while_an_object_stands_is_not_written_without_it(twin: Twin) -> None:
    twin.load(NODES, [{"metadata": {"name": "n"}}])
    old = a_pod(twin)
    with twin.client() as client:
        node = client.get(NODE, Key("", "n"))

        def noted() -> Result:
            note = patch(NODE, node, {"metadata": {"labels": {"a": "b"}}}, "one")
            return carried_out(twin, [replace(note, standing=Standing(POD, Key("d", "a"), old.metadata.uid))]).result

        client.patch(PODS, Key("d", "a"), merge_patch({"metadata": {"finalizers": ["koord.test/stays"]}}))
        client.delete(PODS, Key("d", "a"))
        assert noted() is Result.CONFLICT, "it is being deleted"
        client.patch(PODS, Key("d", "a"), merge_patch({"metadata": {"finalizers": None}}))
        wait_for(lambda: client.find(PODS, Key("d", "a")) is None)
        assert noted() is Result.CONFLICT, "it is gone"
        successor = a_pod(twin)
        assert noted() is Result.CONFLICT, "it is another of its name"
        assert "labels" not in client.get(NODES, Key("", "n"))["metadata"]
        old = successor
        assert noted() is Result.DONE


def test_an_eviction_that_a_budget_forbids_is_no_success(twin: Twin) -> None:
    pod = a_pod(twin)
    selector = {"matchLabels": {"app": "a"}}
    budget = {"metadata": {"name": "b", "namespace": "d"}, "spec": {"minAvailable": 1, "selector": selector}}
    twin.load(POD_DISRUPTION_BUDGETS, [budget])
    assert carried_out(twin, [evict(POD, pod, "one")]).result is not Result.DONE
    with twin.client() as client:
        client.delete(POD_DISRUPTION_BUDGETS, Key("d", "b"))
    assert carried_out(twin, [evict(POD, pod, "two")]).result is Result.DONE


def test_nothing_is_sent_without_the_lead(twin: Twin) -> None:
    twin.load(NODES, [{"metadata": {"name": "n"}}])
    with twin.client() as client:
        node = client.get(NODE, Key("", "n"))
    answer = carried_out(twin, [patch(NODE, node, {"metadata": {"labels": {"a": "b"}}}, "one")], allowed=False)
    assert (answer.result, answer.done) == (Result.DROPPED, 0)
    assert "a" not in twin.objects(NODES)[Key("", "n")]["metadata"].get("labels", {})


def test_a_write_that_waited_until_the_lead_was_gone_is_dropped(twin: Twin) -> None:
    twin.load(NODES, [{"metadata": {"name": "n"}}])
    answers: list[Answer] = []
    with twin.client() as client:
        label = patch(NODE, client.get(NODE, Key("", "n")), {"metadata": {"labels": {"a": "b"}}}, "one")
    with Client(twin.endpoint(), UNLIMITED, may_write=lambda: False) as client:
        writer = Writer(client, 1, answers.append, lambda: True)
        writer.submit("it", [label])
        wait_for(lambda: answers)
        writer.stop()
    assert (answers[0].result, answers[0].done) == (Result.DROPPED, 0)
