"""Nodes, pods and engines for scheduler tests, written as data."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from api.kube.objects import Node, Pod
from cluster.twin import Twin
from scheduler.cluster_state.columns import Rows
from scheduler.cycle import AnyPlugin
from scheduler.engine import Engine
from scheduler.explain.diagnosis import by_node
from scheduler.framework import Action, Attempt, Bits, Plugin, Reason
from scheduler.loop import Loop
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.profile import SchedulerSettings
from tests.waiting import PATIENCE

DAMP = "node(s) in a damp cellar"
"""Why `Cellars` avoids nodes."""


class Cellars(Plugin[tuple[()]]):
    """Avoids nodes with the label `cellar`."""

    name = "Cellars"

    def reasons(self, spec: tuple[()]) -> tuple[Reason, ...]:
        """One reason."""
        return (Reason(DAMP),)

    def avoid(self, attempt: Attempt, spec: tuple[()], rows: Rows) -> Bits:
        """Rows with the label."""
        return np.asarray(attempt.snapshot.labels.column("cellar").ids[rows] >= 0, dtype=np.int64)


BASE: dict[str, type[AnyPlugin]] = {"prioritysort": PrioritySort, "defaultbinder": DefaultBinder}
"""Without these no engine runs."""


def node(name: str, **fields: Any) -> Node:
    """A node of 4 cores, 8 GiB and 110 pods unless `allocatable` says otherwise.

    `labels`, `annotations`, `taints`, `unschedulable` and `images` as in the object; every node carries its
    hostname label.
    """
    labels = {"kubernetes.io/hostname": name, **fields.get("labels", {})}
    document = {
        "metadata": {"name": name, "labels": labels, "annotations": fields.get("annotations", {})},
        "spec": {
            "taints": fields.get("taints", []),
            "unschedulable": fields.get("unschedulable", False),
        },
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", **fields.get("allocatable", {})},
            "images": fields.get("images", []),
        },
    }
    return msgspec.convert(document, Node)


def pod(name: str, requests: Mapping[str, str | int] | None = None, **fields: Any) -> Pod:
    """A pending pod of one container. `labels`, `annotations`, `uid`, `namespace`, `phase` and
    `owner` are metadata and status; `container` merges into the container; anything else into the spec.
    """
    metadata = {
        "name": name,
        "namespace": fields.pop("namespace", "default"),
        "uid": fields.pop("uid", f"uid-{name}"),
        "labels": fields.pop("labels", {}),
        "annotations": fields.pop("annotations", {}),
        "creationTimestamp": fields.pop("creation_timestamp", None),
        "deletionTimestamp": fields.pop("deletion_timestamp", None),
    }
    owner = fields.pop("owner", None)
    if owner is not None:
        metadata["ownerReferences"] = [{"controller": True, **owner}]
    status = {"phase": fields.pop("phase", "Pending"), **fields.pop("status", {})}
    container = {"name": "main", "image": "app:1", "resources": {"requests": dict(requests or {})}}
    container |= fields.pop("container", {})
    spec = {"schedulerName": "koord-scheduler", "containers": [container], **fields}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def engine(
    nodes: Iterable[Node],
    placed: Iterable[Pod] = (),
    *,
    kinds: Mapping[str, type[AnyPlugin]] | None = None,
    plugins: Mapping[str, dict[str, Any]] | None = None,
) -> Engine:
    """An engine that knows `nodes` and the bound pods `placed`; `kinds` limits the plugins (all otherwise)."""
    chosen = None if kinds is None else {**BASE, **kinds}
    made = Engine(SchedulerSettings(plugins=dict(plugins or {})), kinds=chosen)
    for item in nodes:
        made.on_node(Action.ADD, item, 0.0)
    for item in placed:
        made.on_pod(Action.ADD, item, 0.0)
    return made


@contextmanager
def running_loop(twin: Twin, made: Engine) -> Iterator[Loop]:
    """Run the engine's loop against the twin in a thread, stopped with the context."""
    loop = Loop(twin.client(), made)
    with in_a_thread(loop):
        yield loop


@contextmanager
def in_a_thread(loop: Loop) -> Iterator[None]:
    """Run a loop in a thread, stopped with the context."""
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        assert loop.ready.wait(10 * PATIENCE)
        yield
    finally:
        loop.stop()
        thread.join(20)
        assert not thread.is_alive()


def rejected(made: Engine, candidate: Pod) -> dict[str, list[str]]:
    """Per node, the reasons against the pod; nodes that would take it have none."""
    attempt = made.cycle.attempt(made.classes.info(candidate), 0.0)
    evaluation = made.cycle.evaluate(attempt)
    return {item.node: [reason.text for reason in item.reasons] for item in by_node(evaluation.failure, made.snapshot)}


def totals(made: Engine, candidate: Pod) -> dict[str, int]:
    """Per node, the weighted total; -1 for nodes that cannot take the pod."""
    attempt = made.cycle.attempt(made.classes.info(candidate), 0.0)
    evaluation = made.cycle.evaluate(attempt)
    live = np.flatnonzero(made.snapshot.live)
    return {made.snapshot.names[row]: int(evaluation.totals[row]) for row in live}


def drain(made: Engine, now: float = 0.0) -> dict[str, str]:
    """Attempt everything that is ready and let every binding succeed: pod name to node name."""
    bound: dict[str, str] = {}
    while made.schedule_one(now) is not None:
        while made.bindings:
            binding = made.bindings.popleft()
            made.bound(binding, now)
            bound[binding.placed.info.pod.metadata.name] = binding.placed.node
    return bound
