"""The diagnosis requests that Koordinator documents, as they are printed, and their answers."""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from cluster.resources import Key
from cluster.serving import Request
from scheduler.engine import Engine
from scheduler.explain.debug import markdown
from scheduler.framework import Action, ObjectEvent
from scheduler.loop import Loop
from scheduler.serving.http_api import HttpApi
from tests.schedobjects import node, pod
from tests.scheduler.plugins.test_nodenumaresource import make_report


class LoopInPlace:
    """What the HTTP API asks of a loop, answered in the caller's thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def call(self, question: Callable[[], Any]) -> Any:
        return question()


@pytest.fixture(scope="module")
def api() -> HttpApi:
    made = Engine()
    made.on_node(Action.ADD, node("node-1", allocatable={"cpu": "32"}), 0.0)
    [reports] = [kind for kind in made.watched_kinds().values() if kind.plural == "noderesourcetopologies"]
    report = make_report("node-1", (1, 1, 16, 2))
    made.on_object(ObjectEvent(reports, Action.ADD, Key("", "node-1"), None, report), 0.0)
    made.on_pod(
        Action.ADD,
        pod(
            "member",
            annotations={
                "gang.scheduling.koordinator.sh/name": "gang-a",
                "gang.scheduling.koordinator.sh/min-available": "2",
            },
        ),
        0.0,
    )
    return HttpApi(cast(Loop, LoopInPlace(made)))


def get(api: HttpApi, path: str) -> Any:
    reply = api.answer(Request("GET", path))
    assert reply.status == 200, reply.body
    return msgspec.json.decode(reply.body)


@pytest.mark.parametrize(
    ("key", "value", "answer"),
    [
        ("v", "5", "successfully set klog.logging.verbosity to 5"),
        ("s", "100", "successfully set debugTopNScores to 100"),
        ("f", "true", "successfully set debugFilterFailure to true"),
        ("t", "45s", "successfully set schedulingTimeout to 45s"),
    ],
)
def test_flags(api: HttpApi, key: str, value: str, answer: str) -> None:
    assert api.answer(Request("PUT", f"/debug/flags/{key}", value.encode())).body == f"{answer}\n".encode()
    api.answer(Request("PUT", f"/debug/flags/{key}", b"0"))


def test_services(api: HttpApi) -> None:
    assert set(get(api, "/apis/v1/__services__")["GET"]) >= {
        "/apis/v1/__services__",
        "/apis/v1/nodes/:nodeName",
        "/apis/v1/plugins/Coscheduling/gang/:namespace/:name",
        "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries",
        "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/:name",
        "/apis/v1/plugins/ElasticQuota/quota/:name",
        "/apis/v1/plugins/NodeNUMAResource/availableCPUs/:nodeName",
        "/apis/v1/plugins/NodeNUMAResource/cpuTopologyOptions/:nodeName",
    }


@pytest.mark.parametrize("plugin", ["NodeNUMAResource", "NodeNUMAResources"])
def test_topology_of_a_node(api: HttpApi, plugin: str) -> None:
    answer = api.answer(Request("GET", f"/apis/v1/plugins/{plugin}/cpuTopologyOptions/node-1")).body
    assert answer.startswith(
        b'{"cpuTopology":{"numCPUs":32,"numCores":16,"numNodes":1,"numSockets":1,"cpuDetails":{"0":{"cpuID":0,'
    )
    free = get(api, f"/apis/v1/plugins/{plugin}/availableCPUs/node-1")
    assert free == {"availableCPUs": "0-31", "allocated": {}}
    assert api.answer(Request("GET", f"/apis/v1/plugins/{plugin}/availableCPUs/gone")).status == 404


@pytest.mark.parametrize(
    ("path", "part"),
    [
        pytest.param("nodes/node-1", {"name": "node-1"}, id="node"),
        pytest.param(
            "plugins/Coscheduling/gang/default/gang-a", {"name": "default/gang-a", "minRequiredNumber": 2}, id="gang"
        ),
        pytest.param("plugins/DeviceShare/nodeDeviceSummaries", {}, id="devices"),
        pytest.param(
            "plugins/ElasticQuota/quota/koordinator-default-quota", {"name": "koordinator-default-quota"}, id="quota"
        ),
    ],
)
def test_state(api: HttpApi, path: str, part: dict[str, Any]) -> None:
    assert part.items() <= get(api, f"/apis/v1/{path}").items()


def test_a_node_without_devices_has_no_summary(api: HttpApi) -> None:
    assert api.answer(Request("GET", "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/node-1")).status == 404


def test_the_score_table_is_ruled_as_printed() -> None:
    first, rule, *_ = markdown(["#", "Pod", "Node", "Score", "ImageLocality"], [], numbers_from=3).splitlines()
    assert (first, rule) == ("| # | Pod | Node | Score | ImageLocality |", "| --- | --- | --- | ---:| ---:|")
    assert re.fullmatch(r"(\| --- )+\|", markdown(["Pod", "Node"], []).splitlines()[1])
