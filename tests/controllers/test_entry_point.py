"""The command: plan, explain and run as processes; two managers of which one leads."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.kube.times import rfc3339
from cluster import LEASES, NODES, Key
from cluster.twin import Twin, TwinSettings
from controllers.__main__ import main, plural
from controllers.kinds import CONFIG_MAP, NODE_METRIC, NODE_SLO
from tests.arenas import arenas_of
from tests.capacity import a_node, a_report, to_load
from tests.controllers.plans.test_overcommit import config
from tests.managed import check_fenced
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
BATCH_CPU = "kubernetes.io/batch-cpu"
LEASE = Key("koordinator-system", "koord-manager")


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin(TwinSettings(bookmark_seconds=0.5)) as served:
        served.serve(NODE_METRIC)
        served.serve(NODE_SLO)
        served.load(CONFIG_MAP, [to_load(config())])
        yield served


def load(twin: Twin, *names: str) -> None:
    twin.load(NODES, [to_load(a_node(name)) for name in names])
    reports = [a_report(name, system=(7, "12G"), updated=rfc3339(time.time())) for name in names]
    twin.load(NODE_METRIC, [to_load(report) for report in reports])


def invoke(twin: Twin, *words: str) -> Any:
    return CliRunner().invoke(main, ["--server", twin.url, *words])


def test_plan_prints_the_writes_with_their_reasons_and_makes_none(twin: Twin) -> None:
    load(twin, "n1")
    result = invoke(twin, "plan")
    assert result.exit_code == 0, result.output
    assert re.search(r"overcommit: patch Node n1 \(status\): batch-cpu 58000 = 100000 - margin 35000", result.output)
    assert "node_slo: create NodeSLO n1: the node has none" in result.output
    assert not twin.objects(NODE_SLO)
    lines = invoke(twin, "--only", "node_slo", "plan", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["NodeSLO"]


def test_explain_says_why_and_names_what_it_does_not_know(twin: Twin) -> None:
    load(twin, "n1")
    result = invoke(twin, "explain", "node/n1")
    assert "100000 capacity - 35000 margin - 7000 system" in result.output
    assert "resourceUsedThresholdWithBE" in invoke(twin, "explain", "nodeslo/n1").output
    missing = invoke(twin, "explain", "node/none")
    assert (missing.exit_code, "no controller gives" in missing.output) == (1, True)
    assert invoke(twin, "explain", "node").exit_code == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[loop]\nspeed = 1", "speed", id="unknown-key"),
        pytest.param("[controllers.nobody]", "no such controller", id="unknown-controller"),
        pytest.param("[controllers.overcommit.interference]\nleast = 2", "least", id="range"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(twin: Twin, tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "m.toml"
    file.write_text(text)
    result = invoke(twin, "--config", str(file), "plan")
    assert result.exit_code == 2
    assert problem in result.output


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("node", "nodes"),
        ("Pod", "pods"),
        ("nodeslo", "nodeslos.slo.koordinator.sh"),
        ("eqp", "elasticquotaprofiles.quota.koordinator.sh"),
    ],
)
def test_kinds_are_known_by_every_name(kind: str, name: str) -> None:
    assert plural(kind) == name


@contextmanager
def manager(twin: Twin, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "controllers",
        "--server",
        twin.url,
        "run",
        "--port",
        "0",
        "--address",
        "127.0.0.1",
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def port(log: Path) -> int:
    found = wait_for(lambda: re.search(r"HTTP on port (\d+)", log.read_text()))
    return int(found[1])


def fetch(log: Path, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port(log)}{path}", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def batch_cpu(twin: Twin, name: str) -> str | None:
    value: str | None = twin.objects(NODES)[Key("", name)]["status"]["allocatable"].get(BATCH_CPU)
    return value


def test_it_serves_health_and_metrics_and_ends_with_its_lease_given_up(twin: Twin, tmp_path: Path) -> None:
    load(twin, "n1")
    log = tmp_path / "log"
    with manager(twin, log) as process:
        wait_for(lambda: batch_cpu(twin, "n1") == "58000")
        assert fetch(log, "/healthz") == fetch(log, "/readyz") == "ok"
        wait_for(lambda: "koord_manager_leading 1.0" in fetch(log, "/metrics"))
        assert 'koord_manager_writes_total{controller="overcommit"' in fetch(log, "/metrics")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert twin.objects(LEASES)[LEASE]["spec"]["holderIdentity"] == ""


def test_its_threads_share_the_memory_that_they_free(twin: Twin, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with manager(twin, log) as process:
        wait_for(lambda: "koord_manager_leading 1.0" in fetch(log, "/metrics"))
        assert len(os.listdir(f"/proc/{process.pid}/task")) > 10
        assert arenas_of(process.pid) <= 1


@pytest.mark.slow
def test_of_two_managers_one_leads_and_the_other_takes_over_after_a_kill(twin: Twin, tmp_path: Path) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    load(twin, "n1", "n2")
    with manager(twin, logs[0]) as first:
        wait_for(lambda: batch_cpu(twin, "n2") == "58000")
        with manager(twin, logs[1]):
            wait_for(lambda: "synced" in logs[1].read_text())
            assert "leading" not in logs[1].read_text()
            os.kill(first.pid, signal.SIGKILL)
            killed = time.monotonic()
            load(twin, "n3")
            wait_for(lambda: batch_cpu(twin, "n3") == "58000")
            took = time.monotonic() - killed
            print(f"takeover took {took:.1f} s")
            assert took < 15.0
    modified = [each.record.key.name for each in twin.history(NODES) if each.type == "MODIFIED"]
    assert sorted(modified) == ["n1", "n2", "n3"], "each node was written once, by the leader"
    created = [each.record.key.name for each in twin.history(NODE_SLO)]
    assert sorted(created) == ["n1", "n2", "n3"]


def test_a_manager_that_does_not_lead_sends_neither_writes_nor_events(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "m.toml"
    config.write_text("[page]\nport = 0\n")
    check_fenced(monkeypatch, main, twin, "--config", str(config))
