"""The agent's sink of its cluster against the twin: a NodeSLO that comes, changes, breaks and goes."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from api.crds import NODE_METRIC, NODE_SLO, NodeMetric
from api.intents import Knob, Setting
from api.pod_actions import PodAction
from api.qos import QoSClass
from cluster import EVENTS, NODES, Client, Key, custom, merge_patch
from cluster.twin import Twin
from koordlet.agent.sinks import Sink
from koordlet.config import AgentSettings, EnforcerSettings, StrategiesSettings
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.control_loop import ControlLoop
from koordlet.control.reports import ControlReports
from koordlet.control.strategy_runner import ANSWER_SECONDS, StrategyRunner, open_strategies
from koordlet.host.knobs.knobs import Knobs
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import PodTable
from koordlet.kube.settings import ClusterSettings
from koordlet.outputs.cluster_links import ClusterLinks, links_of
from koordlet.outputs.cluster_sink import open_cluster
from koordlet.prediction.settings import PredictionSettings
from koordlet.response.policy import ResponsePolicy
from koordlet.response.settings import ResponseSettings
from tests.koordlet.control.test_runtime_hooks import BATCH as BATCH_POD
from tests.koordlet.control.test_runtime_hooks import CONTAINER, NRI_OFF, PATHS
from tests.koordlet.control.test_runtime_hooks import Node as HookedNode
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.kube.test_verdict_entries import BATCH, cgroup, pod, table
from tests.koordlet.kube.ticks import GIB, Node
from tests.trees import make_tree
from tests.waiting import wait_for

SLOS, METRICS = custom(NODE_SLO), custom(NODE_METRIC)
APP = "/host-latency-sensitive/proxy"


class FakeAgent:
    """What the sink needs of an agent."""

    def __init__(self) -> None:
        self.lost: Counter[str] = Counter()
        self.applications: dict[str, HostApplicationGroup] = {}

    def follow_applications(self, applications: dict[str, HostApplicationGroup]) -> None:
        self.applications = dict(applications)


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        running.serve(METRICS)
        running.serve(SLOS)
        running.load(NODES, [{"metadata": {"name": "n1"}}])
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[Client]:
    with twin.client() as opened:
        yield opened


@pytest.fixture
def strategies() -> StrategyRunner:
    made = open_strategies(StrategiesSettings(), "koordlet.toml", live=True)
    assert made is not None
    return made


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def links(strategies: StrategyRunner) -> ClusterLinks:
    return ClusterLinks(strategies=strategies, pods=lambda: table(pod("batch", BATCH)))


@pytest.fixture
def sink(twin: Twin, agent: FakeAgent, links: ClusterLinks, tmp_path: Path) -> Iterator[Sink]:
    with ExitStack() as stack:
        yield opened(stack, twin.url, agent, links, tmp_path)


def opened(stack: ExitStack, url: str, agent: FakeAgent, links: ClusterLinks, directory: Path) -> Sink:
    """The sink of an agent with its state in this directory."""
    config = directory / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    config.write_text(yaml.safe_dump(document))
    settings = AgentSettings(
        cluster=ClusterSettings(enabled=True, kubeconfig=str(config), node_name="n1", first_report_seconds=0.0),
        prediction=PredictionSettings(enabled=False),
        enforcer=EnforcerSettings(state_dir=str(directory)),
    )
    return open_cluster(stack, agent, None, settings, links)  # type: ignore[arg-type]


def until(sink: Sink, node: Node, condition: Any) -> None:
    """Tick until the condition holds."""

    def met() -> Any:
        sink(node.tick())
        return condition()

    wait_for(met)


def test_an_agent_that_starts_while_the_api_server_is_away_follows_what_it_followed_last(
    twin: Twin, client: Client, agent: FakeAgent, tmp_path: Path
) -> None:
    def started(stack: ExitStack, url: str) -> tuple[Sink, StrategyRunner]:
        made = open_strategies(StrategiesSettings(), "koordlet.toml", live=True)
        assert made is not None
        return opened(stack, url, agent, ClusterLinks(strategies=made), tmp_path), made

    node = Node({"/x": 1.0}, {})
    twin.load(SLOS, [slo(resourceUsedThresholdWithBE={"enable": True})])
    with ExitStack() as stack:
        sink, first = started(stack, twin.url)
        until(sink, node, lambda: first.strategies["cpu_suppress"].settings.enable)
        client.patch(SLOS, Key("", "n1"), merge_patch({"spec": {"cpuBurstStrategy": {"policy": "no such"}}}))
        until(sink, node, lambda: agent.lost["cluster.node_slo"])
    assert (tmp_path / "node-slo.json").stat().st_mode & 0o777 == 0o600
    with ExitStack() as stack:
        sink, second = started(stack, "http://127.0.0.1:1")
        assert "cpu_suppress" in second.silent, "before the first tick what an earlier run left stays"
        sink(node.tick())
        assert second.is_asked
        assert second.strategies["cpu_suppress"].settings.enable
        assert second.strategies["cpu_burst"].settings.policy != "no such"
    client.delete(SLOS, Key("", "n1"))
    with ExitStack() as stack:
        sink, third = started(stack, twin.url)
        until(sink, node, lambda: not third.is_asked)
        assert third.silent == frozenset()
        wait_for(lambda: not (tmp_path / "node-slo.json").exists())


@pytest.mark.parametrize("is_away", [False, True], ids=["answers", "away"])
def test_nothing_is_set_at_the_start_that_the_node_slo_takes_back(
    twin: Twin, strategies: StrategyRunner, agent: FakeAgent, tmp_path: Path, is_away: bool
) -> None:
    """A batch pod has its quota, but where the NodeSLO has one quota for all."""
    host = FakeHost(tmp_path / "host")
    make_tree(host.root, {"sys/devices/system/cpu/online": "0-7\n"})
    for path in PATHS.values():
        host.make(path)
    capabilities = CapabilityReader(host.tree, Knobs(host.tree), "/agent")
    control = ControlLoop(ResponsePolicy(ResponseSettings()), host.enforcer(), capabilities, strategies=strategies)
    on_node = HookedNode(host, control, AgentSettings(enforcer=host.settings(), nri=NRI_OFF))
    on_node.table = PodTable([BATCH_POD], generation=1)
    twin.load(SLOS, [slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})])
    quotas: list[str] = []
    node = Node({"/x": 1.0}, {})
    with ExitStack() as stack:
        hooks = on_node.open()
        stack.callback(control.close)
        stack.callback(hooks.close)
        sink = opened(
            stack, "http://127.0.0.1:1" if is_away else twin.url, agent, ClusterLinks(strategies=strategies), tmp_path
        )

        def asked() -> bool:
            tick = node.tick()
            on_node.tick(tick.window.last.monotonic_ns / 1e9)
            quotas.append(host.text(CONTAINER, "cpu.max"))
            sink(tick)
            return hooks.silent == ()

        wait_for(asked)
    if is_away:
        assert quotas == ["max 100000"] * round(ANSWER_SECONDS) + ["150000 100000"]
    else:
        assert set(quotas) == {"max 100000"}


def slo(**spec: object) -> dict[str, object]:
    return {"metadata": {"name": "n1"}, "spec": spec}


def test_strategies_follow_the_object_without_a_restart(
    twin: Twin, client: Client, sink: Sink, strategies: StrategyRunner, agent: FakeAgent
) -> None:
    node = Node({"/x": 1.0}, {})
    sink(node.tick())
    assert not strategies.is_asked
    twin.load(SLOS, [slo(resourceUsedThresholdWithBE={"enable": True}), {"metadata": {"name": "other"}, "spec": {}}])
    until(sink, node, lambda: strategies.strategies["cpu_suppress"].settings.enable)
    kept = strategies.strategies["cpu_suppress"]
    client.patch(SLOS, Key("", "n1"), merge_patch({"spec": {"cpuBurstStrategy": {"policy": "auto"}}}))
    until(sink, node, lambda: strategies.strategies["cpu_burst"].settings.policy == "auto")
    assert strategies.strategies["cpu_suppress"] is kept, "what did not change keeps its memory"
    client.delete(SLOS, Key("", "n1"))
    until(sink, node, lambda: not strategies.is_asked)
    assert not strategies.strategies["cpu_suppress"].settings.enable
    assert agent.lost["cluster.node_slo"] == 0


def test_a_malformed_object_keeps_what_was_and_names_the_field_on_the_node(
    twin: Twin, client: Client, sink: Sink, strategies: StrategyRunner, agent: FakeAgent, caplog: Any
) -> None:
    node = Node({"/x": 1.0}, {})
    good = {"enable": True, "cpuSuppressThresholdPercent": 50}
    twin.load(SLOS, [slo(resourceUsedThresholdWithBE=good, hostApplications=[{"name": "proxy", "qos": "LS"}])])
    until(sink, node, lambda: APP in agent.applications)
    bad = {"cpuSuppressThresholdPercent": 5000}
    patch = {
        "resourceUsedThresholdWithBE": bad,
        "hostApplications": [{"qos": "LS"}],
        "cpuBurstStrategy": {"policy": "auto"},
    }
    client.patch(SLOS.of(dict), Key("", "n1"), merge_patch({"spec": patch}))
    until(sink, node, lambda: strategies.strategies["cpu_burst"].settings.policy == "auto")
    assert strategies.strategies["cpu_suppress"].settings.threshold_percent == 50
    assert APP in agent.applications
    assert agent.lost["cluster.node_slo"] >= 2
    assert "cpuSuppressThresholdPercent" in caplog.text
    assert "hostApplications" in caplog.text
    wait_for(lambda: len(twin.objects(EVENTS)) >= 2)
    events = list(twin.objects(EVENTS).values())
    assert {each["regarding"]["kind"] for each in events} == {"Node"}
    assert {each["reason"] for each in events} == {"NodeSLORefused"}
    assert any("cpuSuppressThresholdPercent" in each["note"] for each in events)


def test_host_applications_get_their_class_and_are_reported(twin: Twin, sink: Sink, agent: FakeAgent) -> None:
    node = Node({APP: 0.25, "/x": 1.0}, {APP: 1.0 * GIB})
    twin.load(SLOS, [slo(hostApplications=[{"name": "proxy", "qos": "LS", "priority": "koord-prod"}])])
    until(sink, node, lambda: APP in agent.applications)
    assert agent.applications == {APP: HostApplicationGroup("proxy", QoSClass.LS, "koord-prod")}

    def reported() -> Any:
        document = twin.objects(METRICS).get(Key("", "n1"), {})
        return msgspec.convert(document, NodeMetric).status.host_application_metric

    until(sink, node, reported)
    (usage,) = reported()
    assert (usage.name, usage.qos, usage.priority, usage.usage.resources["cpu"]) == (
        "proxy",
        "LS",
        "koord-prod",
        "250m",
    )


def test_taints_and_limits_reach_the_cluster(twin: Twin, sink: Sink, links: ClusterLinks) -> None:
    path = cgroup(BATCH)
    node = Node({path: 1.0}, {})
    wanted = Setting(
        strategy="watermarks",
        target="node.koordinator.sh/closed",
        knob=Knob.NODE_TAINT,
        value="cpu:NoSchedule",
        reason="full",
    )
    links.reports.take_taints([wanted], (), 0.0, 1_700_000_000.0)
    until(sink, node, lambda: (twin.objects(METRICS).get(Key("", "n1"), {}).get("status") or {}).get("extensions"))
    (taint,) = twin.objects(METRICS)[Key("", "n1")]["status"]["extensions"]["wantedTaints"]
    assert (taint["key"], taint["value"], taint["reason"]) == ("node.koordinator.sh/closed", "cpu", "full")

    def limited() -> Any:
        links.reports._actions.append(PodAction(path, "cpu.max 50000 100000", "response", "because", 1.0))
        return twin.objects(EVENTS)

    until(sink, node, limited)
    (event,) = twin.objects(EVENTS).values()
    assert (event["reason"], event["regarding"]["name"]) == ("Limited", "batch")


@pytest.mark.parametrize(
    ("enforcer", "travels"),
    [
        pytest.param({"enabled": True, "strategies": ("*",)}, True, id="acting"),
        pytest.param({"enabled": True, "strategies": ("response",)}, False, id="a strategy that may not act"),
        pytest.param({"enabled": True, "dry_run": True, "strategies": ("*",)}, False, id="dry run"),
        pytest.param({}, False, id="observing"),
    ],
)
def test_taints_travel_only_where_the_agent_acts(enforcer: dict[str, Any], travels: bool) -> None:
    settings = AgentSettings()
    settings = msgspec.structs.replace(settings, enforcer=msgspec.structs.replace(settings.enforcer, **enforcer))
    wanted = Setting(strategy="watermarks", target="k", knob=Knob.NODE_TAINT, value="v:NoSchedule", reason="")
    reports: ControlReports = links_of(settings, None, None).reports
    rest, _ = reports.take_taints([wanted], (), 0.0, 0.0)
    assert bool(reports.taints()) == travels
    assert rest == ([] if travels else [wanted])
