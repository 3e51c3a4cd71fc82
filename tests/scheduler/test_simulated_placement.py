"""Simulated placements: nodes and reasons per pod, and a scheduler that goes on unchanged."""

import json
import threading
import time
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from api.crds import ElasticQuota, NodeMetric, Reservation
from api.kube.device import Device
from api.kube.numa import NodeResourceTopology
from api.kube.objects import Pod
from api.kube.times import rfc3339
from api.placement import PATH, PlacementAnswer, PlacementRequest, SimulatedPod
from api.protocol import ANNOTATION_DEVICE_ALLOCATED, LABEL_QOS_CLASS
from cluster import NODES, PODS
from cluster.resources import Key, Resource
from cluster.serving import Request
from cluster.twin import Twin
from scheduler.engine import Engine
from scheduler.framework import Action, Attempt, ObjectEvent, Plugin, Reason
from scheduler.loop import Loop
from scheduler.numa.topology import CpuTopology
from scheduler.plugins.deviceshare import DEVICES, DeviceShare
from scheduler.plugins.elasticquota import QUOTAS
from scheduler.plugins.loadaware import NODE_METRICS
from scheduler.plugins.nodenumaresource import TOPOLOGIES, NodeNUMAResource
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.profile import SchedulerSettings
from scheduler.reservation.ledger import RESERVATIONS
from scheduler.serving.http_api import HttpApi
from scheduler.simulated_placement import simulate
from tests.schedhistory import device
from tests.schedobjects import drain, engine, node, pod

FIT = {"noderesourcesfit": NodeResourcesFit}
GPU = "koordinator.sh/gpu"


def ask(made: Engine, *pods: Pod | str, gone: tuple[str, ...] = (), excluded: tuple[str, ...] = ()) -> PlacementAnswer:
    """Pods by UID or in full."""
    entries = [SimulatedPod(uid=item) if isinstance(item, str) else SimulatedPod(pod=item) for item in pods]
    return simulate(made, PlacementRequest(entries, list(gone), list(excluded)), 0.0)


def nodes_of(answer: PlacementAnswer) -> list[str]:
    return [placement.node for placement in answer.placements]


def test_a_pending_pod_gets_the_node_that_scheduling_gives_it() -> None:
    made = engine([node("small", allocatable={"cpu": "2"}), node("big", allocatable={"cpu": "8"})], kinds=FIT)
    made.on_pod(Action.ADD, pod("p", {"cpu": "3"}), 0.0)
    [placement] = ask(made, "uid-p").placements
    assert (placement.uid, placement.namespace, placement.name) == ("uid-p", "default", "p")
    assert (placement.node, placement.feasible_nodes, placement.message) == ("big", 1, "")
    assert placement.score > 0
    assert drain(made) == {"p": "big"}


def test_pods_of_a_request_compete_in_its_order() -> None:
    made = engine([node("a"), node("b")], kinds=FIT)
    answer = ask(made, pod("x", {"cpu": "3"}), pod("y", {"cpu": "3"}), pod("z", {"cpu": "3"}))
    assert sorted(nodes_of(answer)) == ["", "a", "b"]
    assert answer.placements[2].message == "0/2 nodes are available: 2 Insufficient cpu."
    assert nodes_of(ask(made, pod("z", {"cpu": "3"}))) != [""]


def test_a_pod_is_not_moved_to_a_node_under_a_verdict() -> None:
    made = engine([node("a"), node("b")], [pod("p", nodeName="a", labels={LABEL_QOS_CLASS: "LS"})])
    verdicts = [{"resource": "cpu", "lostSecondsPerSecond": 0.3}]
    metric = {"metadata": {"name": "b"}, "status": {"extensions": {"interference": {"verdicts": verdicts}}}}
    told = msgspec.convert(metric, NodeMetric)
    made.on_object(ObjectEvent(NODE_METRICS, Action.ADD, Key("", "b"), None, told), 0.0)
    [placement] = ask(made, "uid-p", excluded=("a",)).placements
    assert placement.node == ""
    assert "1 node(s) under cpu interference that the pod is sensitive to" in placement.message


def test_gone_pods_leave_room() -> None:
    made = engine([node("a")], [pod("old", {"cpu": "3"}, nodeName="a")], kinds=FIT)
    assert nodes_of(ask(made, pod("new", {"cpu": "4"}))) == [""]
    assert nodes_of(ask(made, pod("new", {"cpu": "4"}), gone=("uid-old",))) == ["a"]


def test_a_placed_pod_may_stay_unless_its_node_is_excluded() -> None:
    placed = pod("p", {"cpu": "4"}, nodeName="a")
    made = engine([node("a"), node("b", allocatable={"cpu": "2"})], [placed], kinds=FIT)
    assert nodes_of(ask(made, "uid-p")) == ["a"]
    [placement] = ask(made, "uid-p", excluded=("a",)).placements
    assert placement.message == ("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) excluded by the request.")
    assert [(each.text, each.plugin, each.nodes, each.resolvable) for each in placement.rejections] == [
        ("Insufficient cpu", "NodeResourcesFit", 1, True),
        ("node(s) excluded by the request", "", 1, False),
    ]


def test_a_node_excluded_for_one_pod_serves_the_others() -> None:
    made = engine([node("a")], kinds=FIT)
    entries = [SimulatedPod(pod=pod("x"), excluded_nodes=["a"]), SimulatedPod(pod=pod("y"))]
    assert nodes_of(simulate(made, PlacementRequest(entries), 0.0)) == ["", "a"]


def test_a_pod_in_full_stands_in_for_the_placed_one_of_its_name() -> None:
    made = engine([node("a")], [pod("p", {"cpu": "3"}, nodeName="a")], kinds=FIT)
    assert nodes_of(ask(made, pod("p", {"cpu": "4"}, uid="another"))) == ["a"]


def test_what_the_scheduler_does_not_know_is_named() -> None:
    made = engine([node("a")], kinds=FIT)
    answer = ask(made, "uid-none", gone=("uid-gone",), excluded=("a", "nowhere"))
    assert answer.unknown_pods == ["uid-gone", "uid-none"]
    assert answer.unknown_nodes == ["nowhere"]
    assert answer.placements[0].node == ""
    assert "knows no pod" in answer.placements[0].message
    assert answer.nodes == 1


def test_a_gated_pod_has_no_node() -> None:
    made = engine([node("a")])
    [placement] = ask(made, pod("p", schedulingGates=[{"name": "g"}])).placements
    assert placement.node == ""
    assert [each.plugin for each in placement.rejections] == ["SchedulingGates"]


def test_a_pod_is_answered_without_the_devices_that_it_holds() -> None:
    """One of two GPUs is held: with a node to itself, the pod made anew fits on either."""
    made = engine([node("a", allocatable={GPU: "200"}), node("b", allocatable={GPU: "200"})])
    for name in ("a", "b"):
        made.on_object(
            ObjectEvent(DEVICES, Action.ADD, Key("", name), None, msgspec.convert(device(name), Device)), 0.0
        )
    grant = (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}'
    )
    held = pod("p", {"cpu": "1", GPU: 100}, annotations={ANNOTATION_DEVICE_ALLOCATED: grant}, nodeName="a")
    made.on_pod(Action.ADD, held, 0.0)
    whole = pod("whole", {"cpu": "1", GPU: 200})
    assert nodes_of(ask(made, "uid-p", whole, excluded=("b",))) == ["a", ""]
    answer = simulate(
        made, PlacementRequest([SimulatedPod(uid="uid-p", excluded_nodes=["a"]), SimulatedPod(pod=whole)]), 0.0
    )
    assert nodes_of(answer) == ["b", "a"]


class Points(Plugin[tuple[()]]):
    """Notes the points that it is called for; refuses pods called `refused`."""

    name = "Points"
    calls: list[str]

    def pod_added(self, row: int, info: Any) -> None:
        self.calls.append(f"added {info.pod.metadata.name}")

    def pod_removed(self, row: int, info: Any) -> None:
        self.calls.append(f"removed {info.pod.metadata.name}")

    def reserve(self, attempt: Attempt, spec: tuple[()], row: int) -> Reason | None:
        assert attempt.simulated
        self.calls.append(f"reserve {attempt.pod.pod.metadata.name}")
        return Reason("no share left") if attempt.pod.pod.metadata.name == "refused" else None

    def unreserve(self, attempt: Attempt, spec: tuple[()], row: int) -> None:
        self.calls.append(f"unreserve {attempt.pod.pod.metadata.name}")

    def permit(self, attempt: Attempt, spec: tuple[()], row: int) -> None:
        self.calls.append("permit")


def test_plugins_see_a_placement_that_is_given_up() -> None:
    made = engine([node("a")], kinds={"points": Points})
    plugin = made.plugins["Points"]
    assert isinstance(plugin, Points)
    plugin.calls = []
    made.on_pod(Action.ADD, pod("old", nodeName="a"), 0.0)
    plugin.calls.clear()
    answer = ask(made, "uid-old", pod("refused"))
    assert plugin.calls == [
        *("removed old", "reserve old", "added old", "reserve refused"),
        *("removed old", "unreserve refused", "unreserve old", "added old"),
    ]
    assert answer.placements[1].message == "0/1 nodes are available: no share left."
    assert answer.placements[1].rejections[0].plugin == "Points"


def test_a_fault_in_a_plugin_leaves_no_trace() -> None:
    class Broken(Plugin[tuple[()]]):
        name = "Broken"

        def reserve(self, attempt: Attempt, spec: tuple[()], row: int) -> Reason | None:
            raise RuntimeError("broken")

    made = engine([node("a")], [pod("old", {"cpu": "3"}, nodeName="a")], kinds={**FIT, "broken": Broken})
    with pytest.raises(RuntimeError, match="broken"):
        ask(made, pod("x"), gone=("uid-old",))
    assert list(made.snapshot.pods) == ["uid-old"]
    assert made.snapshot.requested[0, 0] == 3000


# A whole profile, with and without simulations in between

QUOTA = "quota.scheduling.koordinator.sh/name"
GANG = "gang.scheduling.koordinator.sh/"
TOPOLOGY = CpuTopology.regular(2, 1, 4, 2)
T0 = 1_700_000_000.0
PROFILE = SchedulerSettings(plugins={"loadaware": {"usage_thresholds": {}}})


class World:
    """An engine with every plugin on four nodes with GPUs and known CPUs, and the pods bound so far."""

    def __init__(self) -> None:
        self.engine = made = Engine(PROFILE)
        self.now = T0
        self.pods: dict[str, Pod] = {}
        self.bound: list[tuple[str, str, dict[str, str]]] = []
        for index in range(4):
            name = f"n{index}"
            offer = {"cpu": "16", "memory": "64Gi", GPU: "200"}
            made.on_node(Action.ADD, node(name, allocatable=offer), self.now)
            detail = [{"id": c.id, "core": c.core, "socket": c.socket, "node": c.node} for c in TOPOLOGY.cpus.values()]
            notes = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
            self.tell(DEVICES, Key("", name), msgspec.convert(device(name), Device))
            topology = {"metadata": {"name": name, "annotations": notes}}
            self.tell(TOPOLOGIES, Key("", name), msgspec.convert(topology, NodeResourceTopology))
            status = {"updateTime": rfc3339(T0), "nodeMetric": {"nodeUsage": {"resources": {"cpu": "100m"}}}}
            self.tell(
                NODE_METRICS, Key("", name), msgspec.convert({"metadata": {"name": name}, "status": status}, NodeMetric)
            )
        for name in ("team", "other"):
            quota = {"metadata": {"name": name, "namespace": "q"}, "spec": {"min": {"cpu": "4"}, "max": {"cpu": "12"}}}
            self.tell(QUOTAS, Key("q", name), msgspec.convert(quota, ElasticQuota))
        container = {"name": "main", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}
        owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
        reservation = {
            "metadata": {"name": "r", "uid": "uid-r"},
            "spec": {"template": {"spec": {"containers": [container]}}, "owners": owners, "allocateOnce": False},
            "status": {"phase": "Available", "nodeName": "n0"},
        }
        self.tell(RESERVATIONS, Key("", "r"), msgspec.convert(reservation, Reservation))

    def tell(self, resource: Resource[Any], key: Key, after: Any) -> None:
        self.engine.on_object(ObjectEvent(resource, Action.ADD, key, None, after), self.now)

    def step(self, draw: Random, number: int) -> None:
        """Pods arrive or leave, then everything that can be placed is."""
        for index in range(draw.randrange(1, 4)):
            for made in arrivals(draw, f"{number}-{index}"):
                self.pods[made.metadata.uid] = made
                self.engine.on_pod(Action.ADD, made, self.now)
        for uid in draw.sample(sorted(self.pods), draw.randrange(0, min(3, len(self.pods)) + 1)):
            self.engine.on_pod(Action.DELETE, self.pods.pop(uid), self.now)
        self.now += 1.0
        self.engine.tick(self.now)
        for _ in range(60):
            if self.engine.schedule_one(self.now) is None:
                break
            while self.engine.bindings:
                self.bind(draw.random() < 0.1)

    def bind(self, fails: bool) -> None:
        binding = self.engine.bindings.popleft()
        info = binding.placed.info
        if fails:
            self.engine.bind_failed(binding, "refused", self.now)
            return
        self.bound.append((info.key, binding.placed.node, dict(info.patch)))
        metadata = msgspec.structs.replace(info.pod.metadata, annotations=info.pod.metadata.annotations | info.patch)
        spec = msgspec.structs.replace(info.pod.spec, node_name=binding.placed.node)
        shown = msgspec.structs.replace(info.pod, metadata=metadata, spec=spec)
        self.engine.bound(binding, self.now)
        self.pods[info.uid] = shown
        self.engine.on_pod(Action.UPDATE, shown, self.now)

    def suppose(self, draw: Random) -> PlacementAnswer:
        """A random request: known pods, pods in full, suppositions."""
        known = sorted(self.pods)
        moved = draw.sample(known, min(len(known), draw.randrange(0, 6)))
        entries = [
            SimulatedPod(uid=uid, excluded_nodes=draw.sample(["n0", "n1"], draw.randrange(0, 3))) for uid in moved
        ]
        entries += [SimulatedPod(pod=made) for made in arrivals(draw, f"new-{draw.randrange(3)}")]
        if known:
            entries.append(SimulatedPod(pod=msgspec.structs.replace(self.pods[draw.choice(known)])))
        gone = draw.sample(known, min(len(known), draw.randrange(0, 5)))
        return simulate(self.engine, PlacementRequest(entries, gone, draw.sample(["n2"], draw.randrange(2))), self.now)

    def state(self) -> Any:
        """All that placement depends on, as plain values."""
        made, snapshot = self.engine, self.engine.snapshot
        devices, numa = made.plugins["DeviceShare"], made.plugins["NodeNUMAResource"]
        assert isinstance(devices, DeviceShare)
        assert isinstance(numa, NodeNUMAResource)
        columns = {name: snapshot.requested[:4, column].tolist() for name, column in snapshot.columns.items()}
        routes = {
            f"{plugin.name}/{pattern}": answer()
            for plugin in made.plugins.values()
            for pattern, answer in plugin.routes().items()
            if "{" not in pattern and plugin.name != "ElasticQuota"
        }
        return (
            {name: amounts for name, amounts in columns.items() if any(amounts)},
            snapshot.nonzero[:4].tolist(),
            {uid: (placed.row, placed.assumed, dict(placed.info.patch)) for uid, placed in snapshot.pods.items()},
            [list(residents) for residents in snapshot.residents],
            {row: dict(sorted(machine.holders.items())) for row, machine in numa.machines.items()},
            {row: dict(sorted(node.holders.items())) for row, node in devices.ledger.nodes.items()},
            [made.plugins["LoadAwareScheduling"].routes()["node/{name}"](f"n{index}") for index in range(4)],
            msgspec.to_builtins(json.loads(json.dumps(routes, default=_plain))),
            made.queue.counts(),
            (len(made.writes), len(made.outcomes), sorted(made.waiting())),
            made.cycle._random.getstate(),
        )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def arrivals(draw: Random, suffix: str) -> list[Pod]:
    kind = draw.choice(["plain", "team", "web", "gpu", "cpuset", "gang", "apart"])
    name = f"{kind}-{suffix}"
    cpu = {"cpu": str(draw.choice([1, 2, 4])), "memory": "1Gi"}
    match kind:
        case "team":
            return [pod(name, cpu, labels={QUOTA: draw.choice(["team", "other"])})]
        case "web":
            return [pod(name, cpu, labels={"app": "web"})]
        case "gpu":
            return [pod(name, {**cpu, GPU: draw.choice([30, 100, 200])})]
        case "cpuset":
            return [pod(name, cpu, labels={LABEL_QOS_CLASS: "LSR"}, priority=9500)]
        case "gang":
            keys = {GANG + "name": f"gang-{suffix}", GANG + "min-available": "3"}
            return [pod(f"{name}-{index}", cpu, annotations=keys) for index in range(draw.choice([2, 3, 4]))]
        case "apart":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            return [pod(name, cpu, labels={"app": "apart"}, affinity={"podAntiAffinity": required})]
    return [pod(name, cpu)]


@pytest.mark.parametrize("seed", range(8), ids=lambda seed: f"seed-{seed}")
def test_a_simulation_leaves_the_state_as_it_was(seed: int) -> None:
    draw = Random(seed)
    world = World()
    placed = 0
    for number in range(20):
        world.step(draw, number)
        before = world.state()
        placed += sum(bool(each.node) for each in world.suppose(draw).placements)
        assert world.state() == before, number
    assert placed > 20


@pytest.mark.parametrize("seed", range(8), ids=lambda seed: f"seed-{seed}")
def test_scheduling_goes_the_same_way_with_simulations_in_between(seed: int) -> None:
    alone, asked = World(), World()
    one, two, extra = Random(seed), Random(seed), Random(seed + 1000)
    for number in range(25):
        alone.step(one, number)
        for _ in range(2):
            asked.suppose(extra)
        asked.step(two, number)
        assert asked.bound == alone.bound, number
    assert len(alone.bound) > 25


# Over HTTP, while pods are scheduled


def test_it_is_answered_over_http_while_pods_are_placed() -> None:
    with Twin() as twin:
        twin.load(NODES, [msgspec.to_builtins(node(f"n{index}", allocatable={"cpu": "16"})) for index in range(4)])
        loop = Loop(twin.client(), Engine(SchedulerSettings()))
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        assert loop.ready.wait(30)
        api = HttpApi(loop)
        request = msgspec.json.encode(
            PlacementRequest([SimulatedPod(pod=pod(f"s{n}", {"cpu": "8"})) for n in range(8)])
        )
        stop, answers, faults = threading.Event(), [0], list[bytes]()

        def hammer() -> None:
            while not stop.is_set():
                reply = api.answer(Request("POST", PATH, request))
                if reply.status == 200:
                    answers[0] += 1
                    msgspec.json.decode(reply.body, type=PlacementAnswer)
                else:
                    faults.append(reply.body)

        askers = [threading.Thread(target=hammer, daemon=True) for _ in range(2)]
        for asker in askers:
            asker.start()
        twin.load(PODS, [msgspec.to_builtins(pod(f"p{index}", {"cpu": "1"}, uid="")) for index in range(64)])
        end = time.monotonic() + 60
        while time.monotonic() < end and sum(bool(p["spec"].get("nodeName")) for p in twin.objects(PODS).values()) < 64:
            time.sleep(0.02)
        stop.set()
        for asker in askers:
            asker.join(10)
        loop.stop()
        thread.join(10)
        where = [item["spec"].get("nodeName") for item in twin.objects(PODS).values()]
        assert {name: where.count(name) for name in set(where)} == {f"n{index}": 16 for index in range(4)}
        assert not faults
        assert answers[0] > 5


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        pytest.param(b"no json", 400, "malformed", id="not-json"),
        pytest.param(b'{"pods": []}', 400, "length", id="nothing-to-place"),
        pytest.param(b'{"pods": [{"uid": "u"}], "schema": "koord.placement/v9"}', 400, "schema", id="another-version"),
        pytest.param(
            b'{"pods": [{"pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}}]}',
            400,
            "much",
            id="unreadable-quantity",
        ),
    ],
)
def test_requests_that_cannot_be_read_are_refused(body: bytes, status: int, words: str) -> None:
    with Twin() as twin:
        loop = Loop(twin.client(), Engine(SchedulerSettings()))
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        assert loop.ready.wait(30)
        reply = HttpApi(loop).answer(Request("POST", PATH, body))
        loop.stop()
        thread.join(10)
        assert reply.status == status, reply.body
        assert words in reply.body.decode()
