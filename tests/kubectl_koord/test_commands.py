"""`kubectl koord` against the in-process API server; kubectl is a script that prints its arguments."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from api.kube.times import rfc3339
from cluster import NODES, PODS, Key
from cluster.twin import Twin
from controllers.kinds import NODE_METRIC
from kubectl_koord.__main__ import main
from tests.api.kube.test_losses import metric, verdict
from tests.capacity import to_load
from tests.schedobjects import node

HOSTILE = "web\x1b[2J"


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as served:
        served.serve(NODE_METRIC)
        served.load(NODES, [to_load(node("n1"))])
        later = rfc3339(time.time() + 600)
        report = metric("n1", {**verdict(0.25), "until": later}, verdict(0.5, None, culprits=[HOSTILE]))
        document = msgspec.to_builtins(report)
        document["status"]["updateTime"] = rfc3339(time.time())
        served.load(NODE_METRIC, [document])
        yield served


def invoke(twin: Twin, *words: str) -> Any:
    return CliRunner().invoke(main, ["--server", twin.url, *words])


def test_nodes_and_verdicts_are_tables(twin: Twin) -> None:
    assert [line.split()[:3] for line in invoke(twin, "nodes").output.splitlines()] == [
        ["NODE", "VICTIMS", "LOST"],
        ["n1", "1", "0.750"],
    ]
    shown = invoke(twin, "verdicts", "--node", "n1").output
    assert "shop/web   cpu        0.250      batch/xz" in shown
    assert invoke(twin, "verdicts", "--node", "n2").output == "no verdict is open\n"


def test_control_characters_do_not_reach_the_terminal(twin: Twin) -> None:
    shown = invoke(twin, "verdicts").output
    assert "\x1b" not in shown
    assert r"web\u001b[2J" in shown


def test_json_is_one_document(twin: Twin) -> None:
    found = json.loads(invoke(twin, "why", "batch/xz", "-o", "json").output)
    assert [(loss["node"], loss["victim"]) for loss in found] == [("n1", "shop/web")]


def test_a_subject_that_is_no_pod_is_refused(twin: Twin) -> None:
    refused = invoke(twin, "why", "web")
    assert (refused.exit_code, "expected NAMESPACE/POD" in refused.output) == (2, True)
    assert "loses nothing to others" in invoke(twin, "why", "shop/other").output


def test_pause_and_resume_annotate_the_node(twin: Twin) -> None:
    def annotations() -> dict[str, str]:
        found: dict[str, str] = twin.objects(NODES)[Key("", "n1")]["metadata"].get("annotations", {})
        return found

    assert invoke(twin, "pause", "n1").exit_code == 0
    assert annotations()["koordlet.koordinator.sh/stop"] == "true"
    assert invoke(twin, "resume", "n1").exit_code == 0
    assert "koordlet.koordinator.sh/stop" not in annotations()
    missing = invoke(twin, "pause", "n9")
    assert (missing.exit_code, "there is no node n9" in missing.output) == (1, True)


def test_without_custom_resources_the_remedy_is_named() -> None:
    with Twin() as bare:
        refused = invoke(bare, "nodes")
    assert (refused.exit_code, "deploy/crds" in refused.output) == (1, True)


def test_commands_of_the_agent_run_in_its_pod(
    twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "no agent runs on node n1" in invoke(twin, "actions", "n1").output
    labels = {"app.kubernetes.io/name": "koordlet"}
    agent = {
        "metadata": {
            "name": "koordlet-x",
            "namespace": "koord-system",
            "labels": labels,
        },
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }
    twin.load(PODS, [agent])
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert invoke(twin, "actions", "n1", "--log", "3").exit_code == 3
    expected = (
        "exec -n koord-system koordlet-x -c koordlet -- koordlet actions --config /etc/koord/koordlet.toml --log 3"
    )
    assert expected in capfd.readouterr().out
