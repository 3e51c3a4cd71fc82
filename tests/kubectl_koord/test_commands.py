"""`kubectl koord` against the in-process API server; kubectl is a script that prints its arguments."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from api.kube.times import rfc3339
from cluster import CONFIG_MAPS, NODES, PODS, Key
from cluster.twin import Twin
from controllers.kinds import NODE_METRIC
from kubectl_koord import __main__ as commands
from kubectl_koord.__main__ import main
from tests.api.kube.test_losses import metric, verdict
from tests.capacity import to_load
from tests.schedobjects import node

HOSTILE = "web\x1b[2J"
STOP = "koordlet.koordinator.sh/stop"
MANAGER = {"name": "koord-manager", "namespace": "koord-system"}


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


def annotations(twin: Twin) -> dict[str, str]:
    found: dict[str, str] = twin.objects(NODES)[Key("", "n1")]["metadata"].get("annotations", {})
    return found


def test_pause_and_resume_annotate_the_node(twin: Twin) -> None:
    assert invoke(twin, "pause", "n1").exit_code == 0
    assert annotations(twin)[STOP] == "true"
    assert invoke(twin, "resume", "n1").exit_code == 0
    assert STOP not in annotations(twin)
    missing = invoke(twin, "pause", "n9")
    assert (missing.exit_code, "there is no node n9" in missing.output) == (1, True)


def test_without_custom_resources_the_remedy_is_named() -> None:
    with Twin() as bare:
        refused = invoke(bare, "nodes")
    assert (refused.exit_code, "deploy/crds" in refused.output) == (1, True)


def run_agent(twin: Twin) -> None:
    """Have the agent's pod run on the node."""
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


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that makes a script the kubectl on the PATH."""
    program = tmp_path / "kubectl"

    def make(script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return make


def test_commands_of_the_agent_run_in_its_pod(
    twin: Twin, kubectl: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    assert "no agent runs on node n1" in invoke(twin, "actions", "n1").output
    run_agent(twin)
    kubectl('echo "$@"; exit 3')
    assert invoke(twin, "actions", "n1", "--log", "3").exit_code == 3
    expected = (
        "exec -n koord-system koordlet-x -c koordlet -- koordlet actions --config /etc/koord/koordlet.toml --log 3"
    )
    assert expected in capfd.readouterr().out


def in_effect(kind: str, file: str) -> str:
    return json.dumps({"kind": kind, "file": file, "value": "1", "original": "2"})


def test_restore_waits_until_no_action_is_in_effect(
    twin: Twin, kubectl: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_LOOK_SECONDS", 0.01)
    run_agent(twin)
    protocol, action = in_effect("protocol", "/batch cpu.shares"), in_effect("action", "/batch cpu.max")
    looked = tmp_path / "looked"
    kubectl(f"echo '{protocol}'; [ -e {looked} ] || echo '{action}'; touch {looked}")
    restored = invoke(twin, "restore", "n1")
    assert restored.exit_code == 0, restored.output
    assert "no action is in effect, 1 settings of the protocol stay; paused" in restored.output
    assert annotations(twin)[STOP] == "true"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(f"echo '{in_effect('action', '/batch cpu.max')}'", "/batch cpu.max = 1 (was 2)", id="left"),
        pytest.param("echo no socket >&2; exit 1", "on node n1: no socket", id="failed"),
        pytest.param("echo '[]'", "cannot be read", id="another-agent"),
    ],
)
def test_restore_fails_where_it_cannot_tell_or_some_are_left(
    twin: Twin, kubectl: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr(commands, "_LOOK_SECONDS", 0.0)
    run_agent(twin)
    kubectl(script)
    refused = invoke(twin, "restore", "n1", "--wait", "0")
    assert (refused.exit_code, said in refused.output) == (1, True), refused.output


def test_explain_asks_the_manager_with_its_settings(twin: Twin, capfd: pytest.CaptureFixture[str]) -> None:
    assert "there is no ConfigMap koord-system/koord-manager" in invoke(twin, "explain", "nodeslo/n1").output
    twin.load(CONFIG_MAPS, [{"metadata": MANAGER, "data": {"manager.toml": "[controllers.node_slo]\n"}}])
    assert invoke(twin, "explain", "nodeslo/n1").exit_code == 0
    assert "resourceUsedThresholdWithBE" in capfd.readouterr().out
    assert invoke(twin, "explain", "node").exit_code == 2


def test_explain_refuses_settings_that_the_manager_would_refuse(twin: Twin, capfd: pytest.CaptureFixture[str]) -> None:
    twin.load(CONFIG_MAPS, [{"metadata": MANAGER, "data": {"manager.toml": "unknown_key = 1\n"}}])
    assert invoke(twin, "explain", "nodeslo/n1").exit_code == 2
    assert "unknown_key" in capfd.readouterr().err
