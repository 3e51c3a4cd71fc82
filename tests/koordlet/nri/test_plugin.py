"""The plugin's answers, method by method."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from api.intents import Knob
from api.kube.resources import CPU
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_EXTENDED_RESOURCE_SPEC,
    ANNOTATION_OOM_SCORE_ADJ,
    ANNOTATION_RESCTRL,
    ANNOTATION_RESOURCE_STATUS,
    BATCH_CPU,
    BATCH_MEMORY,
)
from api.qos import QoSClass
from koordlet.hooks.decide import HookRules
from koordlet.hooks.resources import ContainerResources, DeviceNode, Mount
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.nri.adjustment import adjustment
from koordlet.nri.bounds import PodBounds
from koordlet.nri.nri_pb2 import (
    ConfigureRequest,
    ConfigureResponse,
    CreateContainerRequest,
    CreateContainerResponse,
    LinuxResources,
    PodRequest,
    PodSandbox,
    SynchronizeRequest,
    SynchronizeResponse,
    UpdateContainerRequest,
    UpdateContainerResponse,
)
from koordlet.nri.plugin import AWAIT_POD_SECONDS, AwaitPod, Birth, Plugin
from koordlet.strategies.view import CacheControl
from tests.koordlet.hooks import facts
from tests.koordlet.nri.runtime import container, sandbox

GIB = 1 << 30
SPEC = {"containers": {"main": {"requests": {BATCH_CPU: "500"}, "limits": {BATCH_CPU: "500", BATCH_MEMORY: "1Gi"}}}}
BATCH = {ANNOTATION_EXTENDED_RESOURCE_SPEC: json.dumps(SPEC)}


class Host:
    """A plugin on a node, with what it told and was told."""

    def __init__(
        self,
        node: facts.NodeFacts | None = None,
        *,
        v1: bool = True,
        bounds: PodBounds = PodBounds(),  # noqa: B008 - immutable
        actions: Mapping[str, Mapping[Knob, str]] | None = None,
        pods: PodTable | None = None,
        await_pod: AwaitPod | None = None,
    ) -> None:
        self.births: list[Birth] = []
        found, state = node or facts.node(), actions or {}
        self.plugin = Plugin(
            HookRules(),
            lambda _pods: found,
            lambda: pods or PodTable(),
            v1=v1,
            bounds_of=lambda _path: bounds,
            actions=lambda: state,
            on_birth=self.births.append,
            await_pod=await_pod,
            request_timeout_milliseconds=500,
        )

    def create(self, pod: PodSandbox) -> CreateContainerResponse:
        asked = CreateContainerRequest(pod=pod, container=container())
        return CreateContainerResponse.FromString(
            self.plugin.handle("CreateContainer", asked.SerializeToString()) or b""
        )


def test_it_subscribes_to_starts_and_updates() -> None:
    asked = ConfigureRequest(runtime_name="containerd", runtime_version="v2.1.4")
    host = Host()
    answer = ConfigureResponse.FromString(host.plugin.handle("Configure", asked.SerializeToString()) or b"")
    # RunPodSandbox 1, RemovePodSandbox 3, CreateContainer 4, UpdateContainer 8, StopContainer 10
    assert answer.events == 0b10_1000_1101
    assert answer.request_timeout == 500
    assert host.plugin.runtime == "containerd v2.1.4"


@pytest.mark.parametrize("more", [False, True])
def test_running_containers_are_left_to_the_reconciler(more: bool) -> None:
    asked = SynchronizeRequest(pods=[sandbox()], containers=[container()], more=more)
    answer = SynchronizeResponse.FromString(Host().plugin.handle("Synchronize", asked.SerializeToString()) or b"")
    assert list(answer.update) == []
    assert answer.more is more


@pytest.mark.parametrize("v1", [True, False])
def test_a_batch_container_starts_within_its_limits(v1: bool) -> None:
    host = Host(v1=v1)
    given = host.create(sandbox(annotations=BATCH)).adjust.linux.resources
    assert given.cpu.shares.value == 512
    assert (given.cpu.quota.value, given.cpu.period.value) == (50_000, 100_000)
    assert given.memory.limit.value == GIB
    assert dict(given.unified) == ({} if v1 else {"cpu.weight": "20"})
    weight = "50" if v1 else "20"
    values = {Knob.CPU_WEIGHT: weight, Knob.CPU_MAX: "50000 100000", Knob.MEMORY_MAX: str(GIB)}
    assert host.births == [Birth("/kubepods/besteffort/podu1/c1", values, {})]


def test_a_pod_is_told_of_at_its_birth() -> None:
    host = Host()
    asked = PodRequest(pod=sandbox(annotations=BATCH))
    assert host.plugin.handle("RunPodSandbox", asked.SerializeToString()) == b""
    (birth,) = host.births
    assert birth.path == "/kubepods/besteffort/podu1"
    assert birth.values[Knob.CPU_MAX] == "50000 100000"


PLACED = {ANNOTATION_RESOURCE_STATUS: '{"cpuset": "2-3"}'}
PINNED = PodTable(
    [PodFacts("default/web", QoSClass.LSR, annotations=PLACED, requests={CPU: 2000}, uid="u1", kube_qos="Guaranteed")],
    generation=1,
)


def test_cpus_of_its_own() -> None:
    pod = sandbox(qos="LSR", parent="/kubepods/podu1", annotations=PLACED)
    assert Host(pods=PINNED).create(pod).adjust.linux.resources.cpu.cpus == "2-3"


def test_what_the_scheduler_gave_counts_as_the_table_has_it() -> None:
    """A sandbox's annotations are the word of any client of the runtime, and no amount bounds them."""
    forged = sandbox(qos="LSR", parent="/kubepods/podu1", annotations={ANNOTATION_RESOURCE_STATUS: '{"cpuset": "0-7"}'})
    assert Host().create(forged) == CreateContainerResponse()
    assert Host(pods=PINNED).create(forged).adjust.linux.resources.cpu.cpus == "2-3"
    unplaced = PodTable([replace(PINNED.pods[0], annotations={})], generation=1)
    assert Host(pods=unplaced).create(forged) == CreateContainerResponse()
    gpu = {ANNOTATION_DEVICE_ALLOCATED: '{"gpu": [{"minor": 7}]}'}
    node = facts.node()
    open_gates = HookRules({"GPUEnvInject": True})
    host = Host(node)
    host.plugin._rules = open_gates
    assert host.create(sandbox(qos="LS", parent="/kubepods/podu1", annotations=gpu)) == CreateContainerResponse()


def test_a_container_waits_for_its_pod_where_the_scheduler_gave_something() -> None:
    asked: list[tuple[str, float]] = []

    def await_pod(uid: str, seconds: float) -> PodTable:
        asked.append((uid, seconds))
        return PINNED if seconds else PodTable()

    host = Host(await_pod=await_pod)
    pod = sandbox(qos="LSR", parent="/kubepods/podu1", annotations=PLACED)
    host.plugin.handle("RunPodSandbox", PodRequest(pod=pod).SerializeToString())
    assert host.create(pod).adjust.linux.resources.cpu.cpus == "2-3"
    host.create(sandbox(annotations=BATCH))
    assert asked == [("u1", 0.0), ("u1", AWAIT_POD_SECONDS), ("u1", 0.0)]


def test_a_container_starts_within_its_pods_cgroup() -> None:
    host = Host(bounds=PodBounds(cpus=frozenset({3, 4}), quota_us=20_000), pods=PINNED)
    pod = sandbox(qos="LSR", parent="/kubepods/podu1", annotations=PLACED)
    assert host.create(pod).adjust.linux.resources.cpu.cpus == "3"
    host = Host(bounds=PodBounds(cpus=frozenset({3, 4}), quota_us=20_000))
    given = host.create(sandbox(annotations=BATCH)).adjust.linux.resources
    assert given.cpu.shares.value == 512
    assert not given.cpu.HasField("quota")


def test_a_best_effort_container_born_under_suppression_starts_suppressed() -> None:
    host = Host(actions={"/kubepods/besteffort/podx/c": {Knob.CPUSET_CPUS: "0-1"}})
    assert host.create(sandbox()).adjust.linux.resources.cpu.cpus == "0-1"
    assert host.births == [Birth("/kubepods/besteffort/podu1/c1", {}, {Knob.CPUSET_CPUS: "0-1"})]
    assert not host.create(sandbox(qos="LS", parent="/kubepods/burstable/podu1")).HasField("adjust")


def test_a_plain_container_is_not_touched() -> None:
    host = Host()
    assert host.create(sandbox(qos="LS", parent="/kubepods/burstable/podu1")) == CreateContainerResponse()
    assert host.births == []


def test_scores_and_groups_of_class_settings() -> None:
    configured = facts.strategies(
        {"OOMScoreAdj": True, "Resctrl": True}, resctrl_qos={"lsClass": {"resctrlQOS": {"enable": True}}}
    )
    own = {ANNOTATION_OOM_SCORE_ADJ: "300", ANNOTATION_RESCTRL: '{"llc": {"schemata": {"percent": 60}}}'}
    host = Host(facts.node(strategies=configured, cache=CacheControl(0x7FF)))
    given = host.create(sandbox(qos="LS", annotations=own)).adjust.linux
    assert given.oom_score_adj.value == 300
    assert given.rdt.clos_id.value == "koordlet-u1"


def test_an_update_of_the_kubelet_keeps_what_the_rules_say() -> None:
    asked = UpdateContainerRequest(pod=sandbox(annotations=BATCH), container=container())
    asked.linux_resources.cpu.shares.value = 2
    answer = UpdateContainerResponse.FromString(
        Host().plugin.handle("UpdateContainer", asked.SerializeToString()) or b""
    )
    (changed,) = answer.update
    assert changed.container_id == "c1"
    assert changed.linux.resources.cpu.shares.value == 512
    plain = UpdateContainerRequest(pod=sandbox(qos="LS"), container=container())
    assert Host().plugin.handle("UpdateContainer", plain.SerializeToString()) == b""


@pytest.mark.parametrize("method", ["Configure", "Synchronize", "RunPodSandbox", "CreateContainer", "UpdateContainer"])
def test_no_answer_is_ever_an_error(method: str) -> None:
    host = Host()
    answer = host.plugin.handle(method, b"\xff\xff\xff\xff")
    assert answer is not None
    assert host.plugin.failures[method] == 1
    if method == "Configure":
        assert ConfigureResponse.FromString(answer).events


@pytest.mark.parametrize("method", ["StopContainer", "RemovePodSandbox", "Shutdown", "StateChange", "FromTheFuture"])
def test_events_that_need_no_answer(method: str) -> None:
    assert Host().plugin.handle(method, b"") == b""


def test_a_failing_reader_costs_the_adjustment_not_the_container() -> None:
    host = Host()
    host.plugin._bounds_of = lambda _path: 1 / 0  # type: ignore[assignment, return-value]
    assert host.create(sandbox(annotations=BATCH)) == CreateContainerResponse()
    assert host.plugin.failures["CreateContainer"] == 1


def test_problems_are_kept_by_name_and_bounded() -> None:
    host = Host()
    host.create(sandbox(annotations={ANNOTATION_EXTENDED_RESOURCE_SPEC: "{"}))
    assert list(host.plugin.problems) == ["default/web/main/batch_resource"]
    for number in range(1500):
        pod = sandbox(annotations={ANNOTATION_EXTENDED_RESOURCE_SPEC: "{"})
        pod.name = f"web-{number}"
        host.create(pod)
    assert len(host.plugin.problems) < 1100


def test_the_table_of_pods_is_used_where_it_knows_the_pod() -> None:
    amounts = {BATCH_CPU: 250}
    known = facts.pod("BE", replace(facts.container(), requests=amounts, limits=amounts))
    given = Host(pods=PodTable([known], generation=1)).create(sandbox()).adjust.linux.resources
    assert given.cpu.quota.value == 25_000


def test_environment_mounts_and_devices() -> None:
    resources = ContainerResources(
        env={"A": "1"}, mounts=(Mount("/lib", "/lib", read_only=True),), devices=(DeviceNode("/dev/x", 10, 5),)
    )
    adjust = adjustment(resources, LinuxResources(), v1=True)
    assert adjust is not None
    assert [(item.key, item.value) for item in adjust.env] == [("A", "1")]
    assert list(adjust.mounts[0].options) == ["rbind", "ro"]
    (device,) = adjust.linux.devices
    assert (device.path, device.type, device.major, device.minor) == ("/dev/x", "c", 10, 5)


def test_an_unlimited_amount_removes_only_a_limit_that_was_asked_for() -> None:
    unlimited = ContainerResources(cpu_quota_us=-1, memory_limit_bytes=-1)
    assert adjustment(unlimited, LinuxResources(), v1=True) is None
    asked = LinuxResources()
    asked.cpu.quota.value, asked.memory.limit.value = 100_000, GIB
    adjust = adjustment(unlimited, asked, v1=True)
    assert adjust is not None
    assert (adjust.linux.resources.cpu.quota.value, adjust.linux.resources.memory.limit.value) == (-1, -1)
