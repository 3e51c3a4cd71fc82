"""One walk over one node with all programs: from a labelled namespace to a cool-down after an eviction, as a table.

koord-manager with its webhook, koord-scheduler and the agent run as processes beside a real kubelet and the controllers
of Kubernetes. Each step is seen in objects, in Events and in the metrics of the program that takes it.
"""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.crds import CLUSTER_COLOCATION_PROFILE, DEFINITIONS, NODE_METRIC, NODE_SLO, definition_document
from api.kube.times import epoch_seconds
from api.protocol import BATCH_CPU, BATCH_MEMORY
from cluster import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    ClusterError,
    Document,
    Key,
    Query,
    Resource,
    custom,
    merge_patch,
)
from cluster.errors import AlreadyExists
from tests.cluster_e2e.agent import Agent, agent_running
from tests.cluster_e2e.cgroup_layout import BEST_EFFORT, ROOT, pod_part
from tests.cluster_e2e.control_plane import free_ports
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.node import SERVICE_ACCOUNTS, Node
from tests.cluster_e2e.test_koordlet import settings_below
from tests.cluster_e2e.test_webhooks import ADMISSION
from tests.deploy.charts import documents
from tests.waiting import PATIENCE, alive, wait_for

pytestmark = pytest.mark.cluster

SYSTEM, WORK = "koordinator-system", "walk"
COOLDOWN = "node.koordinator.sh/eviction-cooldown"
COOLDOWN_SECONDS = 40 * int(PATIENCE)
CLASSES = {"walk-first": 5000, "walk-last": 5500}
"""Priority classes of the batch band: pods of the first are evicted before those of the last."""
AMOUNTS = {"cpu": "300m", "memory": "32Mi"}
METRICS = custom(NODE_METRIC).of(dict)
WEIGHTS, MEMORY_LIMITS = ("cpu.shares", "cpu.weight"), ("memory.limit_in_bytes", "memory.max")
"""Files of both cgroup versions."""
BUSY = ["sh", "-c", "while :; do :; done" if PATIENCE == 1 else "while :; do sleep 0.2; done"]
BINDINGS = Resource("ClusterRoleBinding", "clusterrolebindings", dict, "rbac.authorization.k8s.io", namespaced=False)


def configuration(evict_from_percent: int) -> Document:
    """The slo-controller ConfigMap: overcommit, suppression, eviction from a level of memory, and the cool-down."""
    colocation = {
        "enable": True,
        "metricReportIntervalSeconds": 2,
        "metricAggregateDurationSeconds": 10,
        "updateTimeThresholdSeconds": 2,
        # Whatever else the machine does, there is room: this walk is no measurement of overcommit.
        "cpuReclaimThresholdPercent": 400,
        "memoryReclaimThresholdPercent": 100,
    }
    threshold = {
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressMinPercent": 20,
            "cpuSuppressPolicy": "cfsQuota",
            "memoryEvictThresholdPercent": evict_from_percent,
            "memoryEvictLowerPercent": evict_from_percent - 1,
        }
    }
    cooldown = {"clusterStrategy": {"enable": True, "seconds": COOLDOWN_SECONDS, "effect": "NoSchedule"}}
    return {
        "colocation-config": json.dumps(colocation),
        "resource-threshold-config": json.dumps(threshold),
        "extensions-config": json.dumps({"evictionCooldown": cooldown}),
    }


def profile(name: str) -> Document:
    """A profile as a cluster's administrator writes it: whatever is labelled with its tier becomes batch work."""
    return {
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
            "selector": {"matchLabels": {"tier": name}},
            "qosClass": "BE",
            "priorityClassName": name,
            "schedulerName": "koord-scheduler",
        },
    }


def deployment(name: str) -> Document:
    """A plain Deployment: native resources, no class, no scheduler."""
    labels = {"tier": name}
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": BUSY,
        "resources": {"requests": AMOUNTS, "limits": AMOUNTS},
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    return {
        "metadata": {"name": name, "namespace": WORK},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


@dataclass
class Program:
    """A running program and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> str:
        """Return the end of its log; raises AssertionError where it has ended."""
        return alive(self.process, self.log)()

    def metric(self, pattern: str) -> float:
        """Return the sum of the samples whose line begins with a pattern; 0 where it does not answer yet."""
        port = re.findall(r"HTTP on port (\d+)", self.log.read_text())
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port[-1]}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except (OSError, IndexError):
            return 0.0
        return sum(float(line.rsplit(" ", 1)[1]) for line in re.findall(rf"^{pattern}.*$", text, re.MULTILINE))


@contextlib.contextmanager
def program(folder: Path, name: str, *command: str | Path) -> Iterator[Program]:
    """A program of the control plane, ended on leaving."""
    log = folder / f"{name}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-m", *command], stderr=stream, stdout=stream)
    try:
        yield Program(process, log)
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class Walk:
    """The node, the programs on it, and the rows of the table."""

    node: Node
    manager: Program
    scheduler: Program
    started: float = field(default_factory=time.monotonic)
    rows: list[tuple[float, str, str, str]] = field(default_factory=list)

    def row(self, step: str, seen: str, where: str) -> None:
        """Note a step, what was seen of it, and where."""
        self.rows.append((time.monotonic() - self.started, step, seen, where))
        print(f"{self.rows[-1][0]:6.1f} s  {step:<38} {where:<18} {seen}", flush=True)

    def check(self) -> str:
        """Return the ends of all logs; raises AssertionError where a program has ended."""
        states = [
            [pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"].get("phase"), *conditions(pod)]
            for name in CLASSES
            for pod in self.pods(name)
        ]
        logs = f"manager:\n{self.manager.check()[-1500:]}\nscheduler:\n{self.scheduler.check()[-1500:]}"
        return f"{logs}\npods: {states}"

    def until(self, condition: Any, seconds: float = 90.0) -> Any:
        """Wait for a condition."""
        return wait_for(condition, seconds, interval_seconds=0.2, check=self.check)

    def pods(self, tier: str) -> list[Document]:
        """Pods of a Deployment that are not going, oldest first."""
        listed = [item.value for item in self.node.client.list(PODS, Query(WORK, labels=f"tier={tier}")).items]
        alive_ones = [pod for pod in listed if pod and not pod["metadata"].get("deletionTimestamp")]
        return sorted(alive_ones, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def running(self, tier: str) -> Document | None:
        """The pod of a Deployment once it runs."""
        return next((pod for pod in self.pods(tier) if pod["status"].get("phase") == "Running"), None)

    def events(self, reason: str, name: str = "") -> list[str]:
        """Notes of the Events of a reason."""
        found = [item.value for item in self.node.client.list(EVENTS).items if item.value]
        of = [each for each in found if each.get("reason") == reason and name in (each.get("regarding") or {})["name"]]
        return [each.get("note", "") for each in of]

    def taint(self) -> Document | None:
        """The cool-down's taint on the node."""
        taints = self.node.object()["spec"].get("taints") or []
        return next((each for each in taints if each["key"] == COOLDOWN), None)

    def configure(self, evict_from_percent: int) -> None:
        """Change the ConfigMap."""
        data = configuration(evict_from_percent)
        self.node.client.patch(CONFIG_MAPS, Key(SYSTEM, "slo-controller-config"), merge_patch({"data": data}))


def conditions(pod: Document) -> list[str]:
    """What is said of a pod that waits."""
    listed = pod["status"].get("conditions") or []
    return [each["message"] for each in listed if each["status"] != "True" and each.get("message")]


def ensure(node: Node, resource: Resource[Any], document: Document) -> None:
    """Create an object; one that is there stays."""
    with contextlib.suppress(AlreadyExists):
        node.client.create(resource, document)


@pytest.fixture
def walk(node: Node, tmp_path: Path) -> Iterator[Walk]:
    """Everything that an administrator installs, and the programs of the control plane."""
    for definition in DEFINITIONS:
        ensure(node, CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
    for name, value in CLASSES.items():
        ensure(node, PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    ensure(node, NAMESPACES, {"metadata": {"name": SYSTEM}})
    ensure(node, NAMESPACES, {"metadata": {"name": WORK, "labels": {"koordinator.sh/enable-colocation": "true"}}})
    config = {"metadata": {"name": "slo-controller-config", "namespace": SYSTEM}, "data": configuration(99)}
    ensure(node, CONFIG_MAPS, config)
    profiles = custom(CLUSTER_COLOCATION_PROFILE)
    wait_for(lambda: served(node, profiles), interval_seconds=0.2)
    with contextlib.suppress(ClusterError):
        node.client.delete(custom(NODE_SLO).of(dict), Key("", node.name))
    for name in CLASSES:
        ensure(node, profiles, profile(name))
    wait_for(lambda: node.client.find(SERVICE_ACCOUNTS, Key(WORK, "default")), interval_seconds=0.2)
    (port,) = free_ports(1)
    configs = [
        each
        for each in documents({"manager": {"enabled": True}, "webhooks": {"enabled": True}})
        if each["kind"] in ADMISSION
    ]
    configs = [each for each in configs if each["kind"].endswith("WebhookConfiguration")]
    for document in configs:
        for item in document["webhooks"]:
            path = item["clientConfig"].pop("service")["path"]
            item["clientConfig"]["url"] = f"https://localhost:{port}{path}"
        ensure(node, ADMISSION[document["kind"]], document)
    settings = tmp_path / "manager.toml"
    settings.write_text(
        f'[webhook]\nenabled = true\naddress = "127.0.0.1"\nport = {port}\nnames = ["localhost"]\n'
        f'namespace = "{SYSTEM}"\n'
    )
    loads = tmp_path / "scheduler.toml"
    # What else runs on the machine is no reason to leave the only node out.
    loads.write_text("[plugins.loadaware]\nusage_thresholds = {}\n")
    client = ("--kubeconfig", node.kubeconfig)
    run = ("run", "--no-leader-elect", "--port", "0")
    with (
        program(tmp_path, "manager", "controllers", "--config", settings, *client, *run) as manager,
        program(tmp_path, "scheduler", "scheduler", "--config", loads, *client, *run) as scheduler,
    ):
        made = Walk(node, manager, scheduler)
        try:
            yield made
        finally:
            for name in CLASSES:
                with contextlib.suppress(ClusterError):
                    node.client.delete(DEPLOYMENTS, Key(WORK, name))
            for document in configs:
                node.client.delete(ADMISSION[document["kind"]], Key("", document["metadata"]["name"]))
            wait_for(lambda: not node.client.list(PODS, Query(WORK)).items, 60, interval_seconds=0.2)
            wait_for(lambda: made.taint() is None, 90 + COOLDOWN_SECONDS, interval_seconds=0.5)


def served(node: Node, resource: Resource[Any]) -> bool:
    """Whether the API server serves a kind."""
    with contextlib.suppress(ClusterError):
        return node.client.list(resource) is not None
    return False


def quota_of(path: str) -> int:
    """CPU quota of a cgroup as a share of its period, in percent; -1 for none."""
    for top in (ROOT / "cpu", ROOT / "cpu,cpuacct", ROOT):
        v1, v2 = top / path.strip("/") / "cpu.cfs_quota_us", top / path.strip("/") / "cpu.max"
        if v1.exists():
            quota = int(v1.read_text())
            return -1 if quota < 0 else quota * 100 // int((v1.parent / "cpu.cfs_period_us").read_text())
        if v2.exists():
            quota_text, period = v2.read_text().split()
            return -1 if quota_text == "max" else int(quota_text) * 100 // int(period)
    return -1


def test_the_walk_of_a_batch_workload(walk: Walk, tmp_path: Path) -> None:
    with agent_running(walk.node, tmp_path, evict=True) as agent:
        sold(walk)
        changed(walk)
        placed(walk, agent)
        suppressed(walk, agent)
        evicted(walk, agent)
        kept_away(walk)
    print(f"{len(walk.rows)} steps seen")


def sold(walk: Walk) -> None:
    """The manager sells what the agent reports."""
    node = walk.node
    walk.until(lambda: (node.client.find(METRICS, Key("", node.name)) or {}).get("status", {}).get("updateTime"))
    walk.row("the agent reports the node's use", "NodeMetric with updateTime", "object")

    def amounts() -> tuple[str, str] | None:
        has = node.object()["status"]["allocatable"]
        found = (str(has.get(BATCH_CPU)), str(has.get(BATCH_MEMORY)))
        return None if found[0] in ("None", "100k", "100000") else found

    cpu, memory = walk.until(amounts)
    walk.row("the manager sells batch resources", f"batch-cpu {cpu}, batch-memory {memory}", "object")
    walk.until(lambda: walk.manager.metric("koord_manager_writes_total") > 0)
    writes = walk.manager.metric("koord_manager_writes_total")
    walk.row("the manager sells batch resources", f"{writes:.0f} writes", "metric")
    slo = walk.until(lambda: node.client.find(custom(NODE_SLO).of(dict), Key("", node.name)))
    policy = slo["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressPolicy"]
    walk.row("the manager gives the node its strategy", f"NodeSLO, policy {policy}", "object")


def changed(walk: Walk) -> None:
    """The webhook makes plain pods batch work."""
    number = iter(range(1000))

    def in_effect() -> bool:
        probe = {**deployment("walk-first")["spec"]["template"]}
        body = {"metadata": {**probe["metadata"], "name": f"probe-{next(number)}", "namespace": WORK}}
        made = walk.node.client.create(PODS, {**body, "spec": {**probe["spec"], "nodeSelector": {"no": "node"}}})
        walk.node.client.delete(PODS, Key(WORK, body["metadata"]["name"]))
        return bool(made["spec"]["schedulerName"] == "koord-scheduler")

    walk.until(in_effect)
    for name in CLASSES:
        walk.node.client.create(DEPLOYMENTS, deployment(name))
    for name, value in CLASSES.items():
        pod = walk.until(lambda name=name: next(iter(walk.pods(name)), None))
        spec, labels = pod["spec"], pod["metadata"]["labels"]
        resources = spec["containers"][0]["resources"]["limits"]
        assert labels["koordinator.sh/qosClass"] == "BE"
        assert (spec["priority"], spec["schedulerName"]) == (value, "koord-scheduler")
        assert (str(resources[BATCH_CPU]), resources[BATCH_MEMORY]) == ("300", "32Mi")
        assert "cpu" not in resources
        walk.row("the webhook makes a plain pod batch", f"{name}: BE, {value}, batch-cpu 300", "object")
    reviews = walk.manager.metric("koord_manager_webhook_duration_seconds_count")
    walk.row("the webhook makes a plain pod batch", f"{reviews:.0f} reviews", "metric")


def placed(walk: Walk, agent: Agent) -> None:
    """The scheduler places them, and they run under what they asked for."""
    for name in CLASSES:
        pod = walk.until(lambda name=name: walk.running(name))
        walk.row("the scheduler places it, it runs", f"{pod['metadata']['name']} on {walk.node.name}", "object")
        notes = walk.until(lambda pod=pod: walk.events("Scheduled", pod["metadata"]["name"]))
        walk.row("the scheduler places it, it runs", notes[0], "Event")
        part = pod_part(pod["metadata"]["uid"])

        def limited(part: str = part) -> dict[str, str]:
            ours = {path: text.strip() for path, text in settings_below(ROOT).items() if part in path}
            memory = [path for path, text in ours.items() if path.endswith(MEMORY_LIMITS) and text == "33554432"]
            cpu = {path: text for path, text in ours.items() if path.endswith(WEIGHTS) and text in ("307", "12")}
            return cpu if memory else {}

        found = walk.until(limited)
        # Under policy cfsQuota the quota is that of all best-effort work together.
        walk.row("the agent gives it its batch resources", f"{set(found.values())} as weight, 32 MiB", "cgroup")
    placements = walk.scheduler.metric(r"scheduler_schedule_attempts_total\{.*scheduled")
    walk.row("the scheduler places it, it runs", f"{placements:.0f} placements", "metric")
    held = agent.metric("koord_protocol_settings")
    walk.row("the agent gives it its batch resources", f"{held:.0f} settings of protocol state", "metric")


def suppressed(walk: Walk, agent: Agent) -> None:
    """The best-effort directory gets a quota below the machine while others need the CPUs."""
    percent = walk.until(lambda: share if (share := quota_of(BEST_EFFORT)) > 0 else 0)
    walk.row("the agent suppresses batch work", f"quota of {percent} % of a CPU", "cgroup")
    active = walk.until(lambda: agent.metric("koord_settings_active"))
    walk.row("the agent suppresses batch work", f"{active:.0f} settings in effect", "metric")


def evicted(walk: Walk, agent: Agent) -> None:
    """Memory counts as short: the pod of the lower priority goes first, and the node is tainted."""
    before = {name: walk.pods(name)[0]["metadata"]["uid"] for name in CLASSES}
    ends: dict[str, float] = {}

    def both_gone() -> bool:
        if "taint" not in ends and walk.taint() is not None:
            ends["taint"] = time.monotonic() - walk.started
        for name in CLASSES:
            if name not in ends and all(pod["metadata"]["uid"] != before[name] for pod in walk.pods(name)):
                ends[name] = time.monotonic() - walk.started
        return set(ends) >= set(CLASSES)

    walk.configure(evict_from_percent=2)
    walk.until(both_gone, 120)
    walk.configure(evict_from_percent=99)
    assert ends["walk-first"] < ends["walk-last"]
    tainted = ends.pop("taint", 0.0)
    walk.row("the agent evicts in order", ", ".join(f"{name} at {at:.1f} s" for name, at in ends.items()), "object")
    notes = walk.until(lambda: walk.events("EvictedForInterference"))
    walk.row("the agent evicts in order", notes[0][:90], "Event")
    walk.row("the agent evicts in order", f"{agent.metric('koord_actions_total'):.0f} decisions", "metric")
    taint = walk.until(walk.taint)
    walk.row("the manager taints the node", f"{taint['effect']} at {tainted:.1f} s", "object")
    notes = walk.until(lambda: walk.events("Tainted", walk.node.name))
    walk.row("the manager taints the node", notes[0][:90], "Event")


def kept_away(walk: Walk) -> None:
    """The successors wait until the cool-down is over, and run then."""
    began = time.monotonic()
    while walk.taint() is not None:
        walk.check()
        for name in CLASSES:
            bound = [pod["metadata"]["name"] for pod in walk.pods(name) if pod["spec"].get("nodeName")]
            assert not bound, f"{bound} came back {time.monotonic() - began:.1f} s after the last eviction"
        assert time.monotonic() - began < 3 * COOLDOWN_SECONDS + 60, "the taint stays"
        time.sleep(0.2)
    waited = time.monotonic() - began
    walk.row("nothing comes back for the cool-down", f"{waited:.0f} s without a pod", "object")
    notes = walk.until(lambda: walk.events("FailedScheduling"))
    walk.row("nothing comes back for the cool-down", notes[-1][:90], "Event")
    notes = walk.until(lambda: walk.events("Untainted", walk.node.name))
    walk.row("the manager removes the taint", notes[0][:90], "Event")
    for name in CLASSES:
        pod = walk.until(lambda name=name: walk.running(name))
        created = epoch_seconds(pod["metadata"]["creationTimestamp"]) or 0.0
        walk.row("the successor runs after it", f"{name}, {time.time() - created:.0f} s after it was made", "object")
