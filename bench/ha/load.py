"""Pods that come and go, preemptors among them, and the kubelet's part: what is deleted ends.

`Observer` keeps what a watch of its own says, past every proxy: where pods are, which nodes are overfull, who was
preempted.
"""

import heapq
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from api.crds import DEFINITIONS
from api.crds.definition import definition_document
from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Client,
    ClusterError,
    DeleteOptions,
    DeltaType,
    Document,
    Informer,
    Key,
    StoreDelta,
    merge_patch,
)

NAMESPACE = "trial"
ORDINARY_NODES, ORDINARY_CORES = 40, 6
CONTESTED_NODES, CONTESTED_CORES = 5, 4
PREEMPTORS, CORES_PER_PREEMPTOR = 3, 2
LEAST_VICTIMS = PREEMPTORS * CORES_PER_PREEMPTOR
POOL = "trial.koord.sh/pool"
GRACE_SECONDS = 2.0
LIFETIME_SECONDS = (20.0, 40.0)
ROUND_SECONDS = 300.0


def build(client: Client) -> None:
    """Make namespaces, priority classes, custom kinds and nodes."""
    for definition in DEFINITIONS:
        client.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
    for name in (NAMESPACE, "koordinator-system"):
        client.create(NAMESPACES, {"metadata": {"name": name}})
    for name, value in (("low", 100), ("high", 1000)):
        client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    pools = (("ordinary", ORDINARY_NODES, ORDINARY_CORES), ("contested", CONTESTED_NODES, CONTESTED_CORES))
    for pool, count, cores in pools:
        for index in range(count):
            name = f"{pool}-{index}"
            labels = {"kubernetes.io/hostname": name, POOL: pool}
            amounts = {"cpu": str(cores), "memory": "64Gi", "pods": "110"}
            client.create(NODES, {"metadata": {"name": name, "labels": labels}})
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
            client.patch(NODES, Key("", name), merge_patch({"status": status}), subresource="status")


def pod(name: str, pool: str, cores: int, priority_class: str = "") -> Document:
    """A pod of so many cores for a pool."""
    container = {
        "name": "main",
        "image": "registry.invalid/app",
        "resources": {"requests": {"cpu": str(cores), "memory": "64Mi"}},
    }
    spec: Document = {"schedulerName": "koord-scheduler", "nodeSelector": {POOL: pool}, "containers": [container]}
    if priority_class:
        spec["priorityClassName"] = priority_class
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": {"pool": pool}}, "spec": spec}


def _cores(document: Document) -> int:
    return int(document["spec"]["containers"][0]["resources"]["requests"]["cpu"])


@dataclass
class Observer:
    """What became of pods, from a watch."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node of every pod that was ever seen bound, by UID."""
    pending: dict[str, float] = field(default_factory=dict)
    """When each pod that is not bound was seen first, by UID."""
    moved: list[str] = field(default_factory=list)
    """Pods that named a second node."""
    overfull: list[str] = field(default_factory=list)
    """Nodes that held more than they have."""
    preempted: set[str] = field(default_factory=set)
    """UIDs of pods that another program deleted."""
    own: set[str] = field(default_factory=set)
    """UIDs of pods that the trial deletes."""
    lives: dict[str, Document] = field(default_factory=dict)
    """Pods that exist, by name."""
    longest_pending_seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    on_bound: Callable[[Document], None] = lambda _: None
    on_leaving: Callable[[Document], None] = lambda _: None
    _used: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __call__(self, deltas: Iterable[StoreDelta[Document]]) -> None:
        """Take what the watch says."""
        with self.lock:
            for delta in deltas:
                document = delta.old if delta.new is None else delta.new
                if document is not None:
                    self._take(document, gone=delta.type is DeltaType.DELETED)

    def _take(self, document: Document, *, gone: bool) -> None:
        meta, node = document["metadata"], document["spec"].get("nodeName", "")
        uid, name, known = meta["uid"], meta["name"], self.nodes.get(meta["uid"])
        if gone:
            self.lives.pop(name, None)
            self.pending.pop(uid, None)
            if known:
                self._used[known] -= _cores(document)
            if uid not in self.own:
                self.preempted.add(uid)
            return
        self.lives[name] = document
        if meta.get("deletionTimestamp"):
            if uid not in self.own:
                self.preempted.add(uid)
            self.on_leaving(document)
        if not node:
            self.pending.setdefault(uid, time.monotonic())
        elif known is None:
            self.nodes[uid] = node
            since = self.pending.pop(uid, None)
            if since is not None:
                self.longest_pending_seconds = max(self.longest_pending_seconds, time.monotonic() - since)
            self._used[node] += _cores(document)
            has = CONTESTED_CORES if node.startswith("contested") else ORDINARY_CORES
            if self._used[node] > has:
                self.overfull.append(f"{node}: {self._used[node]} of {has} cores with {name}")
            self.on_bound(document)
        elif known != node:
            self.moved.append(f"{name}: {known}, then {node}")


@dataclass(frozen=True, slots=True)
class Round:
    """One round of preemptors: victims, the least that would do, and seconds until all were bound (None: never)."""

    victims: int
    least: int
    seconds: float | None
    cut: bool = False
    """The trial ended before all were bound."""

    @property
    def failed(self) -> bool:
        """Not all were bound in the time that there was."""
        return self.seconds is None and not self.cut


class Load:
    """Arrivals, ends and preemptors, in threads of their own."""

    def __init__(self, client: Client, arrivals_per_second: float, seed: int) -> None:
        self.observer = Observer(on_bound=self._bound, on_leaving=self._leaving)
        self.created = 0
        self.rounds: list[Round] = []
        self.errors: list[str] = []
        self._client = client
        self._interval = 1.0 / arrivals_per_second
        self._random = Random(seed)
        self._ends: list[tuple[float, str, str]] = []
        self._more = threading.Event()
        """Pods arrive, and rounds of preemptors begin."""
        self._over = threading.Event()
        self._informer = Informer(client, PODS.of(dict))
        self._informer.subscribe(self.observer)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._arrive, self._end, self._preempt)
        ]

    def start(self) -> None:
        """Begin."""
        self._more.set()
        self._informer.start()
        self._informer.wait_synced(30.0)
        for thread in self._threads:
            thread.start()

    def ebb(self) -> None:
        """Let nothing more arrive; a round of preemptors goes on to its end."""
        self._more.clear()

    def stop(self) -> None:
        """End."""
        self._over.set()
        for thread in self._threads:
            thread.join(10.0)
        self._informer.stop()

    def _guarded(self, work: Callable[[], None]) -> None:
        while not self._over.is_set():
            try:
                work()
            except ClusterError as error:
                self.errors.append(str(error))
                self._over.wait(1.0)

    def _arrive(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due += self._interval
            if self._more.is_set():
                self._client.create(PODS, pod(f"app-{self.created:06d}", "ordinary", 1))
                self.created += 1

    def _bound(self, document: Document) -> None:
        if document["spec"]["nodeSelector"][POOL] == "ordinary":
            self._end_in(self._random.uniform(*LIFETIME_SECONDS), document)

    def _leaving(self, document: Document) -> None:
        self._end_in(GRACE_SECONDS, document)

    def _end_in(self, seconds: float, document: Document) -> None:
        meta = document["metadata"]
        heapq.heappush(self._ends, (time.monotonic() + seconds, meta["name"], meta["uid"]))

    def _end(self) -> None:
        while not self._over.wait(0.1):
            due = []
            with self.observer.lock:
                while self._ends and self._ends[0][0] <= time.monotonic():
                    due.append(heapq.heappop(self._ends)[1:])
                self.observer.own.update(uid for _, uid in due if uid not in self.observer.preempted)
            for name, uid in due:
                self._delete(name, uid)

    def _delete(self, name: str, uid: str) -> None:
        self._client.delete(PODS, Key(NAMESPACE, name), DeleteOptions(uid=uid, grace_period_seconds=0))

    def _preempt(self) -> None:
        """Fill the contested nodes, and let pods of higher priority need room there."""
        if not self._more.wait(0.1):
            return
        number = len(self.rounds)
        low = self._make(f"low-{number}", CONTESTED_NODES * CONTESTED_CORES, 1, "low")
        high, seconds, began = dict[str, str](), None, self._await(low)
        if began is not None:
            high = self._make(f"high-{number}", PREEMPTORS, CORES_PER_PREEMPTOR, "high")
            bound = self._await(high)
            seconds = None if bound is None else bound - began
            self._over.wait(3.0)  # for a victim too many
        with self.observer.lock:
            victims = sum(uid in self.observer.preempted for uid in low.values())
        self.rounds.append(Round(victims, LEAST_VICTIMS, seconds, cut=seconds is None and self._over.is_set()))
        self._clear(low | high)

    def _make(self, prefix: str, count: int, cores: int, priority_class: str) -> dict[str, str]:
        made = {}
        for index in range(count):
            stored: Any = self._client.create(PODS, pod(f"{prefix}-{index}", "contested", cores, priority_class))
            made[stored["metadata"]["name"]] = stored["metadata"]["uid"]
        return made

    def _await(self, pods: dict[str, str]) -> float | None:
        """Wait until all are bound; the moment, or None when they never were."""
        until = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < until and not self._over.wait(0.05):
            with self.observer.lock:
                if all(uid in self.observer.nodes for uid in pods.values()):
                    return time.monotonic()
        return None

    def _clear(self, pods: dict[str, str]) -> None:
        with self.observer.lock:
            self.observer.own.update(uid for uid in pods.values() if uid not in self.observer.preempted)
        for name, uid in pods.items():
            self._delete(name, uid)
        while not self._over.wait(0.05):
            with self.observer.lock:
                if not any(name in self.observer.lives for name in pods):
                    return
