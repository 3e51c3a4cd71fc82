"""The enforcing agent beside a real kubelet: which pods it writes, what stays when it ends, and eviction."""

import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster import POD_DISRUPTION_BUDGETS, PODS, Document, Key
from koordlet.enforcer.journal_format import JournalEntry, Kind
from tests.cluster_e2e.agent import agent_running
from tests.cluster_e2e.cgroup_layout import BEST_EFFORT, ROOT, pod_part
from tests.cluster_e2e.conftest import Pods
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import BATCH, BATCH_RESOURCES, QOS_CLASS, SLO, install
from tests.cluster_e2e.test_koordlet import BUSY, settings_below
from tests.cluster_e2e.test_node import BURSTABLE, GUARANTEED
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.cluster

CONTENTION_SECONDS = 30.0
SOME_CPU: Document = {"requests": {"cpu": "200m"}}


def uid_of(pods: Pods, name: str) -> str:
    """Uid of a pod as the kubelet's cgroups have it."""
    uid: str = pods.node.client.get(PODS, Key(pods.namespace, name))["metadata"]["uid"]
    return uid


def audited(folder: Path) -> list[Document]:
    """Lines of the audit that say that something was written."""
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return [line for line in lines if line["outcome"] in ("set", "set_again")]


def test_only_pods_of_class_be_and_their_directory_are_written(node: Node, pods: Pods, tmp_path: Path) -> None:
    install(node.client, node.name)
    spared = ("service", "burstable", "guaranteed", "critical")
    pods.run("service", BUSY, SOME_CPU, metadata={"labels": {QOS_CLASS: "LS"}})
    pods.run("burstable", BUSY, BURSTABLE)
    pods.run("guaranteed", BUSY, GUARANTEED)
    pods.run("critical", BUSY, priorityClassName="system-node-critical")
    pods.run("contender", BUSY, SOME_CPU, metadata={"labels": {QOS_CLASS: "BE"}})
    pods.run("batch", BUSY, BATCH_RESOURCES, metadata=BATCH)
    pods.run("best-effort", BUSY)
    parts = [pod_part(uid_of(pods, name)) for name in spared]
    before = {path: text for path, text in settings_below(ROOT).items() if any(part in path for part in parts)}
    assert before
    with agent_running(node, tmp_path) as agent:
        # The best-effort directory is not limited: a critical pod is in it.
        part = pod_part(uid_of(pods, "batch"))
        wait_for(lambda: of(agent.held(Kind.PROTOCOL), part), 60, check=agent.check, interval_seconds=0.5)
        time.sleep(CONTENTION_SECONDS * min(PATIENCE, 2))
        now = settings_below(ROOT)
    assert {path: now.get(path) for path in before} == before
    uids = [uid_of(pods, name) for name in ("contender", "batch", "best-effort")]
    written = {line["target"] for line in audited(tmp_path)}
    assert written
    assert [target for target in written if not is_best_effort(target, uids)] == []
    strategies = sorted({line["strategy"] for line in audited(tmp_path)})
    print(f"{len(audited(tmp_path))} writes on {len(written)} cgroups by {', '.join(strategies)}")


def is_best_effort(target: str, uids: list[str]) -> bool:
    """Whether a cgroup is the best-effort directory or a pod's of these."""
    return target == BEST_EFFORT or any(pod_part(uid) in target for uid in uids)


def of(held: Mapping[str, JournalEntry], part: str) -> list[str]:
    """Keys of held attributes with this part."""
    return [key for key in held if part in key]


def test_protocol_state_stays_actions_go_and_both_are_undone_on_request(node: Node, pods: Pods, tmp_path: Path) -> None:
    install(node.client, node.name)
    pods.run("service", BUSY, SOME_CPU, metadata={"labels": {QOS_CLASS: "LS"}})
    pods.run("batch", BUSY, BATCH_RESOURCES, metadata=BATCH)
    found = settings_below(ROOT)
    with agent_running(node, tmp_path) as agent:
        part = pod_part(uid_of(pods, "batch"))
        wait_for(lambda: of(agent.held(Kind.PROTOCOL), part), 60, check=agent.check, interval_seconds=0.5)
        wait_for(lambda: of(agent.held(Kind.ACTION), "besteffort"), 60, check=agent.check, interval_seconds=0.5)
        actions = agent.held(Kind.ACTION)
        agent.end(signal.SIGINT)
        assert agent.held(Kind.ACTION) == {}
        assert {key: entry.attribute.read() for key, entry in actions.items() if entry.attribute.read()} == {
            key: {entry.original} for key, entry in actions.items() if entry.attribute.read()
        }
        state = agent.held(Kind.PROTOCOL)
        assert of(state, part)
        assert agent.lost(Kind.PROTOCOL) == {}
        said = agent.restore()
        assert agent.held(Kind.PROTOCOL) == {}
    after = settings_below(ROOT)
    changed = {path: (text, after[path]) for path, text in found.items() if after.get(path, text) != text}
    # The kubelet itself follows the number of pods with the shares of its directories.
    assert {path for path in changed if "/pod" in path or "-pod" in path} == set()
    print(f"{len(actions)} actions, {len(state)} of protocol state; {said.splitlines()[-1]}")


MEMORY_SLO: Document = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "memoryEvictThresholdPercent": 2,
        "memoryEvictLowerPercent": 1,
        "cpuSuppressThresholdPercent": SLO["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"],
    }
}
"""Memory is short at any usage, so best-effort pods are evicted."""


def test_best_effort_pods_are_evicted_through_the_api_server(node: Node, pods: Pods, tmp_path: Path) -> None:
    install(node.client, node.name, MEMORY_SLO)
    pods.run("service", BUSY, SOME_CPU, metadata={"labels": {QOS_CLASS: "LS"}})
    pods.run("guaranteed", BUSY, GUARANTEED)
    pods.run("batch", ["sh", "-c", "i=0; while :; do sleep 1; done"], BATCH_RESOURCES, metadata=BATCH)
    with agent_running(node, tmp_path, evict=True):
        wait_for(lambda: is_ending(node, pods, "batch"), 120, interval_seconds=0.5, check=lambda: audit_end(tmp_path))
    for name in ("service", "guaranteed"):
        assert node.client.get(PODS, Key(pods.namespace, name))["status"]["phase"] == "Running"


def test_a_disruption_budget_is_respected_and_told(node: Node, pods: Pods, tmp_path: Path) -> None:
    install(node.client, node.name, MEMORY_SLO)
    metadata = {**BATCH, "labels": {**BATCH["labels"], "app": "batch"}}
    pods.run("batch", ["sh", "-c", "while :; do sleep 1; done"], BATCH_RESOURCES, metadata=metadata)
    pods.run("service", BUSY, SOME_CPU, metadata={"labels": {QOS_CLASS: "LS"}})
    budget = Key(pods.namespace, "all-of-it")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "batch"}}}
    node.client.create(
        POD_DISRUPTION_BUDGETS, {"metadata": {"name": budget.name, "namespace": budget.namespace}, "spec": spec}
    )

    def is_counted() -> bool:
        status = node.client.get(POD_DISRUPTION_BUDGETS, budget).get("status", {})
        return status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0

    wait_for(is_counted, 60, check=node.programs.check, interval_seconds=0.2)
    with agent_running(node, tmp_path, evict=True):
        refused = wait_for(
            lambda: [each for each in audit_of(tmp_path) if each["outcome"] == "disruption_budget"],
            120,
            interval_seconds=0.5,
            check=lambda: audit_end(tmp_path),
        )
        assert "disruption budget" in refused[0]["reason"].lower()
        batch = node.client.get(PODS, Key(pods.namespace, "batch"))
        assert "deletionTimestamp" not in batch["metadata"]
        assert batch["status"]["phase"] == "Running"
        node.client.delete(POD_DISRUPTION_BUDGETS, budget)
        wait_for(lambda: is_ending(node, pods, "batch"), 180, interval_seconds=0.5, check=lambda: audit_end(tmp_path))
    attempts = [each for each in audit_of(tmp_path) if each["outcome"] == "disruption_budget"]
    print(f"{len(attempts)} attempts refused by the budget: {refused[0]['reason']}")


def is_ending(node: Node, pods: Pods, name: str) -> bool:
    """Whether a pod is gone or about to be."""
    pod = node.client.find(PODS, Key(pods.namespace, name))
    return pod is None or "deletionTimestamp" in pod["metadata"]


def audit_of(folder: Path) -> list[Document]:
    """Lines of the audit."""
    audit = folder / "audit.jsonl"
    return [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []


def audit_end(folder: Path) -> str:
    """Last lines of audit and log."""
    audit = folder / "audit.jsonl"
    return (audit.read_text()[-2000:] if audit.exists() else "no audit") + (folder / "log").read_text()[-3000:]
