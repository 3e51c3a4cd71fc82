"""The agent's hand against the twin over HTTP, with a server that fails, forgets and stays away."""

import time
from collections.abc import Iterator

import msgspec
import pytest

from api.kube.interference import ANNOTATION_VERDICTS
from api.verdicts import Verdict, VerdictState
from cluster import EVENTS, NODES, PODS, Backoff, Client, Key
from cluster.twin import Fault, FaultType, Twin
from koordlet.kube.reporter import PACE, Reporter, node_name
from koordlet.kube.settings import ClusterSettings
from scheduler.interference.verdicts import from_annotation
from tests.koordlet.kube.test_annotation import BATCH, WEB, by, cgroup, pod
from tests.waiting import wait_for

RETRY = Backoff(initial_seconds=0.05, maximum_seconds=0.1)
SETTINGS = ClusterSettings(enabled=True, annotation_seconds=30.0)


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        running.load(NODES, [{"metadata": {"name": name, "annotations": {"kept": "yes"}}} for name in ("n1", "n2")])
        for name, uid, node in (("web-1", WEB, "n1"), ("batch", BATCH, "n1"), ("far", "f" * 36, "n2")):
            document = msgspec.to_builtins(pod(name, uid)) | {"spec": {"nodeName": node, "containers": []}}
            running.load(PODS, [document])
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[Client]:
    with twin.client(PACE) as opened:
        yield opened


@pytest.fixture
def reporter(twin: Twin, client: Client) -> Iterator[Reporter]:
    running = Reporter(client, SETTINGS, "n1", retry=RETRY)
    running.start()
    assert running.informer.wait_synced(20.0)
    yield running
    running.close()


def uid_of(twin: Twin, name: str) -> str:
    uid: str = twin.objects(PODS)[Key("shop", name)]["metadata"]["uid"]
    return uid


def stated(twin: Twin, node: str = "n1") -> str | None:
    text: str | None = twin.objects(NODES)[Key("", node)]["metadata"].get("annotations", {}).get(ANNOTATION_VERDICTS)
    return text


def on_web(twin: Twin, **given: object) -> Verdict:
    return by(cgroup(uid_of(twin, "batch")), victim=cgroup(uid_of(twin, "web-1")), **given)


def test_only_this_nodes_pods_are_known(reporter: Reporter) -> None:
    assert reporter.counters()["pods"] == 2


def test_the_scheduler_reads_it_from_the_node_and_it_goes_when_nothing_stands(twin: Twin, reporter: Reporter) -> None:
    verdict = on_web(twin, lost=0.4)
    reporter.update([verdict], [verdict], 1000.0)
    wait_for(lambda: stated(twin) is not None)
    (read,) = from_annotation(stated(twin))
    assert (read.resource, read.victim, read.culprits, read.lost, read.until_seconds) == (
        "cpu",
        "shop/web-1",
        ("shop/batch",),
        0.4,
        1090.0,
    )
    reporter.update([msgspec.structs.replace(verdict, state=VerdictState.CLOSE)], [], 1010.0)
    wait_for(lambda: stated(twin) is None)
    assert twin.objects(NODES)[Key("", "n1")]["metadata"]["annotations"] == {"kept": "yes"}
    assert stated(twin, "n2") is None


def test_ticks_in_which_only_amounts_change_write_seldom(twin: Twin, reporter: Reporter) -> None:
    for second in range(100):
        verdict = on_web(twin, lost=0.4 + second / 1000)
        reporter.update([verdict] if not second else [], [verdict], 1000.0 + second)
        if second % 30 == 0:
            wait_for(lambda count=second // 30: reporter.annotation.writes == count + 1)
    assert reporter.annotation.writes == 4


def test_what_an_agent_of_before_left_is_removed(twin: Twin, client: Client) -> None:
    twin.load(NODES, [{"metadata": {"name": "n3", "annotations": {ANNOTATION_VERDICTS: "[]"}}}])
    running = Reporter(client, SETTINGS, "n3", retry=RETRY)
    running.start()
    running.update([], [], 1000.0)
    wait_for(lambda: stated(twin, "n3") is None)
    running.close()


def test_leaving_takes_the_annotation_back(twin: Twin, client: Client) -> None:
    running = Reporter(client, SETTINGS, "n1", retry=RETRY)
    running.start()
    assert running.informer.wait_synced(20.0)
    verdict = on_web(twin)
    running.update([verdict], [verdict], 1000.0)
    wait_for(lambda: stated(twin) is not None)
    running.close()
    assert stated(twin) is None


def test_events_of_the_same_cause_are_one_series_on_the_victims_pod(twin: Twin, reporter: Reporter) -> None:
    for number in range(4):
        verdict = on_web(twin, lost=0.3 + number / 10, time=1000.0 + 31 * number)
        reporter.update([verdict], [verdict], verdict.time)
    wait_for(lambda: reporter.counters()["events_sent"] == 4)
    (event,) = twin.objects(EVENTS).values()
    assert event["series"]["count"] == 4
    assert event["regarding"]["name"] == "web-1"
    assert event["regarding"]["uid"] == uid_of(twin, "web-1")
    assert event["related"]["name"] == "batch"
    assert event["reportingController"] == "koordlet"


def test_a_server_that_fails_is_asked_again_until_the_newest_state_is_there(twin: Twin, reporter: Reporter) -> None:
    twin.faults.add(Fault(FaultType.ERROR, verbs=frozenset({"patch"}), plural="nodes", status=503))
    first, second = on_web(twin), on_web(twin, resource="memory")
    reporter.update([first], [first], 1000.0)
    wait_for(lambda: reporter.counters()["annotation_failures"] >= 2)
    reporter.update([second], [second], 1010.0)
    twin.faults.clear()
    wait_for(lambda: [each.resource for each in from_annotation(stated(twin))] == ["memory"])


def test_a_lost_answer_does_no_harm(twin: Twin, reporter: Reporter) -> None:
    twin.faults.add(Fault(FaultType.DROP, verbs=frozenset({"patch"}), plural="nodes", times=2, after=True))
    verdict = on_web(twin)
    reporter.update([verdict], [verdict], 1000.0)
    wait_for(lambda: reporter.annotation.writes >= 1)
    assert len(from_annotation(stated(twin))) == 1


def test_a_dead_server_costs_counted_failures_and_no_time_of_the_tick(client: Client, twin: Twin) -> None:
    running = Reporter(client, SETTINGS, "n1", retry=RETRY)
    running.start()
    assert running.informer.wait_synced(20.0)
    verdict = on_web(twin)
    twin.stop()
    started = time.thread_time()
    for second in range(50):
        running.update([verdict], [verdict], 1000.0 + 31 * second)
    assert time.thread_time() - started < 1.0
    wait_for(lambda: running.counters()["annotation_failures"] > 0)
    wait_for(lambda: running.counters()["events_lost"] > 0)
    running.close(timeout_seconds=0.1)


def test_a_pod_that_went_is_forgotten(twin: Twin, client: Client, reporter: Reporter) -> None:
    path = cgroup(uid_of(twin, "batch"))
    assert reporter.pods.name_of(path) == "shop/batch"
    from cluster import DeleteOptions

    client.delete(PODS, Key("shop", "batch"), DeleteOptions(grace_period_seconds=0))
    wait_for(lambda: reporter.pods.name_of(path) == path)


def test_the_nodes_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "from-env")
    assert node_name(ClusterSettings(node_name="given")) == "given"
    assert node_name(ClusterSettings()) == "from-env"
