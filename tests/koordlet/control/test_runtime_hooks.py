"""Runtime hooks of a running agent: protocol state reaches the cgroups and stays; newborn containers are widened."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import msgspec
import pytest

from api.intents import Knob, Setting
from api.protocol import BATCH_CPU, BATCH_MEMORY
from api.qos import QoSClass
from api.settings import SettingsError
from api.window import Window
from koordlet.config import AgentSettings
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.control_loop import ControlLoop, with_enforcement
from koordlet.control.runtime_hooks import ASK_SECONDS, RuntimeHooks, open_runtime_hooks
from koordlet.control.strategy_runner import ANSWER_SECONDS, StrategyRunner
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.hooks.settings import HooksSettings
from koordlet.host.knobs.knobs import Knobs
from koordlet.identity.pods import NO_PODS, PodContainer, PodFacts, PodTable
from koordlet.nri.settings import NriSettings
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.settings import HookServiceSettings
from koordlet.tick import Tick
from tests.frames import make_frame
from tests.koordlet.enforcer.hosts import FakeHost, want
from tests.koordlet.hooks.facts import strategies
from tests.koordlet.nri.runtime import Runtime
from tests.trees import make_tree
from tests.waiting import wait_for

UID = "12345678-1234-1234-1234-123456789012"
ID = "c" * 64
POD = f"/kubepods/besteffort/pod{UID}"
CONTAINER = f"{POD}/{ID}"
PATHS = {1: "/", 2: "/kubepods", 3: "/kubepods/besteffort", 4: POD, 5: CONTAINER}
AMOUNTS = {BATCH_CPU: 1500, BATCH_MEMORY: 1 << 30}
BATCH = PodFacts(
    "shop/batch",
    QoSClass.BE,
    uid=UID,
    cgroup_uid=UID,
    kube_qos="BestEffort",
    containers=(PodContainer("main", ID, requests=AMOUNTS, limits=AMOUNTS),),
)
NRI_OFF = NriSettings(enabled="off")


@dataclass
class Node:
    """A host of files with an agent's control loop; `table` is what the source of pods says."""

    host: FakeHost
    control: ControlLoop
    settings: AgentSettings
    table: PodTable = NO_PODS
    opened: list[RuntimeHooks] = field(default_factory=list)

    def open(self, *, in_cluster: bool = True, **changes: object) -> RuntimeHooks:
        settings = msgspec.structs.replace(self.settings, **changes)
        hooks = open_runtime_hooks(settings, self.host.tree, self.control, lambda: self.table, in_cluster=in_cluster)
        self.opened.append(hooks)
        return hooks

    def at(self, end_seconds: float) -> Tick:
        empty = {"cpustat.usage_ns": [0] * len(PATHS)}
        frames = [make_frame(second, PATHS, empty) for second in (end_seconds - 1, end_seconds)]
        return Tick.of(Window(frames))

    def tick(self, end_seconds: float = 2.0) -> None:
        self.control.step(self.at(end_seconds))


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    host = FakeHost(tmp_path, version=request.param)
    make_tree(tmp_path, {"sys/devices/system/cpu/online": "0-7\n"})
    for path in PATHS.values():
        host.make(path)
    control = ControlLoop(
        ResponsePolicy(ResponseSettings()), host.enforcer(), CapabilityReader(host.tree, Knobs(host.tree), "/agent")
    )
    made = Node(host, control, AgentSettings(enforcer=host.settings(), nri=NRI_OFF))
    yield made
    for hooks in made.opened:
        hooks.close()
    control.close()


def found(node: Node, path: str) -> tuple[str, str]:
    if node.host.version == 1:
        return node.host.text(path, "cpu.shares"), node.host.text(path, "cpu.cfs_quota_us")
    return node.host.text(path, "cpu.weight"), node.host.text(path, "cpu.max")


def test_a_batch_pod_gets_its_amounts_and_keeps_them(node: Node) -> None:
    node.open()
    node.table = PodTable([BATCH], generation=1)
    node.tick()
    expected = ("1536", "150000") if node.host.version == 1 else ("59", "150000 100000")
    assert (found(node, POD), found(node, CONTAINER)) == (expected, expected)
    node.control.close()
    assert found(node, CONTAINER) == expected


def test_a_pod_keeps_its_quota_where_the_quota_for_all_may_not_be_set(node: Node) -> None:
    node.control.strategies = StrategyRunner(strategies(cpu_suppress={"enable": True, "cpuSuppressPolicy": "cfsQuota"}))
    allowed = msgspec.structs.replace(node.settings.enforcer, strategies=("runtime_hooks",))
    node.control.enforcer.follow(allowed)
    node.open()
    node.table = PodTable([BATCH], generation=1)
    node.tick()
    assert found(node, CONTAINER)[1].startswith("150000")
    node.control.enforcer.follow(node.settings.enforcer)
    node.tick()
    assert found(node, CONTAINER)[1] in ("-1", "max 100000")


def test_nothing_is_asked_before_pods_are_known(node: Node) -> None:
    hooks = node.open()
    before = found(node, POD)
    node.tick()
    assert hooks.silent == ("runtime_hooks",)
    assert found(node, POD) == before
    node.table = PodTable([BATCH], generation=1)
    node.tick()
    assert hooks.silent == ()


def test_it_is_silent_until_the_node_slo_is_heard_of(node: Node) -> None:
    node.control.strategies = StrategyRunner(strategies())
    node.control.strategies.await_answer()
    hooks = node.open()
    node.table = PodTable([BATCH], generation=1)
    before = found(node, CONTAINER)
    for seconds in (2.0, 3.0):
        node.tick(seconds)
        assert (hooks.silent, found(node, CONTAINER)) == (("runtime_hooks",), before)
    node.control.strategies.answered()
    node.tick(4.0)
    assert hooks.silent == ()
    assert found(node, CONTAINER)[1].startswith("150000")


def test_it_goes_on_with_what_is_known_where_the_node_slo_is_not_heard_of(node: Node) -> None:
    node.control.strategies = StrategyRunner(strategies())
    node.control.strategies.await_answer()
    node.open()
    node.table = PodTable([BATCH], generation=1)
    before = found(node, CONTAINER)
    node.tick(2.0)
    node.tick(1.9 + ANSWER_SECONDS)
    assert found(node, CONTAINER) == before
    node.tick(2.0 + ANSWER_SECONDS)
    assert found(node, CONTAINER)[1].startswith("150000")


def test_what_an_earlier_run_left_outlasts_the_wait_for_the_node_slo(node: Node) -> None:
    state = want(Knob.CPU_WEIGHT, "59", POD, "runtime_hooks", protocol_state=True)
    action = want(Knob.CPU_MAX, "50000 100000", CONTAINER, "response", lease_seconds=30.0)
    node.control.enforcer.step([state, action])
    node.control.enforcer.close(handover_seconds=60.0)
    standing = found(node, POD), found(node, CONTAINER)
    enforcer = open_enforcer(node.settings.enforcer, node.host.tree)
    capabilities = CapabilityReader(node.host.tree, Knobs(node.host.tree), "/agent")
    node.control = ControlLoop(
        ResponsePolicy(ResponseSettings()), enforcer, capabilities, strategies=StrategyRunner(strategies())
    )
    assert node.control.strategies is not None
    node.control.strategies.await_answer()
    node.open()
    node.table = PodTable([BATCH], generation=1)
    for seconds in (2.0, 3.0):
        node.tick(seconds)
        assert (found(node, POD), found(node, CONTAINER)) == standing
    assert enforcer.active_settings().keys() == {(POD, Knob.CPU_WEIGHT), (CONTAINER, Knob.CPU_MAX)}
    node.control.strategies.answered()
    node.tick(4.0)
    assert enforcer.held_protocol_state()[CONTAINER, Knob.CPU_MAX].value == "150000 100000"
    assert found(node, CONTAINER)[1].startswith("50000"), "the action stands above it"


@pytest.mark.parametrize(
    ("in_cluster", "changes", "is_on"),
    [
        pytest.param(True, {}, True, id="cluster"),
        pytest.param(False, {}, False, id="standalone"),
        pytest.param(False, {"hooks": HooksSettings(reconcile="on")}, True, id="asked-for"),
        pytest.param(True, {"hooks": HooksSettings(reconcile="off")}, False, id="off"),
        pytest.param(True, {"enforcer": AgentSettings().enforcer}, False, id="observing"),
    ],
)
def test_it_is_on_where_a_cluster_is_enforced(
    node: Node, in_cluster: bool, changes: dict[str, object], is_on: bool
) -> None:
    assert (node.open(in_cluster=in_cluster, **changes).reconciler is not None) is is_on


def test_enforcing_allows_the_reconciler() -> None:
    assert "runtime_hooks" in with_enforcement(AgentSettings(), enforce=True).enforcer.strategies


def test_an_unknown_gate_is_refused(node: Node) -> None:
    with pytest.raises(SettingsError, match="no feature gate 'Batch'"):
        node.open(hooks=HooksSettings(features={"Batch": True}))


def test_a_container_born_under_suppression_has_the_pool_below_it(node: Node) -> None:
    hooks = node.open()
    node.table = PodTable([BATCH], generation=1)
    hooks.born_suppressed(CONTAINER)
    hooks.born_suppressed("/kubepods/besteffort/never")
    node.host.file(CONTAINER, "cpuset.cpus").write_text("0-1\n")
    node.tick()
    assert node.host.text(CONTAINER, "cpuset.cpus") == "0-7"
    for _ in range(70):
        node.tick()
    assert list(hooks._births) == [CONTAINER]


def test_settings_that_nobody_changed_are_carried_on(node: Node) -> None:
    hooks = node.open()
    node.table = PodTable([BATCH], generation=1)
    node.tick()
    assert hooks.silent == ()
    node.tick()
    assert hooks.silent == ("runtime_hooks",)
    shares = node.host.file(POD, "cpu.shares" if node.host.version == 1 else "cpu.weight")
    shares.write_text("77\n")
    node.tick(3)
    assert [(one.target, one.knob) for one in hooks.intents(node.at(3 + ASK_SECONDS)) if isinstance(one, Setting)] == [
        (POD, Knob.CPU_WEIGHT)
    ]
    assert hooks.silent == ("runtime_hooks",)
    node.table = PodTable([], generation=2)
    node.tick(3 + ASK_SECONDS)
    assert hooks.silent == ()
    assert found(node, CONTAINER) in (("1024", "-1"), ("100", "max 100000"))
    assert found(node, POD)[0] == "77"


def test_a_pod_has_its_identity_before_a_tick_sees_it(node: Node) -> None:
    late = f"/kubepods/besteffort/pod{UID.replace('1', '2')}"
    node.host.make(late)
    hooks = node.open()
    node.table = PodTable([BATCH], generation=1)
    hooks.born_with(POD, {Knob.CPU_IDLE: "1"})
    assert node.host.text(POD, "cpu.idle") == "0"  # nothing is written before the first tick
    node.tick()
    hooks.born_with(late, {Knob.CPU_IDLE: "1"})
    hooks.born_with("/kubepods/besteffort/never", {Knob.CPU_IDLE: "1"})
    assert node.host.text(late, "cpu.idle") == "1"
    assert found(node, CONTAINER) == (("1536", "150000") if node.host.version == 1 else ("59", "150000 100000"))
    for second in range(3, 6):
        node.tick(second)
        assert node.host.text(late, "cpu.idle") == "1"
    for second in range(6, 90):
        node.tick(second)
    # Neither did a tick see it, nor does a strategy ask for it.
    assert node.host.text(late, "cpu.idle") == "0"
    assert found(node, CONTAINER) == (("1536", "150000") if node.host.version == 1 else ("59", "150000 100000"))


def test_a_birth_does_not_wait_for_a_step_that_hangs(node: Node) -> None:
    late = f"/kubepods/besteffort/pod{UID.replace('1', '2')}"
    node.host.make(late)
    hooks = node.open()
    node.table = PodTable([BATCH], generation=1)
    node.tick()
    with node.control._lock:
        hooks.born_with(late, {Knob.CPU_IDLE: "1"})
        assert node.host.text(late, "cpu.idle") == "0"
    node.tick(3)
    assert node.host.text(late, "cpu.idle") == "1"


def test_the_runtime_is_answered(node: Node) -> None:
    runtime = Runtime(node.host.root / "nri.sock")
    hooks = node.open(nri=NriSettings(socket="/nri.sock", backoff_seconds=0.1))
    plugin = runtime.accept()
    assert plugin.begin()
    wait_for(lambda: node.control.hook_figures().connected == {"nri": True})
    assert node.control.hook_figures().calls["nri", "Configure"] == 1
    hooks.close()
    wait_for(lambda: plugin.trunk.recv(1) == b"")
    plugin.close()
    runtime.close()


def test_the_runtime_proxy_is_answered(node: Node) -> None:
    runtime_proxy = HookServiceSettings(enabled=True, socket="/hooks.sock", directory="/hookserver.d")
    node.table = PodTable([BATCH], generation=1)
    hooks = node.open(runtime_proxy=runtime_proxy)
    asked = pb.ContainerResourceHookRequest(
        pod_meta={"name": "batch", "namespace": "shop", "uid": UID},
        container_meta={"name": "main"},
        container_resources={"cpu_shares": 2},
        pod_cgroup_parent=POD,
    )
    with grpc.insecure_channel(f"unix:{node.host.root}/hooks.sock") as channel:
        ask = channel.unary_unary(HookType.PRE_CREATE_CONTAINER.method)
        answer = pb.ContainerResourceHookResponse.FromString(ask(asked.SerializeToString(), timeout=10))
    assert answer.container_resources.cpu_shares == 1536
    assert answer.container_resources.memory_limit_in_bytes == 1 << 30
    assert (node.host.root / "hookserver.d/koordlet.json").exists()
    hooks.close()
    assert not (node.host.root / "hookserver.d/koordlet.json").exists()


def test_an_observing_agent_answers_no_hooks(node: Node) -> None:
    runtime_proxy = HookServiceSettings(enabled=True, socket="/hooks.sock", directory="/hookserver.d")
    node.open(runtime_proxy=runtime_proxy, enforcer=AgentSettings().enforcer)
    assert not (node.host.root / "hooks.sock").exists()
