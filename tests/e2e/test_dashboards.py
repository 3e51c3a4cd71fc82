"""Every query of every dashboard, asked of a real Prometheus that scrapes agent, scheduler, manager and descheduler.

A service, best-effort work, a cgroup over its quota and one over its memory limit run beside an agent that acts; the
scheduler places pods, the manager plans for the nodes of an API server in this process, and the descheduler moves old
pods. A panel without data fails, but for those that this host cannot measure, which are printed, and those that fill
after a fault alone. KOORD_SCREENSHOTS=FOLDER keeps pictures of all dashboards.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.kube.times import rfc3339
from cluster import NODES, PODS
from cluster.twin import Twin, TwinSettings
from controllers.descheduler.kinds import MIGRATION, RESERVATION, WORKLOADS
from controllers.kinds import CONFIG_MAP, NODE_METRIC, NODE_SLO
from deploy.grafana.board import Panel
from deploy.grafana.dashboards import dashboards
from deploy.grafana.preview import Prometheus as Source
from deploy.grafana.preview import concrete, write_pages
from koordlet.demo.stage import Stage, staged
from tests.browser import browser, picture
from tests.capacity import a_node, a_pod, a_report, a_usage, to_load
from tests.cgroups import CgroupTree
from tests.controllers.descheduler.test_entry_point import unstored
from tests.controllers.plans.test_overcommit import config
from tests.descheduling import a_workload, pod_document
from tests.emulation import why_no_real_time
from tests.schedobjects import node, pod
from tests.scheduler.test_loop import document
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside, pytest.mark.slow]

PATIENCE_SECONDS = 120.0
RATE_SECONDS = 10
"""Ten scrapes."""
ROOT = "dashboards"
AGENT = """
interval_seconds = 0.25
[[qos]]
match = "{online}*"
class = "LS"
[[qos]]
match = "{batch}*"
class = "BE"
[metrics]
port = {port}
[detection]
baselines_file = ""
[enforcer]
enabled = true
dry_run = false
strategies = ["response"]
only = ["{root}/*"]
state_dir = "{directory}/state"
audit_file = "{directory}/audit.jsonl"
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{alerts}]
scrape_configs:
- job_name: koordlet
  honor_labels: true
  static_configs: [{{targets: ["127.0.0.1:{agent}"]}}]
- job_name: koord-scheduler
  static_configs: [{{targets: ["127.0.0.1:{scheduler}"]}}]
- job_name: koord-manager
  static_configs: [{{targets: ["127.0.0.1:{manager}"]}}]
- job_name: koord-descheduler
  static_configs: [{{targets: ["127.0.0.1:{descheduler}"]}}]
"""
DESCHEDULER = """
deschedulingInterval: 2s
maxNoOfPodsToEvictPerNode: 1
profiles:
- name: p
  plugins: {deschedule: {enabled: [{name: PodLifeTime}]}}
  pluginConfig:
  - {name: MigrationController, args: {defaultJobMode: EvictDirectly, maxMigratingPerNode: 0}}
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 100}}
"""
OLD = [pod_document(f"old{number}", "s0", owner=f"w{number}", age_seconds=9e8) for number in range(4)]
KOORDINATOR = {
    "scheduling": (
        'scheduler_queue_incoming_pods_total{queue="active"}',
        'scheduler_queue_incoming_pods_total{queue="unschedulable",event="ScheduleAttemptFailure"}',
        'scheduler_schedule_attempts_total{result="scheduled"}',
        'scheduler_schedule_attempts_total{result="unschedulable"}',
        'scheduler_pending_pods{queue="active"}',
        "scheduler_unschedulable_pods",
        'scheduler_e2e_scheduling_duration_seconds_sum{result="scheduled"}',
        'scheduler_e2e_scheduling_duration_seconds_count{result="scheduled"}',
        "scheduler_scheduling_attempt_duration_seconds_bucket",
        "scheduler_scheduling_algorithm_duration_seconds_bucket",
        "scheduler_pod_scheduling_duration_seconds_bucket",
        "scheduler_pod_scheduling_attempts_bucket",
        "scheduler_preemption_attempts_total",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        'rest_client_requests_total{code=~"2.."}',
        'rest_client_request_duration_seconds_bucket{verb!=""}',
    ),
    "descheduling": (
        'descheduler_pods_evicted{result="success",strategy!="",node!="",namespace!=""}',
        'descheduler_pods_evicted{result="maximum number of pods per node reached"}',
    ),
}
"""What the two dashboards that Koordinator publishes ask for, as far as docs/migration.md says that they fill."""
READER = "while :; do dd if={file} of=/dev/null bs=64k iflag=direct 2>/dev/null; done"
GREEDY = "while :; do head -c 96m /dev/zero | tail > /dev/null; done"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def program(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()


def loaded_twin() -> Twin:
    twin = Twin(TwinSettings(bookmark_seconds=0.5))
    twin.serve(NODE_METRIC)
    twin.serve(NODE_SLO)
    twin.load(CONFIG_MAP, [to_load(config())])
    twin.load(NODES, [to_load(a_node(name)) for name in ("n1", "n2")])
    used = [
        a_usage("web", 2, "3G", priority="koord-prod", qos="LS"),
        a_usage("spark", "300m", "1G", priority="koord-batch", qos="BE"),
    ]
    now = rfc3339(time.time())
    reports = [a_report(name, system=(7, "12G"), pods=used, updated=now) for name in ("n1", "n2")]
    twin.load(NODE_METRIC, [to_load(report) for report in reports])
    twin.load(NODES, [document(node(f"s{number}")) for number in range(3)])
    # Where the pods that are moved have a place.
    twin.load(NODES, [document(node("s3", allocatable={"cpu": "200", "memory": "1Ti"}))])
    twin.load(WORKLOADS[0], [unstored(msgspec.to_builtins(a_workload(f"w{number}", 5))) for number in range(len(OLD))])
    twin.load(PODS, [unstored(each) for each in OLD])
    for kind in (MIGRATION, RESERVATION):
        twin.serve(kind)
    lent, huge = {"kubernetes.io/batch-cpu": "500"}, {"kubernetes.io/batch-cpu": "900000000"}
    spark = a_pod("spark", qos="BE", requests=lent)
    shuffle = a_pod("shuffle", qos="BE", requests=huge, node="", phase="Pending")
    twin.load(PODS, [to_load(spark), to_load(shuffle)])
    asked = [pod(f"p{number}", {"cpu": "500m"}) for number in range(20)] + [pod("giant", {"cpu": "1000"})]
    twin.load(PODS, [document(each) for each in asked])
    return twin


class Prometheus:
    """Queries to a running Prometheus."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, expression: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        series: list[dict[str, Any]] = found["data"]["result"]
        return series

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def filled(self, panel: Panel) -> bool:
        """Whether any query of the panel has a number; a query that Prometheus refuses fails the test."""
        answers = [self.ask(concrete(query.expression, RATE_SECONDS)) for query in panel.queries]
        return any(answers)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(0.010) as made:
        yield made


def test_every_panel_has_data(stage: Stage, tmp_path: Path) -> None:
    obstacle = why_no_real_time()
    if obstacle:  # six programs and their load on emulated CPUs take minutes
        pytest.skip(obstacle)
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus here: install the package")
    agent, scheduler, manager, descheduler, own = free_ports(5)
    settings = tmp_path / "koordlet.toml"
    layout = stage.layout
    settings.write_text(
        AGENT.format(online=layout.online, batch=layout.batch, root=layout.root, directory=tmp_path, port=agent)
    )
    scrape = tmp_path / "prometheus.yml"
    alerts = Path(__file__).parents[2] / "deploy" / "alerts" / "koord.yaml"
    scrape.write_text(
        PROMETHEUS.format(agent=agent, scheduler=scheduler, manager=manager, descheduler=descheduler, alerts=alerts)
    )
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 26))
    koord = [sys.executable, "-m"]
    with ExitStack() as running:
        twin = running.enter_context(loaded_twin())
        root = running.enter_context(CgroupTree.detect().make_cgroup(ROOT))

        def start(name: str, *command: str) -> Path:
            running.enter_context(program(command, tmp_path / name))
            return tmp_path / name

        log = start("agent", *koord, "koordlet", "run", "--standalone", "--config", str(settings))
        serving = ["--server", twin.url, "run", "--no-leader-elect", "--address", "127.0.0.1"]
        start("scheduler", *koord, "scheduler", *serving, "--port", str(scheduler))
        start("manager", *koord, "controllers", "--server", twin.url, "run", "--port", str(manager))
        moves = tmp_path / "descheduler.yaml"
        moves.write_text(DESCHEDULER)
        asking = ["--config", str(moves), "--scheduler", f"http://127.0.0.1:{scheduler}", "--server", twin.url]
        running_alone = ["run", "--no-leader-elect", "--address", "127.0.0.1", "--port", str(descheduler)]
        start("descheduler", *koord, "controllers.descheduler", *asking, *running_alone)
        flags = [f"--config.file={scrape}", f"--storage.tsdb.path={tmp_path}/tsdb"]
        start("prometheus", "prometheus", *flags, f"--web.listen-address=127.0.0.1:{own}")
        prometheus = Prometheus(own)
        wait_for(prometheus.ready, PATIENCE_SECONDS)
        wait_for(lambda: "metrics on" in log.read_text(), PATIENCE_SECONDS, check=log.read_text)

        stage.start_service()
        stage.start_client(40.0, 600.0, 1)
        stage.start_batch()
        limited, greedy = root.make_cgroup("limited"), root.make_cgroup("greedy")
        limited.set_cpu_quota(10_000)
        limited.spawn(["sh", "-c", "while :; do :; done"])
        greedy.set_memory_limit(16 << 20)
        greedy.spawn(["sh", "-c", GREEDY])
        for name in ("first", "second"):
            root.make_cgroup(name).spawn(["sh", "-c", READER.format(file=data)])

        wait_for(lambda: len(prometheus.ask("up == 1")) == 4, PATIENCE_SECONDS, check=lambda: told(tmp_path))
        absent = {row["metric"]["name"] for row in prometheus.ask("koord_capability == 0")}
        panels = [(board.name, panel) for board in dashboards() for panel in board.panels]
        unmeasured = [(name, panel.title) for name, panel in panels if panel.needs in absent]
        print(f"not measured on this host: {unmeasured}")
        missing = {(name, panel.title): panel for name, panel in panels if (name, panel.title) not in unmeasured}

        def all_filled() -> bool:
            for key, panel in list(missing.items()):
                if prometheus.filled(panel) or panel.only_faults:
                    del missing[key]
            return not missing

        wait_for(all_filled, PATIENCE_SECONDS, check=lambda: f"without data: {sorted(missing)}")
        asked = {f"{name}: {series}": series for name, every in KOORDINATOR.items() for series in every}

        def all_there() -> bool:
            for key, series in list(asked.items()):
                if prometheus.ask(series):
                    del asked[key]
            return not asked

        wait_for(all_there, PATIENCE_SECONDS, check=lambda: f"without data: {sorted(asked)}; {told(tmp_path)}")
        health = urllib.request.urlopen(f"{prometheus.url}/api/v1/rules", timeout=10).read()
        groups = json.loads(health)["data"]["groups"]
        if os.environ.get("KOORD_SCREENSHOTS"):
            pictures(prometheus.url, tmp_path)
        assert all(rule["health"] != "err" for group in groups for rule in group["rules"]), health


def pictures(url: str, directory: Path) -> None:
    """Draw every dashboard over a minute of the scenario, dark and light."""
    time.sleep(30.0)
    now = time.time()
    pages = write_pages(directory / "pages", Source(url, now - 60.0, now, RATE_SECONDS))
    for dark in (False, True):
        kept = directory / ("dark" if dark else "light")
        kept.mkdir()
        with browser(kept, dark=dark) as window:
            for page in pages:
                window.size(1500, 600)
                window.open(page.as_uri())
                frame = "outerHeight - innerHeight + document.documentElement.scrollHeight"
                window.size(1500, int(window.run(f"return {frame}")))
                picture(window, f"{page.stem}-{kept.name}", directory)


def told(directory: Path) -> str:
    """Last lines of each program's log."""
    logs = [directory / name for name in ("agent", "scheduler", "manager", "descheduler", "prometheus")]
    return "\n".join(f"{log.name}: {log.read_text()[-600:]}" for log in logs)
