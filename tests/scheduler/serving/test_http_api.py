"""The HTTP API over a running loop: state, switches, metrics, and the extender's verbs."""

import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from cluster import NODES, PODS
from cluster.serving import Request, listen
from cluster.twin import Twin
from scheduler.cluster_state.podinfo import PodClasses
from scheduler.cycle import AnyPlugin
from scheduler.engine import Engine
from scheduler.loop import Loop
from scheduler.outcome import AttemptOutcome, Result
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.plugins.tainttoleration import TaintToleration
from scheduler.profile import SchedulerSettings
from scheduler.serving.http_api import HealthApi, HttpApi, listener_bounds
from tests.schedobjects import node, pod
from tests.waiting import wait_for

KINDS: dict[str, type[AnyPlugin]] = {
    "prioritysort": PrioritySort,
    "noderesourcesfit": NodeResourcesFit,
    "tainttoleration": TaintToleration,
    "defaultbinder": DefaultBinder,
}
TAINT = {"key": "x", "effect": "NoSchedule"}


@dataclass
class Site:
    """A twin, a loop over it, and its door."""

    twin: Twin
    loop: Loop
    door: HttpApi

    def ask(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Any:
        data = raw if raw is not None else b"" if body is None else msgspec.json.encode(body)
        reply = self.door.answer(Request(method, path, data))
        assert reply.status == 200, (reply.status, reply.body)
        return msgspec.json.decode(reply.body) if reply.content_type == "application/json" else reply.body.decode()


def document(item: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(item)
    return made


@pytest.fixture
def site() -> Iterator[Site]:
    with Twin() as twin:
        twin.load(NODES, [document(node("big", allocatable={"cpu": "8"})), document(node("small"))])
        twin.load(NODES, [document(node("tainted", taints=[TAINT]))])
        settings = SchedulerSettings(extender_scheduler_names=("default-scheduler",))
        loop = Loop(twin.client(), Engine(settings, kinds=KINDS))
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        assert loop.ready.wait(10)
        yield Site(twin, loop, HttpApi(loop))
        loop.stop()
        thread.join(10)


def stock_pod(twin: Twin, name: str, requests: dict[str, str]) -> dict[str, Any]:
    """A pod that the stock scheduler owns, as the API server stores it."""
    [key] = twin.load(PODS, [document(pod(name, requests, uid="", schedulerName="default-scheduler"))])
    return twin.objects(PODS)[key]


def test_health_needs_no_leadership_but_state_does(site: Site) -> None:
    idle = HttpApi(site.loop, lambda: False)
    assert idle.answer(Request("GET", "/healthz", b"")).status == 200
    assert idle.answer(Request("GET", "/metrics", b"")).status == 200
    assert idle.answer(Request("GET", "/apis/v1/__services__", b"")).status == 503
    assert idle.answer(Request("POST", "/extender/filter", b"{}")).status == 503


def test_a_standby_is_alive_and_not_ready(site: Site) -> None:
    standby = HealthApi(site.loop, lambda: False)
    assert standby.answer(Request("GET", "/healthz", b"")).status == 200
    assert standby.answer(Request("GET", "/readyz", b"")).status == 503
    assert standby.answer(Request("GET", "/readyz/informer-sync", b"")).status == 200
    assert HealthApi(site.loop).answer(Request("GET", "/readyz", b"")).status == 200


def test_a_scheduling_thread_that_hangs_is_seen(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.loop, "stuck_seconds", lambda: 61.0)
    reply = site.door.answer(Request("GET", "/healthz", b""))
    assert (reply.status, reply.body) == (500, b"the scheduling thread has not answered for 61 s\n")


def test_health_is_all_that_the_health_port_answers(site: Site) -> None:
    health = HealthApi(site.loop)
    for method, path in (("GET", "/apis/v1/nodes/big"), ("POST", "/extender/bind"), ("PUT", "/debug/flags/s")):
        assert health.answer(Request(method, path, b"5")).status == 404
    assert health.answer(Request("GET", "/metrics", b"")).status == 200


def test_only_pods_of_named_schedulers_are_bound_through_the_extender(site: Site) -> None:
    [key] = site.twin.load(PODS, [document(pod("p", {"cpu": "99"}, uid="", schedulerName="another"))])
    uid = site.twin.objects(PODS)[key]["metadata"]["uid"]
    wait_for(lambda: site.loop.call(lambda: site.loop._informers["pods"].get(key) is not None))
    asked = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "big"}
    reply = site.door.answer(Request("POST", "/extender/bind", msgspec.json.encode(asked)))
    assert (reply.status, reply.body) == (403, b"pods of another are not bound here\n")
    assert "nodeName" not in site.twin.objects(PODS)[key]["spec"]


def test_the_extender_is_off_unless_schedulers_are_named() -> None:
    with Twin() as twin:
        door = HttpApi(Loop(twin.client(), Engine(SchedulerSettings(), kinds=KINDS)))
        for verb in ("filter", "prioritize", "preempt", "bind"):
            assert door.answer(Request("POST", f"/extender/{verb}", b"{}")).status == 404


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"Pod": ' + b'{"spec": ' * 3000, id="deep-in-an-object"),
        pytest.param(b"\xff\xfe", id="no-text"),
        pytest.param(b'{"Pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}}', id="quantity"),
        pytest.param(b'{"Pod": 5}', id="type"),
        pytest.param(b"", id="empty"),
    ],
)
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
def test_bodies_that_cannot_be_read_are_refused(site: Site, verb: str, body: bytes) -> None:
    assert site.door.answer(Request("POST", f"/extender/{verb}", body)).status == 400


def test_a_node_is_shown_as_held(site: Site) -> None:
    site.twin.load(PODS, [document(pod("p", {"cpu": "5"}))])
    wait_for(lambda: bool(site.ask("GET", "/apis/v1/nodes/big")["pods"]))
    shown = site.ask("GET", "/apis/v1/nodes/big")
    assert shown["requested"]["cpu"] == "5"
    assert shown["allocatable"]["cpu"] == "8"
    assert shown["pods"][0]["name"] == "default/p"
    assert site.door.answer(Request("GET", "/apis/v1/nodes/none", b"")).status == 404


def test_services_are_listed_and_unknown_paths_say_so(site: Site) -> None:
    assert "/apis/v1/nodes/:nodeName" in site.ask("GET", "/apis/v1/__services__")["GET"]
    assert site.door.answer(Request("GET", "/apis/v1/else", b"")).status == 404


def test_the_score_table_is_switched_at_run_time(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "scheduler.explain.debug")
    site.ask("PUT", "/debug/flags/s", raw=b"2")
    site.twin.load(PODS, [document(pod("p", {"cpu": "1"}))])
    wait_for(lambda: "| # | Pod | Node | Score |" in caplog.text)
    assert "| # | Pod | Node | Score | NodeResourcesFit | TaintToleration |" in caplog.text
    assert "| 0 | default/p | big | 392 | 92 | 300 |" in caplog.text
    assert site.door.answer(Request("PUT", "/debug/flags/s", b"many")).status == 400
    assert site.door.answer(Request("PUT", "/debug/flags/nothing", b"1")).status == 404


def test_the_filter_table_names_plugin_and_reason(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "scheduler.explain.debug")
    site.ask("PUT", "/debug/flags/f", raw=b"true")
    site.twin.load(PODS, [document(pod("p", {"cpu": "9"}))])
    wait_for(lambda: "| default/p | small | NodeResourcesFit | Insufficient cpu |" in caplog.text)


def test_metrics_carry_the_stock_names(site: Site) -> None:
    site.twin.load(PODS, [document(pod("p", {"cpu": "1"})), document(pod("q", {"cpu": "99"}))])

    def text() -> str:
        return str(site.ask("GET", "/metrics"))

    wait_for(lambda: 'schedule_attempts_total{profile="koord-scheduler",result="scheduled"} 1.0' in text())
    wait_for(lambda: 'scheduler_pending_pods{queue="unschedulable"} 1.0' in text())
    for name in (
        "scheduler_scheduling_attempt_duration_seconds_bucket",
        "scheduler_pod_scheduling_sli_duration_seconds_bucket",
        'scheduler_unschedulable_pods{plugin="NodeResourcesFit"',
        'scheduler_scheduler_cache_size{type="nodes"} 3.0',
    ):
        assert name in text()


def test_the_extender_filters_by_name_and_tells_hopeless_nodes_apart(site: Site) -> None:
    asked = {"Pod": stock_pod(site.twin, "p", {"cpu": "6"}), "NodeNames": ["big", "small", "tainted", "gone"]}
    answer = site.ask("POST", "/extender/filter", asked)
    assert answer["NodeNames"] == ["big"]
    assert answer["FailedNodes"] == {"small": "Insufficient cpu", "gone": "node not known yet"}
    assert answer["FailedAndUnresolvableNodes"] == {"tainted": "node(s) had untolerated taint(s)"}


def test_the_extender_filters_nodes_sent_in_full(site: Site) -> None:
    items = [document(node("big")), document(node("small"))]
    asked = {"Pod": stock_pod(site.twin, "p", {"cpu": "6"}), "Nodes": {"items": items}}
    answer = site.ask("POST", "/extender/filter", asked)
    assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["big"]


def test_the_extender_gives_ten_to_the_best_alone(site: Site) -> None:
    asked = {"Pod": stock_pod(site.twin, "p", {"cpu": "1"}), "NodeNames": ["big", "small", "tainted"]}
    scores = {item["Host"]: item["Score"] for item in site.ask("POST", "/extender/prioritize", asked)}
    assert scores["big"] == 10
    assert 0 < scores["small"] < 10
    assert scores["tainted"] == 0


def test_the_extender_binds(site: Site) -> None:
    waiting = stock_pod(site.twin, "p", {"cpu": "6"})
    uid = waiting["metadata"]["uid"]

    def bind(where: str, who: str = uid) -> str:
        body = {"PodName": "p", "PodNamespace": "default", "PodUID": who, "Node": where}
        return str(site.ask("POST", "/extender/bind", body)["Error"])

    wait_for(lambda: site.door.answer(Request("POST", "/extender/bind", _binding(uid, "small"))).status == 200)
    assert "Insufficient cpu" in bind("small")
    assert site.door.answer(Request("POST", "/extender/bind", _binding("another", "big"))).status == 404
    assert bind("big") == ""
    assert next(iter(site.twin.objects(PODS).values()))["spec"]["nodeName"] == "big"


def test_pods_that_wait_at_bind_leave_room_for_filter(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The members of a gang hold a connection each, all from the stock scheduler's address."""
    members, come, whole = 40, threading.Semaphore(0), threading.Event()

    def held(*_: Any) -> AttemptOutcome:
        come.release()
        whole.wait(30)
        return AttemptOutcome(Result.SCHEDULED, PodClasses().info(pod("p", {"cpu": "1"})))

    monkeypatch.setattr(site.loop, "bind_for_extender", held)
    server = listen(site.door, "127.0.0.1", 0, bounds=listener_bounds(site.loop.engine.settings))

    def send(verb: str, body: bytes) -> Any:
        asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/extender/{verb}", data=body)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return msgspec.json.decode(answer.read())

    try:
        with ThreadPoolExecutor(members) as pool:
            binds = [pool.submit(send, "bind", _binding(f"u{number}", "big")) for number in range(members)]
            try:
                for _ in range(members):
                    assert come.acquire(timeout=30)
                asked = {"Pod": stock_pod(site.twin, "p", {"cpu": "6"}), "NodeNames": ["big"]}
                assert send("filter", msgspec.json.encode(asked))["NodeNames"] == ["big"]
            finally:
                whole.set()
            assert [bind.result() for bind in binds] == [{"Error": ""}] * members
    finally:
        server.stop()


def test_more_pods_at_bind_than_there_is_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SchedulerSettings(extender_scheduler_names=("default-scheduler",), extender_waiting_binds=1)
    with Twin() as twin:
        loop = Loop(twin.client(), Engine(settings, kinds=KINDS))
        door = HttpApi(loop)
        second: list[bytes] = []

        def held(*_: Any) -> AttemptOutcome:
            # While the first one waits, another comes.
            second.append(door.answer(Request("POST", "/extender/bind", _binding("v", "big"))).body)
            return AttemptOutcome(Result.SCHEDULED, PodClasses().info(pod("p", {"cpu": "1"})))

        monkeypatch.setattr(loop, "bind_for_extender", held)
        for _ in range(2):
            first = door.answer(Request("POST", "/extender/bind", _binding("u", "big")))
            assert msgspec.json.decode(first.body) == {"Error": ""}
        assert all(b"too many pods wait" in body for body in second)
        assert len(second) == 2


def _binding(uid: str, where: str) -> bytes:
    return msgspec.json.encode({"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": where})


def test_preemption_keeps_nodes_where_leaving_helps(site: Site) -> None:
    site.twin.load(PODS, [document(pod("low", {"cpu": "7"}, nodeName="big", uid="", priority=1))])
    wait_for(lambda: bool(site.ask("GET", "/apis/v1/nodes/big")["pods"]))
    uid = site.ask("GET", "/apis/v1/nodes/big")["pods"][0]["uid"]
    preemptor = document(pod("high", {"cpu": "6"}, priority=100))
    asked = {
        "Pod": preemptor,
        "NodeNameToMetaVictims": {
            "big": {"Pods": [{"UID": uid}], "NumPDBViolations": 0},
            "small": {"Pods": [], "NumPDBViolations": 0},
        },
    }
    answer = site.ask("POST", "/extender/preempt", asked)["NodeNameToMetaVictims"]
    assert answer == {"big": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}


def test_unreadable_requests_are_refused(site: Site) -> None:
    assert site.door.answer(Request("POST", "/extender/filter", b"not json")).status == 400
    assert site.door.answer(Request("POST", "/extender/sing", b"{}")).status == 404


def test_it_is_served_over_http(site: Site) -> None:
    server = listen(site.door, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.port}"
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            assert answer.read() == b"ok"
        request = urllib.request.Request(f"{url}/debug/flags/s", data=b"3", method="PUT")
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200
        assert site.loop.engine.flags.score_rows == 3
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/nothing", timeout=5)
    finally:
        server.stop()


@pytest.mark.parametrize("path", ["/extender/bind", "/extender/filter", "/debug/flags/s"])
def test_only_named_clients_bind_and_switch(site: Site, path: str) -> None:
    door = HttpApi(site.loop, binders=frozenset({"kube-scheduler"}))
    method = "PUT" if path.startswith("/debug") else "POST"
    for name in ("", "descheduler"):
        refused = door.answer(Request(method, path, b"5", name))
        assert refused.status == 403
        assert b"--bind-client-name" in refused.body
    assert door.answer(Request(method, path, b"5", "kube-scheduler")).status != 403
    assert door.answer(Request("GET", "/apis/v1/nodes/big", b"", "descheduler")).status == 200
