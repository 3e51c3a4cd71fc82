"""Two managers at a real API server: one leads, the other takes over, and an outage withdraws and repeats nothing.

The API server is stopped for `KOORD_OUTAGE_SECONDS`, 75 by default: longer than reports may be old here.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.crds import DEFINITIONS, definition_document
from api.kube.times import rfc3339
from cluster import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    NAMESPACES,
    NODES,
    Client,
    ClusterError,
    Key,
    connect,
    merge_patch,
)
from controllers.kinds import NODE_METRIC
from tests.cluster import apiserver
from tests.cluster_e2e.test_webhooks import FAST
from tests.waiting import PATIENCE, wait_for

OUTAGE_SECONDS = float(os.environ.get("KOORD_OUTAGE_SECONDS", "75"))
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(OUTAGE_SECONDS + 300 * PATIENCE)]

ROOT = Path(__file__).parents[2]
NAMESPACE = "koordinator-system"
BATCH_CPU = "kubernetes.io/batch-cpu"
NAMES = [f"n{number}" for number in range(20)]
DEGRADE_MINUTES = max(1, int(OUTAGE_SECONDS // 120))
"""Reports are too old before the outage ends; twice this long the resources of nodes that are all silent stay."""
STRATEGY = json.dumps({"enable": True, "degradeTimeMinutes": DEGRADE_MINUTES, "updateTimeThresholdSeconds": 3600})
SOLD, LATER = "53k", "43k"
"""Batch-cpu of a node whose system uses 7 cores, and 17: 100 cores less 40 less these."""
WATCH_SECONDS = 40.0
"""Time after the return for which writes and requests are looked at."""
MOST_REQUESTS = 200
"""Bound on both managers' requests in that time: lists and watches of a dozen kinds, the lease, 20 nodes."""


@dataclass
class Manager:
    """One process and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def metric(self, name: str) -> float:
        """Sum of a metric's series."""
        port = wait_for(lambda: re.search(r"HTTP on port (\d+)", self.log.read_text()))[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return sum(map(float, re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+-]+)$", text, re.MULTILINE)))


@contextlib.contextmanager
def manager(kubeconfig: Path, log: Path) -> Iterator[Manager]:
    command = [sys.executable, "-m", "controllers", "--kubeconfig", str(kubeconfig), "run", "--port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--address", "127.0.0.1"], cwd=ROOT, stderr=file)
    try:
        yield Manager(process, log)
    finally:
        process.kill()
        process.wait(10)


@dataclass
class Site:
    """An API server with nodes and their reports."""

    client: Client
    kubeconfig: Path
    server: int
    """Pid of the API server."""

    def report(self, *names: str, system: str = "7") -> None:
        for name in names:
            usage = {"resources": {"cpu": system, "memory": "12G"}}
            status = {"updateTime": rfc3339(time.time()), "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
            self.client.patch(NODE_METRIC, Key("", name), merge_patch({"status": status}), subresource="status")

    def add(self, *names: str) -> None:
        resources = {"cpu": "100", "memory": "120G"}
        for name in names:
            self.client.create(NODES, {"metadata": {"name": name}})
            status = {"capacity": resources, "allocatable": resources}
            self.client.patch(NODES, Key("", name), merge_patch({"status": status}), subresource="status")
            with contextlib.suppress(ClusterError):
                self.client.create(NODE_METRIC, {"metadata": {"name": name}, "spec": {}})
            self.report(name)

    def nodes(self) -> dict[str, Any]:
        return {item.identity.key.name: item.value for item in self.client.list(NODES).items if item.value}

    def sold(self) -> dict[str, str | None]:
        return {name: each["status"]["allocatable"].get(BATCH_CPU) for name, each in self.nodes().items()}

    def versions(self) -> dict[str, str]:
        return {name: each["metadata"]["resourceVersion"] for name, each in self.nodes().items()}

    def holder(self) -> str:
        lease = self.client.find(LEASES, Key(NAMESPACE, "koord-manager"))
        return str((lease or {}).get("spec", {}).get("holderIdentity") or "")


def child(name: str) -> int:
    """Return the pid of a child of this process."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            text = status.read_text()
            if f"Name:\t{name[:15]}\n" in text and f"PPid:\t{os.getpid()}\n" in text:
                return int(status.parent.name)
    raise AssertionError(f"{name} does not run")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("manager")
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    with (
        apiserver.running(assets, folder) as kubeconfig,
        contextlib.closing(connect(FAST, kubeconfig=kubeconfig)) as client,
    ):
        for definition in DEFINITIONS:
            client.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
        client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        config = {"name": "slo-controller-config", "namespace": NAMESPACE}
        client.create(CONFIG_MAPS, {"metadata": config, "data": {"colocation-config": STRATEGY}})
        made = Site(client, kubeconfig, child("kube-apiserver"))

        def served() -> bool:
            with contextlib.suppress(ClusterError):
                return client.list(NODE_METRIC) is not None
            return False

        wait_for(served)
        made.add(*NAMES)
        yield made


def test_a_kill_and_an_outage(site: Site, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(manager(site.kubeconfig, tmp_path / "first"))
        wait_for(lambda: set(site.sold().values()) == {SOLD}, 60)
        second = stack.enter_context(manager(site.kubeconfig, tmp_path / "second"))
        wait_for(lambda: "synced" in second.log.read_text(), 60)
        assert "leading" not in second.log.read_text()
        before, holder = site.versions(), site.holder()

        os.kill(first.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        site.add("late")
        wait_for(lambda: site.sold()["late"] == SOLD, 60)
        took = time.monotonic() - killed
        print(f"takeover took {took:.1f} s")
        assert took < 15.0 * PATIENCE
        assert site.holder() != holder
        after = site.versions()
        assert {name: after[name] for name in NAMES} == before, "no node was written again"

        third = stack.enter_context(manager(site.kubeconfig, tmp_path / "third"))
        wait_for(lambda: "synced" in third.log.read_text(), 60)
        written = site.versions()
        os.kill(site.server, signal.SIGSTOP)
        try:
            time.sleep(OUTAGE_SECONDS)
            requests = sum(each.metric("koord_manager_requests_total") for each in (second, third))
        finally:
            os.kill(site.server, signal.SIGCONT)
        # Every report is older than may be; the nodes have as long to renew theirs.
        wait_for(lambda: site.sold() is not None, 60)
        site.report(*NAMES, "late")
        time.sleep(WATCH_SECONDS)
        assert set(site.sold().values()) == {SOLD}, "nothing was withdrawn"
        assert site.versions() == written, "nothing was written"
        more = sum(each.metric("koord_manager_requests_total") for each in (second, third)) - requests
        print(f"{more:.0f} requests of two managers in {WATCH_SECONDS:.0f} s after {OUTAGE_SECONDS:.0f} s away")
        assert more < MOST_REQUESTS
        site.report("late", system="17")
        wait_for(lambda: site.sold()["late"] == LATER, 60)
        assert sum(each.metric("koord_manager_leading") for each in (second, third)) == 1
