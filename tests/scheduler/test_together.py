"""Gangs, quotas, reservations, load and interference at once, with lost answers and restarts.

A small world holds the truth as the API server would; an engine with the whole profile lives in it and dies in
it. Whatever happens, the truth never shows a node over capacity, a pod bound twice, a quota beyond its maximum,
or reserved room in strangers' hands.
"""

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from api.crds import ElasticQuota, NodeMetric, Reservation
from api.kube.objects import Node, Pod
from api.kube.times import rfc3339
from cluster.pods import Binding
from cluster.resources import Key, Patch, Resource
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb, Write
from scheduler.plugins.elasticquota import QUOTAS
from scheduler.plugins.loadaware import NODE_METRICS
from scheduler.profile import SchedulerSettings
from scheduler.reservation.ledger import RESERVATIONS
from tests.schedobjects import node, pod

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
GANG = "gang.scheduling.koordinator.sh/"
QUOTA = "quota.scheduling.koordinator.sh/name"
CAPACITY = 4000
TEAM_MAX = 3000
T0 = 1_700_000_000.0
PROFILE = SchedulerSettings(plugins={"loadaware": {"usage_thresholds": {}}})
"""Everything as shipped, but load closes no node: the nodes here are small and full."""


def pending(kind: str, number: int, cores: int) -> Pod:
    name, requests = f"{kind}-{number}", {"cpu": str(cores)}
    match kind:
        case "gang":
            keys = {GANG + "name": "g", GANG + "min-available": "3"}
            return pod(name, requests, annotations=keys, priority=5)
        case "team":
            return pod(name, requests, labels={QUOTA: "team"}, priority=number)
        case "web":
            return pod(name, requests, labels={"app": "web"})
    return pod(name, requests)


class World(RuleBasedStateMachine):
    """The API server's truth, and one scheduler in it."""

    kinds = st.sampled_from(["gang", "team", "web", "plain"])

    def __init__(self) -> None:
        super().__init__()
        self.now = T0
        self.uids = count()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.reservations: dict[str, dict[str, Any]] = {}
        self.quota = msgspec.convert(
            {
                "metadata": {"name": "team", "namespace": "koordinator-system"},
                "spec": {"min": {"cpu": "1"}, "max": {"cpu": "3"}},
            },
            ElasticQuota,
        )
        self.engine = Engine(PROFILE)

    # The scheduler's life

    @initialize(size=st.integers(1, 3))
    def start(self, size: int) -> None:
        for number in range(size):
            self.nodes[f"n{number}"] = node(f"n{number}")
        self.restart()
        for number in range(4):
            for kind in ("web", "gang", "team"):
                self.create(kind, number, 1)

    @rule()
    def restart(self) -> None:
        """A scheduler that knows nothing reads everything."""
        self.engine = made = Engine(PROFILE)
        for host in self.nodes.values():
            made.on_node(Action.ADD, host, self.now)
        made.tick(self.now)
        self.tell(QUOTAS, Key("koordinator-system", "team"), self.quota)
        for document in self.reservations.values():
            self.show(document)
        for each in self.pods.values():
            made.on_pod(Action.ADD, each, self.now)
        for name in self.nodes:
            status = {"updateTime": rfc3339(self.now), "nodeMetric": {"nodeUsage": {"resources": {"cpu": "100m"}}}}
            metric = msgspec.convert({"metadata": {"name": name}, "status": status}, NodeMetric)
            self.tell(NODE_METRICS, Key("", name), metric)

    def tell(self, resource: Resource[Any], key: Key, after: Any) -> None:
        action = Action.DELETE if after is None else Action.UPDATE
        self.engine.on_object(ObjectEvent(resource, action, key, None, after), self.now)

    def show(self, document: dict[str, Any]) -> None:
        self.tell(RESERVATIONS, Key("", document["metadata"]["name"]), msgspec.convert(document, Reservation))

    # Users

    @rule(batch=st.lists(st.tuples(kinds, st.integers(0, 3), st.integers(1, 2)), min_size=3, max_size=12))
    def submit(self, batch: list[tuple[str, int, int]]) -> None:
        for kind, number, cores in batch:
            self.create(kind, number, cores)

    def create(self, kind: str, number: int, cores: int) -> None:
        made = pending(kind, number, cores)
        made = msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, uid=f"{made.key}@{next(self.uids)}")
        )
        if made.key not in self.pods:
            self.pods[made.key] = made
            self.engine.on_pod(Action.ADD, made, self.now)

    @rule(kind=kinds, number=st.integers(0, 3))
    def delete(self, kind: str, number: int) -> None:
        self.remove(f"default/{kind}-{number}")

    def remove(self, key: str) -> None:
        gone = self.pods.pop(key, None)
        if gone is not None:
            self.engine.on_pod(Action.DELETE, gone, self.now)

    @rule(number=st.integers(0, 1), cores=st.integers(1, 3), once=st.booleans())
    def reserve(self, number: int, cores: int, once: bool) -> None:
        name = f"r{number}"
        if name in self.reservations:
            return
        container = {"name": "main", "resources": {"requests": {"cpu": str(cores)}}}
        self.reservations[name] = {
            "metadata": {"name": name, "uid": f"{name}-{self.now}", "creationTimestamp": rfc3339(self.now)},
            "spec": {
                "template": {"spec": {"containers": [container]}},
                "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
                "allocatePolicy": "Aligned",
                "allocateOnce": once,
                "ttl": "1h",
            },
            "status": {},
        }
        self.show(self.reservations[name])

    @rule(number=st.integers(0, 1))
    def unreserve(self, number: int) -> None:
        if self.reservations.pop(f"r{number}", None) is not None:
            self.tell(RESERVATIONS, Key("", f"r{number}"), None)

    @rule(seconds=st.sampled_from([1, 30, 700, 3700]))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.engine.tick(self.now)
        self.flush()

    # The loop

    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        self.now += 1.0
        for _ in range(times):
            self.engine.schedule_one(self.now)

    @rule(fates=st.lists(st.sampled_from(["bound", "bound", "bound", "refused", "lost"]), min_size=4, max_size=12))
    def run(self, fates: list[str]) -> None:
        """Schedule and bind, one fate per binding."""
        self.now += 15.0
        for fate in fates:
            while not self.engine.bindings and self.engine.schedule_one(self.now) is not None:
                pass
            if self.engine.bindings:
                self.bind(fate)
                self.no_node_is_over_capacity()

    def bind(self, fate: str) -> None:
        """A binding takes effect, is refused, or takes effect while the scheduler dies before it hears."""
        binding = self.engine.bindings.popleft()
        if fate == "refused":
            self.engine.bind_failed(binding, "conflict", self.now)
            return
        accepted = all(self.write(write) for write in binding.writes)
        if fate == "lost":
            self.restart()
        elif accepted:
            self.engine.bound(binding, self.now)
            self.confirm(binding.placed.info.key)
        else:
            self.engine.bind_failed(binding, "conflict", self.now)
        self.flush()

    @rule()
    def flush(self) -> None:
        """Make all other writes."""
        while self.engine.writes:
            self.write(self.engine.writes.popleft())

    def confirm(self, key: str) -> None:
        if key in self.pods:
            self.engine.on_pod(Action.UPDATE, self.pods[key], self.now)

    def write(self, write: Write) -> bool:
        """Apply a write as the API server does; False when it refuses."""
        kind, body = write.resource.kind, write.body
        if kind == "Pod" and write.verb is Verb.BIND:
            assert isinstance(body, Binding)
            return self.accept(write.key, body)
        if kind == "Pod" and write.verb in (Verb.DELETE, Verb.EVICT):
            self.remove(str(write.key))
        if kind == "Reservation" and write.key.name in self.reservations and isinstance(body, Patch):
            assert isinstance(body.body, dict)
            document = self.reservations[write.key.name]
            for part, fields in body.body.items():
                document.setdefault(part, {}).update(fields)
            self.show(document)
        return kind != "Reservation" or write.key.name in self.reservations

    def accept(self, key: Key, binding: Binding) -> bool:
        found = self.pods.get(str(key))
        if found is None or found.metadata.uid != binding.uid:
            return False
        assert not found.spec.node_name, f"{key} is bound twice"
        annotations = {**found.metadata.annotations, **binding.annotations}
        self.pods[str(key)] = msgspec.structs.replace(
            found,
            metadata=msgspec.structs.replace(found.metadata, annotations=annotations),
            spec=msgspec.structs.replace(found.spec, node_name=binding.node),
        )
        return True

    # What must hold in the truth

    @invariant()
    def no_node_is_over_capacity(self) -> None:
        for name in self.nodes:
            assert self.taken(name) <= CAPACITY

    def taken(self, name: str) -> int:
        """Millicores of a node's pods, and of what live reservations keep beyond their consumers."""
        bound = [each for each in self.pods.values() if each.spec.node_name == name]
        total = sum(cores(each) for each in bound)
        for document in self.reservations.values():
            status = document["status"]
            if status.get("phase") != "Available" or status.get("nodeName") != name:
                continue
            kept = int(document["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]) * 1000
            uid = document["metadata"]["uid"]
            drawn = sum(cores(each) for each in bound if uid in each.metadata.annotations.get(ALLOCATED, ""))
            total += max(kept - drawn, 0)
        return total

    @invariant()
    def the_quota_holds(self) -> None:
        team = [each for each in self.pods.values() if each.metadata.labels.get(QUOTA) == "team"]
        assert sum(cores(each) for each in team if each.spec.node_name) <= TEAM_MAX

    @invariant()
    def the_snapshot_agrees(self) -> None:
        snapshot = self.engine.snapshot
        for row in range(snapshot.rows_used):
            if snapshot.live[row]:
                assert 0 <= snapshot.requested[row, 0] <= snapshot.allocatable[row, 0]


def cores(each: Pod) -> int:
    return int(each.spec.containers[0].resources.requests["cpu"]) * 1000


World.TestCase.settings = settings(
    max_examples=120, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWorld = World.TestCase


def test_the_truth_can_be_violated() -> None:
    """The world notices what it is there to notice."""
    world = World()
    world.nodes["n0"] = node("n0")
    for number in range(3):
        made = pending("plain", number, 2)
        bound = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name="n0"))
        world.pods[made.key] = bound
    with pytest.raises(AssertionError):
        world.no_node_is_over_capacity()
    with pytest.raises(AssertionError, match="bound twice"):
        world.accept(Key("default", "plain-0"), Binding(Key("default", "plain-0"), "uid-plain-0", "n0", {}))
