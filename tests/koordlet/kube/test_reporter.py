"""Reports against the twin over HTTP, with a server that fails, forgets and stays away."""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from api.crds import NODE_METRIC, NodeMetric
from api.kube.interference import WantedTaint
from api.kube.objects import Node as NodeDocument
from api.kube.objects import NodeStatus, Pod
from api.verdicts import Verdict, VerdictState
from cluster import EVENTS, NODES, PODS, Backoff, Client, Key, Query, custom
from cluster.twin import Fault, FaultType, Twin
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.kube.reporter import PACE, Reporter, node_name
from koordlet.kube.settings import ClusterSettings
from koordlet.prediction.settings import PredictionSettings
from scheduler.interference.verdicts import NodeVerdict, from_metric
from tests.koordlet.kube.test_verdict_entries import BATCH, WEB, by, cgroup, pod, table
from tests.koordlet.kube.ticks import GIB, Node
from tests.waiting import wait_for

RETRY = Backoff(initial_seconds=0.05, maximum_seconds=0.1)
SETTINGS = ClusterSettings(enabled=True, first_report_seconds=0.0)
METRICS = custom(NODE_METRIC)


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        running.serve(METRICS)
        allocatable = {"cpu": "16", "memory": "32Gi"}
        running.load(
            NODES, [{"metadata": {"name": name}, "status": {"allocatable": allocatable}} for name in ("n1", "n2")]
        )
        for name, uid, node in (("web-1", WEB, "n1"), ("batch", BATCH, "n1"), ("far", "f" * 36, "n2")):
            document = msgspec.to_builtins(pod(name, uid)) | {"spec": {"nodeName": node, "containers": []}}
            running.load(PODS, [document])
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[Client]:
    with twin.client(PACE) as opened:
        yield opened


def opened(client: Client, settings: ClusterSettings = SETTINGS, **given: Any) -> Reporter:
    known = (
        table(*(each.value for each in client.list(PODS.of(Pod), Query(fields="spec.nodeName=n1")).items if each.value))
        if "pods" not in given
        else None
    )
    given.setdefault("pods", lambda: known)
    running = Reporter(client, settings, "n1", retry=RETRY, random=Random(1), **given)
    running.start()
    return running


@pytest.fixture
def reporter(client: Client) -> Iterator[Reporter]:
    running = opened(client)
    yield running
    running.close()


def uid_of(twin: Twin, name: str) -> str:
    uid: str = twin.objects(PODS)[Key("shop", name)]["metadata"]["uid"]
    return uid


def node_of(twin: Twin) -> Node:
    cores, memory = {}, {}
    for name in ("web-1", "batch"):
        path = cgroup(uid_of(twin, name))
        parent = path.rpartition("/")[0]
        cores |= {parent: 0.0, path: 0.5}
        memory[parent] = 1.0 * GIB
    return Node(cores, memory)


def metric(twin: Twin, node: str = "n1") -> NodeMetric | None:
    document = twin.objects(METRICS).get(Key("", node))
    return None if document is None else msgspec.convert(document, NodeMetric)


def stated(twin: Twin) -> tuple[NodeVerdict, ...]:
    found = metric(twin)
    return from_metric(found) if found else ()


def on_web(twin: Twin, **given: object) -> Verdict:
    return by(cgroup(uid_of(twin, "batch")), victim=cgroup(uid_of(twin, "web-1")), **given)


def test_usage_is_reported_in_a_metric_that_is_made_where_it_is_missing(twin: Twin, reporter: Reporter) -> None:
    node = node_of(twin)
    for _ in range(3):
        reporter.update(node.tick())
    wait_for(lambda: reporter.metric.writes == 1)
    found = metric(twin)
    assert found is not None
    assert found.status.node_metric is not None
    assert found.status.node_metric.node_usage.resources["cpu"] == "2"
    usages = {each.name: each.pod_usage.resources["cpu"] for each in found.status.pods_metric}
    assert usages == {"batch": "500m", "web-1": "500m"}
    assert metric(twin, "n2") is None


def test_the_scheduler_reads_the_verdicts_and_they_go_when_nothing_stands(twin: Twin, reporter: Reporter) -> None:
    node, verdict = node_of(twin), on_web(twin, lost=0.4)
    reporter.update(node.tick(opened=[verdict], changes=[verdict]))
    wait_for(lambda: stated(twin))
    (read,) = stated(twin)
    assert (read.resource, read.victim, read.culprits, read.lost) == ("cpu", "shop/web-1", ("shop/batch",), 0.4)
    assert read.until_seconds == pytest.approx(1_700_000_001 + 180, abs=1)
    closed = msgspec.structs.replace(verdict, state=VerdictState.CLOSE)
    reporter.update(node.tick(10.0, changes=[closed]))
    wait_for(lambda: stated(twin) == ())


def test_ticks_in_which_only_amounts_change_write_seldom(twin: Twin, reporter: Reporter) -> None:
    node = node_of(twin)
    for second in range(200):
        reporter.update(node.tick(opened=[on_web(twin, lost=0.4 + second / 1000)]))
        if second % 20 == 0:
            time.sleep(0.01)
    reporter.close()
    assert reporter.metric.requests <= 2 + 4 + 1, "made once, every 54 to 60 s, and at the end"


def test_wanted_taints_travel_and_are_urgent(twin: Twin, reporter: Reporter) -> None:
    node = node_of(twin)
    reporter.update(node.tick())
    taint = WantedTaint(key="node.koordinator.sh/eviction-cooldown", value="evicted", reason="2 pods were evicted")
    reporter.update(node.tick(6.0), [taint])
    wait_for(lambda: (found := metric(twin)) and found.status.extensions)
    found = metric(twin)
    assert found is not None
    assert found.status.extensions is not None
    assert found.status.extensions["wantedTaints"][0]["reason"] == "2 pods were evicted"


def test_leaving_takes_the_verdicts_back_and_leaves_the_usage(twin: Twin, client: Client) -> None:
    running = opened(client)
    verdict = on_web(twin)
    running.update(node_of(twin).tick(opened=[verdict], changes=[verdict]))
    wait_for(lambda: stated(twin))
    running.close()
    running.close()
    assert stated(twin) == ()
    found = metric(twin)
    assert found is not None
    assert found.status.pods_metric


def test_the_interval_is_that_of_the_objects_spec(twin: Twin, reporter: Reporter) -> None:
    policy = {"reportIntervalSeconds": 600, "aggregateDurationSeconds": 60}
    document = {"metadata": {"name": "n1"}, "spec": {"metricCollectPolicy": policy}}
    twin.load(METRICS, [document])
    node = node_of(twin)
    reporter.update(node.tick())
    wait_for(lambda: reporter.metric.writes == 1)
    for _ in range(300):
        reporter.update(node.tick())
    wait_for(lambda: reporter.metric.writes >= 2, timeout_seconds=5.0)  # the one that did not know the spec yet
    time.sleep(0.05)
    assert reporter.metric.writes <= 2
    found = metric(twin)
    assert found is not None
    assert found.spec.metric_collect_policy is not None
    assert found.spec.metric_collect_policy.report_interval_seconds == 600


def test_events_of_the_same_cause_are_one_series_on_victim_and_culprit(twin: Twin, reporter: Reporter) -> None:
    node = node_of(twin)
    for number in range(4):
        verdict = on_web(twin, lost=0.3 + number / 10, time=1000.0 + 31 * number)
        reporter.update(node.tick(opened=[verdict], changes=[verdict]))
    wait_for(lambda: reporter.counters()["events_sent"] == 8)
    events = {each["regarding"]["name"]: each for each in twin.objects(EVENTS).values()}
    assert {name: each["series"]["count"] for name, each in events.items()} == {"web-1": 4, "batch": 4}
    assert events["web-1"]["regarding"]["uid"] == uid_of(twin, "web-1")
    assert events["web-1"]["related"]["name"] == "batch"
    assert events["web-1"]["reportingController"] == "koordlet"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(FaultType.ERROR, verbs=frozenset({"patch"}), plural="nodemetrics", status=503), id="503"),
        pytest.param(Fault(FaultType.ERROR, verbs=frozenset({"patch"}), plural="nodemetrics", status=403), id="403"),
    ],
)
def test_a_server_that_fails_is_asked_again_until_the_newest_state_is_there(
    twin: Twin, reporter: Reporter, fault: Fault
) -> None:
    twin.faults.add(fault)
    node = node_of(twin)
    reporter.update(node.tick(opened=[on_web(twin)]))
    wait_for(lambda: reporter.counters()["report_failures"] >= 2)
    reporter.update(node.tick(10.0, opened=[on_web(twin, resource="memory")]))
    twin.faults.clear()
    wait_for(lambda: [each.resource for each in stated(twin)] == ["memory"])


def test_a_conflict_is_tried_again_at_once(twin: Twin, reporter: Reporter) -> None:
    twin.faults.add(Fault(FaultType.ERROR, verbs=frozenset({"patch"}), plural="nodemetrics", status=409, times=2))
    reporter.update(node_of(twin).tick())
    wait_for(lambda: reporter.metric.writes == 1)
    assert reporter.metric.failures == 0


def test_a_lost_answer_does_no_harm(twin: Twin, reporter: Reporter) -> None:
    drop = Fault(FaultType.DROP, verbs=frozenset({"patch"}), plural="nodemetrics", times=2, after=True)
    twin.load(METRICS, [{"metadata": {"name": "n1"}}])
    twin.faults.add(drop)
    reporter.update(node_of(twin).tick(opened=[on_web(twin)]))
    wait_for(lambda: reporter.metric.writes >= 1)
    assert len(stated(twin)) == 1


def test_a_dead_server_costs_counted_failures_and_no_time_of_the_tick(client: Client, twin: Twin) -> None:
    running = opened(client)
    verdict, node = on_web(twin), node_of(twin)
    ticks = [node.tick(31.0, opened=[verdict], changes=[verdict]) for _ in range(50)]
    twin.stop()
    started = time.thread_time()
    for tick in ticks:
        running.update(tick)
    assert time.thread_time() - started < 1.0
    wait_for(lambda: running.counters()["report_failures"] > 0)
    wait_for(lambda: running.counters()["events_lost"] > 0)
    running.close(timeout_seconds=0.1)


def test_where_reports_are_off_nothing_is_written(client: Client, twin: Twin) -> None:
    running = opened(client, ClusterSettings(enabled=True, node_metric=False))
    running.update(node_of(twin).tick(opened=[on_web(twin)]))
    running.close()
    assert metric(twin) is None


def test_a_metric_that_may_not_be_made_is_waited_for(client: Client, twin: Twin) -> None:
    running = opened(client, ClusterSettings(enabled=True, create_node_metric=False, first_report_seconds=0.0))
    running.update(node_of(twin).tick())
    wait_for(lambda: running.metric.failures >= 2)
    twin.load(METRICS, [{"metadata": {"name": "n1"}}])
    wait_for(lambda: running.metric.writes == 1)
    running.close()


def test_peaks_are_learned_kept_and_reported(client: Client, twin: Twin, tmp_path: Any) -> None:
    uids = [uid_of(twin, name) for name in ("web-1", "batch")]
    requests = {"cpu": 2000, "memory": 4 << 30}
    pods = PodTable(
        [
            PodFacts(f"shop/{uid[:4]}", uid=uid, requests=requests, created_seconds=0.0, kube_qos="Burstable")
            for uid in uids
        ],
        generation=1,
    )
    prediction = PredictionSettings(directory=str(tmp_path / "peaks"))
    running = opened(client, pods=lambda: pods, prediction=prediction)
    assert running.node.informer is not None
    assert running.node.informer.wait_synced(20.0)
    node = node_of(twin)
    for _ in range(130):
        running.update(node.tick())
    wait_for(lambda: (found := metric(twin)) and found.status.prod_reclaimable_metric)
    found = metric(twin)
    assert found is not None
    assert found.status.prod_reclaimable_metric is not None
    # Two pods request 2 cores each and use 0.5, the system uses 1: 4 cores less 1.1 times the peaks of both, and of the
    # pods without a class, of which there are none; the upper end of its first bucket counts.
    peak = 1035 + 1035 + 25
    assert found.status.prod_reclaimable_metric.resource.resources["cpu"] == f"{4000 - int(1.1 * peak)}m"
    running.close()
    assert {path.name for path in (tmp_path / "peaks").iterdir()} >= {*uids, "__node__", "__node-sys__"}
    again = opened(client, pods=lambda: pods, prediction=prediction)
    assert again._peaks is not None
    assert len(again._peaks.models) >= 4
    again.close()


def test_one_watch_of_the_node_serves_all(client: Client, tmp_path: Any) -> None:
    node = NodeDocument(status=NodeStatus(allocatable={"cpu": "3"}))
    running = opened(client, prediction=PredictionSettings(directory=str(tmp_path)), node_of=lambda: node)
    assert running.node.informer is None
    assert running.node.allocatable() == {"cpu": 3000}
    running.close()


def test_the_nodes_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "from-env")
    assert node_name(ClusterSettings(node_name="given")) == "given"
    assert node_name(ClusterSettings()) == "from-env"
