"""The running agent's socket, cluster, triage and profiles, each as its users find it."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml

from api.crds import INTERFERENCE_DETECTION_RULE, NODE_METRIC, NodeMetric
from cluster import EVENTS, NODES, PODS, Key, custom
from cluster.twin import Twin
from detector.judging.judge import Judge, JudgeSettings
from detector.models.format import decode_models
from detector.registry import default_rules
from koordlet.serving.broadcast import VerdictFilter
from koordlet.serving.client import AgentClient
from probes.probe import Kernel
from scheduler.interference.verdicts import NodeVerdict, from_metric
from tests.cgroups import CgroupTree, TestCgroup
from tests.koordlet.kube.test_verdict_entries import BATCH, WEB, pod
from tests.waiting import alive, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside]

KOORDLET = [sys.executable, "-m", "koordlet"]
BUSY = ["sh", "-c", "while :; do :; done"]
BASE = """
interval_seconds = {interval}
[metrics]
port = 0
[enforcer]
state_dir = "{directory}/state"
audit_file = ""
[detection]
baselines_file = ""
"""


@contextmanager
def running(
    directory: Path, settings: str, interval: float = 0.25, mode: tuple[str, ...] = ("--standalone",)
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The agent; yields the process and its log."""
    config, log = directory / "koordlet.toml", directory / "log"
    config.write_text(BASE.format(directory=directory, interval=interval) + settings)
    with log.open("w") as stream:
        command = [*KOORDLET, "run", *mode, "--config", str(config)]
        process = subprocess.Popen(command, stderr=stream, text=True)
    try:
        wait_for(lambda: "metrics on" in log.read_text(), check=alive(process, log))
        yield process, log
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def metric(log: Path, name: str) -> float | None:
    port = re.search(r"metrics on http://127\.0\.0\.1:(\d+)/", log.read_text())
    assert port
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=30) as response:
        found = re.search(rf"^{re.escape(name)} (\S+)$", response.read().decode(), re.MULTILINE)
    return float(found[1]) if found else None


def contend(victim: TestCgroup, hog: TestCgroup) -> None:
    victim.spawn(BUSY, cpus="0")
    for _ in range(2):
        hog.spawn(BUSY, cpus="0")


def test_verdicts_are_read_from_the_socket(kernel: Kernel, tree: CgroupTree, tmp_path: Path) -> None:
    path = tmp_path / "koordlet.sock"
    settings = f'[serving]\nenabled = true\nsocket = "{path}"\n'
    with (
        tree.make_cgroup("served") as victim,
        tree.make_cgroup("server-hog") as hog,
        running(tmp_path, settings) as (process, log),
        AgentClient(path) as client,
    ):
        node = client.node()
        assert {each.name: each.available for each in node.capabilities}["cpu"]
        contend(victim, hog)
        wanted = VerdictFilter(victim.path, "cpu")
        wait_for(lambda: client.open_verdicts(wanted), interval_seconds=0.1, check=alive(process, log))
        told = next(client.follow(wanted))
        assert told.verdict is not None
        assert hog.path in [culprit.path for culprit in told.verdict.culprits]
        command = [*KOORDLET, "verdicts", "--socket", str(path), "--victim", victim.path, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout.splitlines()[0])["victim"] == victim.path
        assert client.node().ticks > node.ticks
        second = subprocess.run(
            [*KOORDLET, "run", "--standalone", "--config", str(tmp_path / "koordlet.toml")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (second.returncode, "another process serves" in second.stderr) == (1, True), second.stderr
    assert not path.exists()


def test_the_default_agent_loads_no_server_no_cluster_and_no_parquet(kernel: Kernel, tmp_path: Path) -> None:
    with running(tmp_path, "") as (process, _log):
        maps = Path(f"/proc/{process.pid}/maps").read_text()
    assert not re.search(r"/(grpc|google|kubernetes|pyarrow|sklearn)/", maps)


@pytest.mark.slow
def test_profiles_become_models_that_the_judge_loads(kernel: Kernel, tree: CgroupTree, tmp_path: Path) -> None:
    directory = tmp_path / "profiles"
    # On a busy machine all rows would be of victims, which are not ordinary.
    settings = f"disabled_rules = {[rule.name for rule in default_rules()]}\n"
    settings += f'[profiles]\nenabled = true\ndirectory = "{directory}"\nevery_seconds = 0.1\nsegment_seconds = 2.0\n'
    with tree.make_cgroup("profiled") as cgroup:
        cgroup.spawn(["sh", "-c", "while :; do sleep 0.01; done"])
        with running(tmp_path, settings, interval=0.1) as (process, log):
            wait_for(lambda: len(list(directory.glob("*.parquet"))) >= 3, check=alive(process, log))
        files = sorted(map(str, directory.glob("*.parquet")))
        output = tmp_path / "models.json"
        wanted = [part for name in ("cpu_cores", "cpu_waits", "cpu_wait_self") for part in ("-f", name)]
        train = [sys.executable, "-m", "detector", "train", *files, "-o", str(output), "--min-samples", "20", *wanted]
        done = subprocess.run(train, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    models = decode_models(output.read_bytes())
    trained = {model.key.workload for model in models.models}
    assert any("profiled" in workload for workload in trained), trained
    assert {model.key.node_type for model in models.models} != {""}
    assert Judge(JudgeSettings(models=models)).open_verdicts == ()
    settings = f'models_file = "{output}"\n'
    with running(tmp_path, settings) as (process, log):
        wait_for(lambda: (metric(log, "koord_agent_cgroups") or 0) > 0, interval_seconds=0.1, check=alive(process, log))
        assert metric(log, "koord_judge_failures_total") in (0.0, None)


def test_a_close_look_that_costs_too_much_is_given_up_and_said(
    kernel: Kernel, tree: CgroupTree, tmp_path: Path
) -> None:
    settings = "[probes.options.pmu]\nstand_in = true\n[triage]\ncpu_budget_ratio = 1e-7\nmeasure_every_ticks = 2\n"
    with (
        tree.make_cgroup("looked-at") as one,
        tree.make_cgroup("looked-at-too") as other,
        running(tmp_path, settings) as (process, log),
    ):
        contend(one, other)
        wait_for(lambda: metric(log, "koord_triage_level") == 4.0, interval_seconds=0.1, check=alive(process, log))
        assert "triage level: nothing" in log.read_text()
        assert metric(log, "koord_triage_focused_cgroups") == 0.0
        assert (metric(log, "koord_triage_shed_ticks_total") or 0) > 0
        assert metric(log, "koord_triage_budget_cores") is not None
        assert (metric(log, "koord_agent_cgroups") or 0) > 1, "cheap signals go on"


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as served:
        served.serve(custom(INTERFERENCE_DETECTION_RULE), status=False)
        served.serve(custom(NODE_METRIC))
        served.load(NODES, [{"metadata": {"name": "n1"}}])
        yield served


def kubeconfig(twin: Twin, path: Path) -> Path:
    cluster = {"name": "twin", "cluster": {"server": twin.url}}
    context = {"name": "twin", "context": {"cluster": "twin", "user": "nobody"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "nobody", "user": {}}],
        "current-context": "twin",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_verdicts_reach_the_cluster_and_its_rules_the_agent(
    kernel: Kernel, tree: CgroupTree, twin: Twin, tmp_path: Path
) -> None:
    rule = {
        "apiVersion": INTERFERENCE_DETECTION_RULE.api_version,
        "kind": INTERFERENCE_DETECTION_RULE.kind,
        "metadata": {"name": "from-the-cluster"},
        "spec": {"anyOf": ["cpu_contention"], "threshold": 0.2},
    }
    twin.load(custom(INTERFERENCE_DETECTION_RULE), [rule])
    uids = {}
    for name, uid in (("web-1", WEB), ("batch", BATCH)):
        document = msgspec.to_builtins(pod(name, uid)) | {
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "qosClass": "Guaranteed"},
        }
        (key,) = twin.load(PODS, [document])
        uids[name] = twin.objects(PODS)[key]["metadata"]["uid"]
    mode = ("--node", "n1", "--kubeconfig", str(kubeconfig(twin, tmp_path / "kubeconfig")))
    settings = (
        "[cluster]\nrules = true\nfirst_report_seconds = 0\n"
        '[kubelet]\npods_from = "apiserver"\ncri = false\npod_resources = false\n'
        f'[prediction]\ndirectory = "{tmp_path / "peaks"}"\n'
        f'[serving]\nenabled = true\nsocket = "{tmp_path / "koordlet.sock"}"\n'
    )
    with (
        kubepods_of(tree) as kubepods,
        kubepods.make_cgroup(f"kubepods-pod{uids['web-1'].replace('-', '_')}.slice") as web,
        kubepods.make_cgroup(f"kubepods-pod{uids['batch'].replace('-', '_')}.slice") as batch,
        running(tmp_path, settings, mode=mode) as (process, log),
    ):
        contend(web, batch)

        def stated() -> tuple[NodeVerdict, ...]:
            document = twin.objects(custom(NODE_METRIC)).get(Key("", "n1"), {})
            return from_metric(msgspec.convert(document, NodeMetric))

        wait_for(lambda: any(each.victim == "shop/web-1" for each in stated()), check=alive(process, log))
        entry = next(each for each in stated() if each.victim == "shop/web-1")
        assert entry.resource == "cpu"
        assert "shop/batch" in entry.culprits
        wait_for(lambda: any(each["regarding"]["name"] == "web-1" for each in _events(twin)), check=alive(process, log))
        event = next(each for each in _events(twin) if each["regarding"]["name"] == "web-1")
        assert event["related"]["name"] == "batch"
        assert "waiting for CPU" in event["note"]
        assert "shop/batch" in event["note"]
        with AgentClient(tmp_path / "koordlet.sock") as client:
            wanted = VerdictFilter(web.path)
            wait_for(
                lambda: {each.rule for each in client.open_verdicts(wanted)} == {"from-the-cluster"},
                check=alive(process, log),
            )
    assert stated() == ()


@contextmanager
def kubepods_of(tree: CgroupTree) -> Iterator[TestCgroup]:
    """The directory of a kubelet with the systemd driver, where cgroups are pods; removed unless it was there."""
    there = tree.mount_of("cpu").joinpath("kubepods.slice").exists()
    made = TestCgroup(tree, "/kubepods.slice")
    made.create()
    try:
        yield made
    finally:
        if not there:
            made.remove()


def _events(twin: Twin) -> list[dict[str, dict[str, str]]]:
    return list(twin.objects(EVENTS).values())
