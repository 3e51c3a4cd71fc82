"""`koord-scheduler why`: reasons why a pod is pending, from the API server's present state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from api.kube.objects import Pod
from cluster import Client, Identity, Key, NotFound, Resource
from scheduler.cycle import BARRED
from scheduler.engine import NODE, Engine
from scheduler.explain.debug import score_table
from scheduler.explain.diagnosis import NodeReasons, by_node, last_resort, sentence
from scheduler.framework import Action, ObjectEvent
from scheduler.lifecycle.conditions import POD

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence, and the reasons or scores behind it."""

    sentence: str
    nodes: Sequence[NodeReasons] = ()
    """Nodes that reject the pod, by name."""
    scores: str = ""
    """Markdown of the best nodes when the pod can be placed."""


def load(client: Client, engine: Engine, now: float) -> None:
    """Give the engine every object that the API server lists. Raises ClusterError."""
    for kind in engine.watched_kinds().values():
        for identity, value in _listed(client, kind):
            engine.on_object(ObjectEvent(kind, Action.ADD, identity.key, None, value), now)
    for _, node in _listed(client, NODE):
        engine.on_node(Action.ADD, node, now)
    for _, pod in _listed(client, POD):
        engine.on_pod(Action.ADD, pod, now)


def find_pod(client: Client, key: Key) -> Pod | None:
    """The pod, None when there is none by that name."""
    return client.find(POD, key)


def explain(engine: Engine, pod: Pod, now: float, *, top: int = 5) -> Explanation:
    """Explain why the pod is pending, or state its node."""
    if pod.spec.node_name:
        return Explanation(f"{pod.key} is on node {pod.spec.node_name}.")
    if pod.finished:
        return Explanation(f"{pod.key} has ended ({pod.status.phase}).")
    info = engine.classes.info(pod)
    gate = engine.gate(info)
    if gate is not None:
        return Explanation(f"{pod.key} is held before the queue by {gate.plugin}: {gate.text}.")
    attempt = engine.cycle.attempt(info, now)
    evaluation = engine.cycle.evaluate(attempt)
    row = engine.cycle.choose(evaluation)
    if row is None:
        nodes = by_node(evaluation.failure, engine.snapshot) if evaluation.reason is None else []
        return Explanation(sentence(evaluation.failure, engine.snapshot), nodes)
    feasible = int((evaluation.totals > BARRED).sum())
    total = engine.snapshot.node_count
    text = f"{pod.key} fits on {feasible} of {total} nodes; the best is {engine.snapshot.names[row]}."
    despite = evaluation.class_result.despite(row)
    if despite:
        text += f" {last_resort(engine.snapshot.names[row], despite)}"
    if not engine.is_ours(pod):
        text += f" Its schedulerName is {pod.spec.scheduler_name}, so this scheduler leaves it alone."
    return Explanation(text, (), score_table(engine.cycle, attempt, evaluation, top))


def _listed(client: Client, kind: Resource[T]) -> list[tuple[Identity, T]]:
    try:
        listing = client.list(kind)
    except NotFound:
        # The cluster does not serve this kind: none of its objects exist.
        return []
    return [(item.identity, item.value) for item in listing.items if item.value is not None]
