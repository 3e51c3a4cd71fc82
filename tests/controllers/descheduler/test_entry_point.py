"""The command: plan with a scheduler's answer and without, explain, and refusals."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from api.placement import PlacementAnswer, PlacementRequest, PodPlacement
from cluster import NODES, PODS
from cluster.twin import Twin
from controllers.descheduler.__main__ import main
from controllers.descheduler.kinds import MIGRATION, NODE_METRIC, RESERVATION
from tests.descheduling import a_node, pod_document
from tests.managed import check_fenced

CONFIG = """
profiles:
- name: p
  plugins: {deschedule: {enabled: [RemovePodsHavingTooManyRestarts]}}
  pluginConfig:
  - {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 5}}
"""


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as served:
        for kind in (MIGRATION, RESERVATION, NODE_METRIC):
            served.serve(kind)
        served.load(NODES, [unstored(msgspec.to_builtins(a_node(name))) for name in ("a", "b")])
        served.load(
            PODS, [unstored(pod_document("p0", status={"containerStatuses": [{"name": "c", "restartCount": 7}]}))]
        )
        yield served


def unstored(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what its server gives it."""
    for name in ("uid", "resourceVersion"):
        document["metadata"].pop(name, None)
    return document


class Scheduler:
    """Answers as koord-scheduler does, with one status and body."""

    def __init__(self, status: int, body: bytes) -> None:
        asked: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.asked = asked
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def invoke(twin: Twin, tmp_path: Path, *words: str, scheduler: str = "http://127.0.0.1:1", text: str = CONFIG) -> Any:
    file = tmp_path / "d.yaml"
    file.write_text(text)
    options = ["--server", twin.url, "--config", str(file), "--scheduler", scheduler]
    return CliRunner().invoke(main, [*options, *words])


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(200, PlacementAnswer([PodPlacement("uid-p0", node="b")], 2, 0.0), "; to b", id="a-node"),
        pytest.param(200, PlacementAnswer([PodPlacement("u", message="full")], 2, 0.0), "; no node: full", id="none"),
        pytest.param(200, PlacementAnswer([], 2, 0.0), "; not moved: ", id="no-placement"),
        pytest.param(503, b"not the leader\n", "answers 503: not the leader", id="not-leading"),
        pytest.param(200, b"{", "cannot be read", id="malformed"),
        pytest.param(200, b"[" * 100_000, "cannot be read", id="nested"),
    ],
)
def test_plan_asks_the_scheduler(twin: Twin, tmp_path: Path, status: int, body: Any, expected: str) -> None:
    scheduler = Scheduler(status, body if isinstance(body, bytes) else msgspec.json.encode(body))
    try:
        result = invoke(twin, tmp_path, "plan", scheduler=scheduler.url)
    finally:
        scheduler.stop()
    assert result.exit_code == 0, result.output
    assert "RemovePodsHavingTooManyRestarts moves shop/p0 from a: its containers restarted 7 times" in result.output
    assert expected in result.output
    asked = msgspec.json.decode(scheduler.asked[0], type=PlacementRequest)
    assert asked.pods[0].excluded_nodes == ["a"]
    assert not twin.objects(MIGRATION)


def test_without_a_scheduler_nothing_would_be_moved(twin: Twin, tmp_path: Path) -> None:
    assert "not moved: the scheduler does not answer" in invoke(twin, tmp_path, "plan").output


def test_plan_says_what_stays(twin: Twin, tmp_path: Path) -> None:
    text = CONFIG + "  - {name: MigrationController, args: {namespaces: {exclude: [shop]}}}\n"
    output = invoke(twin, tmp_path, "plan", "--refused", text=text).output
    assert "RemovePodsHavingTooManyRestarts leaves shop/p0: namespace shop is left alone" in output
    assert "nothing to move" in output


def test_explain(twin: Twin, tmp_path: Path) -> None:
    assert "may be moved" in invoke(twin, tmp_path, "explain", "pod/shop/p0").output
    spec = {"podRef": {"namespace": "shop", "name": "p0"}}
    status = {"phase": "Failed", "message": "why", "conditions": [{"type": "Eviction", "status": "True"}]}
    twin.load(MIGRATION, [{"metadata": {"name": "j"}, "spec": spec, "status": status}])
    output = invoke(twin, tmp_path, "explain", "pmj/j").output
    assert "phase Failed" in output
    assert "Eviction True" in output
    assert invoke(twin, tmp_path, "explain", "pod/shop/none").exit_code == 1
    assert invoke(twin, tmp_path, "explain", "node/a").exit_code == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("speed: 1", "speed", id="key"),
        pytest.param("profiles: [{plugins: {balance: {enabled: [Nobody]}}}]", "no plugin", id="plugin"),
        pytest.param("profiles: {", "not readable", id="torn"),
    ],
)
def test_configurations_that_cannot_be_used_are_refused(twin: Twin, tmp_path: Path, text: str, problem: str) -> None:
    result = invoke(twin, tmp_path, "plan", text=text)
    assert result.exit_code == 2
    assert problem in result.output


def test_the_answer_is_json_that_the_scheduler_reads(twin: Twin, tmp_path: Path) -> None:
    scheduler = Scheduler(200, msgspec.json.encode(PlacementAnswer([PodPlacement("u", node="b")], 2, 0.0)))
    try:
        invoke(twin, tmp_path, "plan", scheduler=scheduler.url + "/")
    finally:
        scheduler.stop()
    assert json.loads(scheduler.asked[0])["schema"] == "koord.placement/v1"


def test_a_descheduler_that_does_not_lead_sends_neither_writes_nor_events(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_fenced(monkeypatch, main, twin)
