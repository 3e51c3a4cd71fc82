"""The copilot, the manager and an API server beside two ResourceManagers: shares, fail-over, silence."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

from api.kube.times import rfc3339
from cluster import NODES, PODS, Key, merge_patch
from cluster.twin import Twin, TwinSettings
from controllers.capacity.third_party import ANNOTATION_THIRD_PARTY
from controllers.kinds import CONFIG_MAP, NODE_METRIC, NODE_RESOURCE_TOPOLOGY
from controllers.plans.overcommit import Overcommit
from controllers.yarn.__main__ import main
from controllers.yarn.board import Board
from controllers.yarn.exchange import Exchange, ExchangeMetrics
from controllers.yarn.offering import Offering
from controllers.yarn.resource_managers import ResourceManagers
from controllers.yarn.settings import ClusterSettings, CopilotSettings, SharingSettings
from tests.capacity import a_node, a_pod, a_report, to_load
from tests.controllers.yarn.hadoop import Yarn, served
from tests.controllers.yarn.test_offering import CPU, MEMORY, manager
from tests.managed import CONFIG, built, check_fenced, running
from tests.waiting import wait_for

ID = "n1:45454"
COLOCATION = {
    "enable": True,
    "batchCPUThresholdPercent": 50,
    "batchMemoryThresholdPercent": 50,
    "updateTimeThresholdSeconds": 1,
}


@pytest.fixture
def yarn() -> Iterator[Yarn]:
    with served() as state:
        state.add(ID)
        yield state


@pytest.fixture
def twin() -> Iterator[Twin]:
    """One node, half of whose 100 cores and 128 GiB are batch resources."""
    with Twin(TwinSettings(termination_seconds=0.05)) as cluster:
        for kind in (NODE_METRIC, NODE_RESOURCE_TOPOLOGY):
            cluster.serve(kind)
        text = json.dumps(COLOCATION)
        meta = {"name": CONFIG.name, "namespace": CONFIG.namespace}
        cluster.load(CONFIG_MAP, [{"metadata": meta, "data": {"colocation-config": text}}])
        cluster.load(NODES, [to_load(a_node(cpu=100, memory="128Gi"))])
        cluster.load(PODS, [to_load(manager())])
        cluster.load(NODE_METRIC, [to_load(a_report(updated=rfc3339(time.time())))])
        yield cluster


@contextmanager
def copilot(
    twin: Twin, yarn: Yarn, leading: Callable[[], bool] = lambda: True, **sharing: Any
) -> Iterator[CollectorRegistry]:
    """Run copilot and manager; every change is followed at once."""
    cluster = ClusterSettings(addresses=tuple(yarn.urls), user="yarn")
    settings = CopilotSettings(clusters={"main": cluster}, sharing=SharingSettings(step_percent=0, **sharing))
    board = Board()
    registry = CollectorRegistry()
    exchange = Exchange(
        ResourceManagers("main", cluster),
        board,
        leading=leading,
        metrics=ExchangeMetrics(registry),
        poll_seconds=0.05,
        overcommit_timeout_seconds=30.0,
    )
    with ExitStack() as stack:
        stack.callback(exchange.stop)
        exchange.start()
        controllers = {"yarn": Offering(settings, board), "overcommit": built(Overcommit)}
        stack.enter_context(running(twin, controllers, leading=leading))
        yield registry


def for_pods(twin: Twin) -> tuple[int, int]:
    given = twin.objects(NODES)[Key("", "n1")]["status"]["allocatable"]
    return int(given.get(CPU, -1)), int(given.get(MEMORY, -1))


def held(twin: Twin) -> list[Any]:
    annotations = twin.objects(NODES)[Key("", "n1")]["metadata"].get("annotations", {})
    listed: list[Any] = json.loads(annotations.get(ANNOTATION_THIRD_PARTY) or "{}").get("allocations", [])
    return listed


def total(yarn: Yarn) -> tuple[int, int]:
    return yarn.nodes[ID].total


def test_batch_resources_are_shared_and_pods_take_them_back(twin: Twin, yarn: Yarn) -> None:
    left: list[tuple[int, int]] = []
    yarn.before_set = lambda: left.append(for_pods(twin))
    with copilot(twin, yarn) as registry:
        wait_for(lambda: total(yarn) == (25, 32 * 1024))
        wait_for(lambda: for_pods(twin) == (25_000, 32 << 30))
        spark = a_pod("spark", requests={CPU: 20_000, MEMORY: 24 << 30}, qos="BE")
        twin.load(PODS, [to_load(spark)])
        wait_for(lambda: total(yarn) == (15, 20 * 1024))
        wait_for(lambda: for_pods(twin) == (35_000, 44 << 30))
        with twin.client() as client:
            client.delete(PODS, Key("d", "spark"))
        wait_for(lambda: total(yarn) == (25, 32 * 1024))
        assert b'koord_yarn_copilot_reachable{cluster="main"} 1.0' in generate_latest(registry)
    assert all(each["overCommitTimeout"] == 30_000 for _, each in yarn.set)
    # At no time was YARN offered more than was withheld from pods before.
    for (_, offered), (cpu, memory) in zip(yarn.set, left, strict=True):
        assert 1000 * offered["resource"]["vCores"] + cpu <= 50_000
        assert (offered["resource"]["memory"] << 20) + memory <= 64 << 30


def test_a_fail_over_gives_back_what_the_node_manager_registers(twin: Twin, yarn: Yarn) -> None:
    yarn.nodes[ID].registered = (96, 256 * 1024)
    with copilot(twin, yarn):
        wait_for(lambda: total(yarn) == (25, 32 * 1024))
        yarn.fail_over(1)
        wait_for(lambda: total(yarn) == (25, 32 * 1024))
        assert any(number == 1 and method == "POST" for number, method, _ in yarn.asked)


def test_while_nobody_answers_nothing_is_withdrawn(twin: Twin, yarn: Yarn) -> None:
    with copilot(twin, yarn) as registry:
        wait_for(lambda: total(yarn) == (25, 32 * 1024))
        before = held(twin)
        yarn.status = 503
        wait_for(lambda: b'koord_yarn_copilot_reachable{cluster="main"} 0.0' in generate_latest(registry))
        count = len(yarn.set)
        twin.load(PODS, [to_load(a_pod("spark", requests={CPU: 20_000, MEMORY: 24 << 30}, qos="BE"))])
        asked = len(yarn.asked)
        wait_for(lambda: len(yarn.asked) > asked + 4)
        assert held(twin) == before
        assert len(yarn.set) == count
        yarn.status = 200
        wait_for(lambda: total(yarn) == (15, 20 * 1024))


def test_a_lost_node_manager_gives_its_share_back_when_its_containers_are_gone(twin: Twin, yarn: Yarn) -> None:
    with copilot(twin, yarn):
        wait_for(lambda: total(yarn) == (25, 32 * 1024))
        count = len(yarn.set)
        yarn.nodes[ID].state = "LOST"
        idle = {"name": "hadoop-yarn", "usage": {"resources": {"cpu": "0", "memory": "0"}}, "priority": "koord-batch"}
        status = {"updateTime": rfc3339(time.time()), "hostApplicationMetric": [idle]}
        with twin.client() as client:
            client.patch(NODE_METRIC, Key("", "n1"), merge_patch({"status": status}), subresource="status")
        wait_for(lambda: held(twin) == [])
        wait_for(lambda: for_pods(twin) == (50_000, 64 << 30))
        assert len(yarn.set) == count, "a lost node is told nothing"


def test_one_that_does_not_lead_asks_and_sets_nothing(twin: Twin, yarn: Yarn) -> None:
    with copilot(twin, yarn, leading=lambda: False):
        wait_for(lambda: len(yarn.asked) > 3)
    assert not yarn.set
    assert not held(twin)


CONFIG_TEXT = """
[clusters.main]
addresses = ["{}", "{}"]
user = "yarn"
"""


def invoke(twin: Twin, yarn: Yarn, tmp_path: Path, *words: str, text: str = CONFIG_TEXT) -> Any:
    file = tmp_path / "yarn.toml"
    file.write_text(text.format(*yarn.urls))
    return CliRunner().invoke(main, ["--server", twin.url, "--config", str(file), *words])


def test_plan_and_explain_change_nothing(twin: Twin, yarn: Yarn, tmp_path: Path) -> None:
    resources = {"status": {"allocatable": {CPU: "50000", MEMORY: str(64 << 30)}}}
    with twin.client() as client:
        client.patch(NODES, Key("", "n1"), merge_patch(resources), subresource="status")
    yarn.nodes[ID].total = (96, 1024)
    planned = invoke(twin, yarn, tmp_path, "plan")
    assert planned.exit_code == 0, planned.output
    assert "node n1: hadoop-yarn holds 50000 millicores" in planned.output
    assert f"main {ID}: from 96 vcores and 1024 MiB to 25 vcores" in planned.output
    explained = invoke(twin, yarn, tmp_path, "explain", "n1")
    assert f"{ID} is offered 25 vcores" in explained.output
    assert invoke(twin, yarn, tmp_path, "explain", "n2").exit_code == 1
    assert not yarn.set
    assert not held(twin)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("speed = 1", "speed", id="key"),
        pytest.param("[clusters.a]\naddresses = []", "addresses", id="no-address"),
        pytest.param("[clusters.a]\naddresses = ['rm1:8088']", "http://", id="no-scheme"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    twin: Twin, yarn: Yarn, tmp_path: Path, text: str, problem: str
) -> None:
    result = invoke(twin, yarn, tmp_path, "plan", text=text)
    assert result.exit_code == 2
    assert problem in result.output


def test_a_copilot_that_does_not_lead_sends_neither_writes_nor_events(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_fenced(monkeypatch, main, twin)
