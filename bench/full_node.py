"""Cost of the agent in cluster mode on a full node: CPU, resident memory over time, requests a minute.

    sudo .venv/bin/python -m bench.full_node [--pods 110] [--containers 250] [--seconds 600] [--enforce] [--json]

Kubelet, runtime and API server answer from memory; the cgroups are real, below a cgroup root of their own, and each
holds a process that wakes ten times a second. Goals: at most 150 MB, which stay, and 4 % of one core.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec

from api.crds import NODE_METRIC, NODE_SLO
from bench.agent import _SLEEPER, children_of, cpu_seconds, resident_bytes
from bench.detect.services import free_port
from cluster import NODES, custom
from cluster.twin import Twin
from tests.cgroups import CgroupTree, TestCgroup
from tests.koordlet.kubelet.servers import TOKEN, KubeletServer, RuntimeServer, make_certificate

NODE = "node-0"
SAMPLE_SECONDS = 5.0
SAMPLES_A_SCRAPE = 3
"""Samples between two reads of the metrics, which a Prometheus makes every 15 to 60 seconds."""
_QOS = ("Guaranteed", "Burstable", "BestEffort")
_BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
_SETTINGS = """
[metrics]
port = {port}
[detection]
baselines_file = "{folder}/baselines.json"
[cluster]
first_report_seconds = 1.0
[enforcer]
state_dir = "{folder}/state"
audit_file = "{folder}/audit.jsonl"
[prediction]
directory = "{folder}/prediction"
[kubelet]
endpoint = "{endpoint}"
ca_file = "{folder}/ca.crt"
token_file = "{folder}/token"
cri_socket = "{socket}"
root_directory = "{folder}/kubelet"
pod_resources_socket = "{socket}"
"""
_PORT = free_port()
_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: twin, cluster: {{server: "{url}"}}}}]
users: [{{name: agent, user: {{token: agent}}}}]
contexts: [{{name: twin, context: {{cluster: twin, user: agent}}}}]
current-context: twin
"""


@dataclass
class FullNode:
    """Documents of the node's pods, and where their cgroups are."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    sandboxes: list[dict[str, Any]] = field(default_factory=list)
    containers: list[dict[str, Any]] = field(default_factory=list)
    statuses: dict[str, Any] = field(default_factory=dict)
    places: list[tuple[str, str, str]] = field(default_factory=list)
    """Class directory, pod directory and container of each process."""


def full_node(root: str, pods: int, containers: int, first: int = 0) -> FullNode:
    """Return a node with so many pods and containers, sandboxes included; a third is of each Kubernetes class.

    Pods are numbered from `first` on, and nothing of two numbers is the same.
    """
    random, node = Random(first), FullNode()
    for number in range(first, first + pods):
        uid = f"{random.getrandbits(32):08x}-0000-4000-8000-{random.getrandbits(48):012x}"
        qos = _QOS[number % 3]
        inside = "" if qos == "Guaranteed" else f"/{qos.lower()}"
        place = number - first
        count = (containers - pods) * (place + 1) // pods - (containers - pods) * place // pods
        names = [f"c{each}" for each in range(max(count, 1))]
        sandbox = f"{random.getrandbits(256):064x}"
        metadata = {"name": f"pod-{number}", "uid": uid, "namespace": "shop"}
        node.sandboxes.append({"id": sandbox, "metadata": metadata})
        states, specs = [], []
        for name in names:
            identity = f"{random.getrandbits(256):064x}"
            node.containers.append(
                {
                    "id": identity,
                    "pod_sandbox_id": sandbox,
                    "metadata": {"name": name},
                    "state": "CONTAINER_RUNNING",
                }
            )
            states.append({"name": name, "containerID": f"containerd://{identity}", "state": {"running": {}}})
            specs.append({"name": name, "image": "app:1", "resources": _resources(qos)})
            node.places.append((inside, f"pod{uid}", identity))
        node.places.append((inside, f"pod{uid}", sandbox))
        node.pods.append(
            {
                "metadata": {
                    **metadata,
                    "labels": {
                        "koordinator.sh/qosClass": "BE" if qos == "BestEffort" else "LS",
                        "app": f"app-{number}",
                    },
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "ownerReferences": [
                        {
                            "apiVersion": "apps/v1",
                            "kind": "ReplicaSet",
                            "name": f"app-{number // 5}-5d9c6b7f8d",
                            "uid": f"{number // 5:08x}-0000-4000-8000-000000000000",
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "nodeName": NODE,
                    "priority": 5500 if qos == "BestEffort" else 9500,
                    "containers": specs,
                },
                "status": {"phase": "Running", "qosClass": qos, "containerStatuses": states},
            }
        )
        for _, pod, identity in node.places[-len(names) - 1 :]:
            spec = {"linux": {"cgroupsPath": f"{root}/kubepods{inside}/{pod}/{identity}"}}
            node.statuses[identity] = {"info": {"info": json.dumps({"runtimeSpec": spec})}}
    return node


def _resources(qos: str) -> dict[str, Any]:
    if qos == "Guaranteed":
        amounts = {"cpu": "10m", "memory": "16Mi"}
        return {"requests": amounts, "limits": amounts}
    return {"requests": {"cpu": "10m"}} if qos == "Burstable" else {"requests": _BATCH, "limits": _BATCH}


@contextmanager
def cgroups_of(node: FullNode, top: TestCgroup) -> Iterator[None]:
    """The cgroups, each with a process."""
    program = [sys.executable, "-S", "-c", _SLEEPER, str(len(node.places))]
    sleepers = subprocess.Popen(program, stdout=subprocess.PIPE)
    assert sleepers.stdout is not None
    sleepers.stdout.readline()
    made = {"": top.make_cgroup("kubepods")}
    try:
        for (inside, pod, identity), pid in zip(node.places, children_of(sleepers.pid), strict=True):
            if inside not in made:
                made[inside] = made[""].make_cgroup(inside.strip("/"))
            if pod not in made:
                made[pod] = made[inside].make_cgroup(pod)
            made[pod].make_cgroup(identity).add(pid)
        yield
    finally:
        for pid in children_of(sleepers.pid):
            os.kill(pid, signal.SIGKILL)
        sleepers.kill()
        sleepers.wait()


@contextmanager
def agent_of(node: FullNode, root: str, folder: Path, *, enforce: bool, environment: dict[str, str]) -> Iterator[int]:
    """The agent beside servers that answer for the node; yields its process id."""
    certificate = make_certificate(folder, f"DNS:{NODE}")
    (folder / "token").write_text(TOKEN)
    kubelet_settings = {"cgroupRoot": root, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": True}
    answers = {
        "/pods": msgspec.json.encode({"items": node.pods}),
        "/configz": msgspec.json.encode({"kubeletconfig": kubelet_settings}),
    }
    runtime = {
        "Version": {"runtime_name": "containerd", "runtime_version": "2.1"},
        "ListPodSandbox": {"items": node.sandboxes},
        "ListContainers": {"containers": node.containers},
        "ContainerStatus": node.statuses,
        "RuntimeConfig": {"linux": {"cgroup_driver": "CGROUPFS"}},
        "PodResources": {"pod_resources": []},
    }
    socket = folder / "runtime.sock"
    with Twin() as twin, KubeletServer(certificate, answers) as kubelet, RuntimeServer(socket, runtime):
        for definition in (NODE_METRIC, NODE_SLO):
            twin.serve(custom(definition))
        amounts = {"cpu": "64", "memory": "256Gi"}
        labels = {"kubernetes.io/hostname": NODE}
        twin.load(NODES, [{"metadata": {"name": NODE, "labels": labels}, "status": {"allocatable": amounts}}])
        (folder / "kubeconfig").write_text(_KUBECONFIG.format(url=twin.url))
        settings = _SETTINGS.format(port=_PORT, folder=folder, endpoint=kubelet.url, socket=socket)
        (folder / "koordlet.toml").write_text(settings)
        command = [sys.executable, "-m", "koordlet", "run", "--config", str(folder / "koordlet.toml"), "--node", NODE]
        command += ["--kubeconfig", str(folder / "kubeconfig"), *(["--enforce"] if enforce else [])]
        with (folder / "log").open("w") as log:
            agent = subprocess.Popen(command, stderr=log, env=os.environ | environment)
        try:
            yield agent.pid
        finally:
            agent.terminate()
            agent.wait(timeout=60)
            print((folder / "log").read_text(), file=sys.stderr)
            print(sum(twin.requests.values()), "requests to the API server", file=sys.stderr)


def _scrape() -> None:
    """Read the agent's metrics, as a Prometheus does; nothing before they are served."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/metrics", timeout=30) as page:
        page.read()


def parts_of_memory(pid: int) -> dict[str, float]:
    """Resident megabytes of a process: all, those of its own, the heap of malloc, and its private anonymous maps."""
    text = Path(f"/proc/{pid}/smaps").read_text()
    found = {"rss": 0.0, "anonymous": 0.0, "heap": 0.0, "files": 0.0}
    name = ""
    for line in text.splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            words = line.split(None, 5)
            name = words[5] if len(words) > 5 else ""
        elif line.startswith("Rss:"):
            found["rss"] += int(line.split()[1]) / 1000 * 1.024
            if name.startswith("/"):
                found["files"] += int(line.split()[1]) / 1000 * 1.024
            if name == "[heap]":
                found["heap"] += int(line.split()[1]) / 1000 * 1.024
        elif line.startswith("Anonymous:"):
            found["anonymous"] += int(line.split()[1]) / 1000 * 1.024
    return {key: round(value, 1) for key, value in found.items()}


@click.command()
@click.option("--pods", type=click.IntRange(1, 1000), default=110, show_default=True)
@click.option("--containers", type=click.IntRange(2, 3000), default=250, show_default=True, help="With sandboxes.")
@click.option("--seconds", type=click.IntRange(10, 7200), default=600, show_default=True)
@click.option("--enforce", is_flag=True)
@click.option("--environment", multiple=True, metavar="NAME=VALUE", help="For the agent alone.")
@click.option("--json", "as_json", is_flag=True)
def main(pods: int, containers: int, seconds: int, enforce: bool, environment: tuple[str, ...], as_json: bool) -> None:
    """Measure the agent's cost in cluster mode on a full node."""
    tree = CgroupTree.detect()
    top = tree.make_cgroup("full")
    node = full_node(top.path, pods, containers)
    samples: list[dict[str, float]] = []
    with top, cgroups_of(node, top), tempfile.TemporaryDirectory() as name:
        given = dict(each.split("=", 1) for each in environment)
        with agent_of(node, top.path, Path(name), enforce=enforce, environment=given) as pid:
            begun = time.monotonic()
            while (passed := time.monotonic() - begun) < seconds:
                time.sleep(SAMPLE_SECONDS)
                if len(samples) % SAMPLES_A_SCRAPE == 0:
                    _scrape()
                if not resident_bytes(pid):
                    raise click.ClickException(f"the agent ended after {passed:.0f} s")
                row = {"seconds": round(passed + SAMPLE_SECONDS), "mb": round(resident_bytes(pid) / 1e6, 1)}
                row["cpu_seconds"] = round(cpu_seconds(pid), 2)
                if len(samples) % 12 == 11:
                    row |= parts_of_memory(pid)
                samples.append(row)
                if not as_json:
                    print(row, flush=True)
    warm = [each for each in samples if each["seconds"] >= min(60, seconds / 2)]
    spent = warm[-1]["cpu_seconds"] - warm[0]["cpu_seconds"]
    figures = {
        "cpu_percent_of_one_core": spent / max(warm[-1]["seconds"] - warm[0]["seconds"], 1) * 100,
        "resident_mb_first": warm[0]["mb"],
        "resident_mb_last": warm[-1]["mb"],
        "resident_mb_most": max(each["mb"] for each in samples),
    }
    print(json.dumps(figures | {"samples": samples} if as_json else figures))


if __name__ == "__main__":
    main()
