"""Agent, scheduler and manager under churn for half an hour: memory, descriptors, threads and errors.

    sudo .venv/bin/python -m bench.soak [--minutes 30] [--nodes 100] [--json FILE]

The agent runs on this host with all probes that it supports, and acts; its kubelet and runtime answer from memory, its
cgroups are real and hold processes, and those of other programs of this machine are ignored. Every three seconds one of
its pods is replaced. Scheduler and manager share a simulated API server with it: two pods a second are created, placed
and deleted a minute later, every node reports once a minute, and once a minute a node leaves and comes back. Metrics
and pages are read every ten seconds.

Before that the scheduler gets bursts of pods, half of which fit nowhere, until no further thread of it begins: its
writers (`bind_workers`, 16) and their connections are made when they are first needed, and then kept. So they are all
there when the first row is taken, and what grows later is not one of them.

Exits with 1 where a program ended, wrote an error, or did not stay flat: the median of the last quarter against that of
the second, by more than 5 % and 4 MB of memory, or by more than 4 descriptors or threads.
"""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec

from bench.agent import _SLEEPER, children_of, cpu_seconds, resident_bytes
from bench.full_node import _KUBECONFIG, _SETTINGS, FullNode, full_node
from bench.steer import NAMESPACE, a_node, a_report, load, make, server
from cluster import NODES, PODS, Client, ClusterError, DeleteOptions, Key, merge_patch
from controllers.kinds import NODE_METRIC
from tests.cgroups import CgroupTree, TestCgroup
from tests.koordlet.kubelet.servers import TOKEN, KubeletServer, RuntimeServer, make_certificate

NODE = "node-agent"
SLOTS = 40
CONTAINERS = 3
"""Of a pod, its sandbox included."""
POD_SECONDS = 3.0
PODS_PER_SECOND = 2.0
POD_LIFE_SECONDS = 60.0
POD_END_SECONDS = 5.0
"""Time between the deletion of a pod and its end."""
SAMPLE_SECONDS = 10.0
BURST, MOST_BURSTS = 400, 5
"""Pods of a burst before the first row, and bursts."""
BURST_SECONDS = 60.0
"""Time until they are placed, or told why not."""
AGENT_PORT, MANAGER_PORT, PAGE_PORT, SCHEDULER_PORT, HEALTH_PORT = 19317, 19318, 19319, 19320, 19321
MEMORY_RATIO, MEMORY_MB, COUNT = 0.05, 4.0, 4
_ERROR = re.compile(r"Traceback|CRITICAL|\bERROR\b|^\S+ \S+ [EC] ", re.MULTILINE)
_MANAGER = f"""
[page]
port = {PAGE_PORT}
[controllers.workload_profiles]
enabled = true
[controllers.slow_nodes]
enabled = true
"""


@dataclass
class Slot:
    """A pod of the node: its documents, cgroups and processes."""

    node: FullNode
    sleepers: subprocess.Popen[bytes]
    cgroup: TestCgroup

    def end(self) -> None:
        """End the processes and remove the cgroups."""
        for pid in children_of(self.sleepers.pid):
            os.kill(pid, 9)
        self.sleepers.kill()
        self.sleepers.wait()
        self.cgroup.remove()


@dataclass
class Program:
    """One program under test and what was seen of it, a row for each sample."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    rows: list[dict[str, float]] = field(default_factory=list)

    def sample(self, seconds: float) -> None:
        """Take one row. Raises OSError where the program ended."""
        pid = self.process.pid
        self.rows.append(
            {
                "seconds": round(seconds),
                "mb": round(resident_bytes(pid) / 1e6, 1),
                "descriptors": self.count("fd"),
                "threads": self.count("task"),
                "cpu_seconds": round(cpu_seconds(pid), 2),
            }
        )

    def count(self, what: str) -> int:
        """Return the number of its threads (`task`) or descriptors (`fd`). Raises OSError where it ended."""
        return len(os.listdir(f"/proc/{self.process.pid}/{what}"))

    def errors(self) -> list[str]:
        """Return the lines of its log that tell of an error."""
        text = self.log.read_text(errors="replace")
        return [line for line in text.splitlines() if _ERROR.search(line)]

    def quarter(self, number: int, column: str) -> float:
        """Return the median of a quarter of the run, the first being 0."""
        size = max(len(self.rows) // 4, 1)
        return statistics.median(row[column] for row in self.rows[number * size : (number + 1) * size] or self.rows)

    def faults(self) -> list[str]:
        """Return why it was not flat and silent."""
        found = [f"{self.name}: {line}" for line in self.errors()[:5]]
        code = self.process.poll()
        if code is not None:
            last = self.log.read_text(errors="replace").splitlines()[-1:]
            found.append(f"{self.name} ended with {code}: {''.join(last)}")
        before, after = self.quarter(1, "mb"), self.quarter(3, "mb")
        if after - before > max(MEMORY_RATIO * before, MEMORY_MB):
            found.append(f"{self.name}: memory went from {before} to {after} MB")
        for column in ("descriptors", "threads"):
            before, after = self.quarter(1, column), self.quarter(3, column)
            if after - before > COUNT:
                found.append(f"{self.name}: {column} went from {before:g} to {after:g}")
        return found


class Pods:
    """Pods of the agent's node, replaced one by one in what kubelet and runtime answer."""

    def __init__(self, top: TestCgroup) -> None:
        self.top = top
        self._classes = {"": top.make_cgroup("kubepods")}
        self._slots = [self._made(number) for number in range(SLOTS)]
        self.replaced = 0

    def _made(self, number: int) -> Slot:
        node = full_node(self.top.path, 1, CONTAINERS, first=number)
        program = [sys.executable, "-S", "-c", _SLEEPER, str(len(node.places))]
        sleepers = subprocess.Popen(program, stdout=subprocess.PIPE)
        assert sleepers.stdout is not None
        sleepers.stdout.readline()
        sleepers.stdout.close()
        inside, pod, _ = node.places[0]
        if inside not in self._classes:
            self._classes[inside] = self._classes[""].make_cgroup(inside.strip("/"))
        cgroup = self._classes[inside].make_cgroup(pod)
        for (_, _, identity), pid in zip(node.places, children_of(sleepers.pid), strict=True):
            cgroup.make_cgroup(identity).add(pid)
        return Slot(node, sleepers, cgroup)

    def replace(self) -> None:
        """End the oldest pod and start another."""
        self._slots.append(self._made(SLOTS + self.replaced))
        self._slots.pop(0).end()
        self.replaced += 1

    def kubelet(self) -> bytes:
        """Return the kubelet's list of pods."""
        return msgspec.json.encode(
            {"items": [pod | {"spec": pod["spec"] | {"nodeName": NODE}} for pod in self._all("pods")]}
        )

    def runtime(self) -> dict[str, Any]:
        """Return what the runtime answers."""
        statuses = {identity: status for slot in self._slots for identity, status in slot.node.statuses.items()}
        return {
            "Version": {"runtime_name": "containerd", "runtime_version": "2.1"},
            "ListPodSandbox": {"items": self._all("sandboxes")},
            "ListContainers": {"containers": self._all("containers")},
            "ContainerStatus": statuses,
            "RuntimeConfig": {"linux": {"cgroup_driver": "CGROUPFS"}},
            "PodResources": {"pod_resources": []},
        }

    def end(self) -> None:
        """End all pods."""
        for slot in self._slots:
            slot.end()

    def _all(self, name: str) -> list[Any]:
        return [each for slot in self._slots for each in getattr(slot.node, name)]


class Churn:
    """Threads that change the cluster and the node until they are stopped; a fault of theirs ends the run."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.counts: dict[str, int] = {}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def every(self, name: str, seconds: float, step: Callable[[int], None]) -> None:
        """Take a step again and again, with its number."""

        def run() -> None:
            begun = time.monotonic()
            while not self._stopping.wait(max(0.0, begun + self.counts[name] * seconds - time.monotonic())):
                try:
                    step(self.counts[name])
                except (OSError, ClusterError, AssertionError) as error:
                    self.faults.append(f"{name}: {error!r}")
                self.counts[name] += 1

        self.counts[name] = 0
        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        """End all threads."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)


def a_pending_pod(number: int) -> dict[str, Any]:
    """A pod for the scheduler, best-effort in every third place."""
    batch = number % 3 == 0
    amounts = {"kubernetes.io/batch-cpu": "500"} if batch else {"cpu": "500m", "memory": "512Mi"}
    resources = {"requests": amounts, "limits": amounts if batch else {}}
    return {
        "metadata": {
            "name": f"soak-{number}",
            "namespace": "default",
            "labels": {"koordinator.sh/qosClass": "BE" if batch else "LS", "app": f"soak-{number % 20}"},
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "main", "image": "app", "resources": resources}],
        },
    }


@contextmanager
def launched(name: str, command: list[str], folder: Path) -> Iterator[Program]:
    """A program with its log in a file."""
    path = folder / f"{name}.log"
    with path.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=log, stderr=log)
    program = Program(name, process, path)
    try:
        yield program
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
        process.wait()


def read_pages(faults: list[str]) -> None:
    """Read the metrics of every program, and both pages."""
    for port, path in (
        (AGENT_PORT, "/metrics"),
        (AGENT_PORT, "/"),
        (MANAGER_PORT, "/metrics"),
        (PAGE_PORT, "/"),
        (HEALTH_PORT, "/metrics"),
    ):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as page:
                page.read()
        except OSError as error:
            faults.append(f"port {port}{path}: {error}")


def churn_cluster(churn: Churn, client: Client, nodes: int) -> None:
    """Pods that come, are placed and go; reports; a node that leaves and comes back."""
    draw = Random(3)

    def pods(number: int) -> None:
        client.create(PODS, a_pending_pod(number))
        ending = number - int(POD_LIFE_SECONDS * PODS_PER_SECOND)
        if ending >= 0:
            client.delete(PODS, Key("default", f"soak-{ending}"))
        # No kubelet runs on these nodes: what it does at the end of a pod is done here.
        gone = ending - int(POD_END_SECONDS * PODS_PER_SECOND)
        if gone >= 0:
            client.delete(PODS, Key("default", f"soak-{gone}"), DeleteOptions(grace_period_seconds=0))

    def reports(number: int) -> None:
        place = number % nodes
        key, body = Key("", f"node-{place:05d}"), a_report(place, nodes, nodes * 10, draw)
        client.patch(NODE_METRIC, key, merge_patch(body), subresource="status")

    def joins(number: int) -> None:
        # The last node, which reports too: its NodeMetric stays, as it does when a node is drained and comes back.
        key = Key("", f"node-{nodes - 1:05d}")
        if number % 2:
            made = a_node(nodes - 1)
            make(client, NODES, made, made["status"])
        else:
            client.delete(NODES, key)

    churn.every("cluster pods", 1 / PODS_PER_SECOND, pods)
    churn.every("reports", 60 / nodes, reports)
    churn.every("node changes", 30, joins)


def warm(client: Client, program: Program) -> None:
    """Send bursts of pods until one has the program start no further thread."""
    for burst in range(MOST_BURSTS):
        before = program.count("task")
        _burst(client, burst)
        if program.count("task") == before:
            return


def _burst(client: Client, burst: int) -> None:
    """Pods that come at once, every other one for no node, and end when each is placed or told why not."""
    names = [f"warm-{burst}-{number}" for number in range(BURST)]

    def made(place: int) -> None:
        pod = a_pending_pod(place)
        pod["metadata"]["name"] = names[place]
        if place % 2:
            pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4000"}}
        client.create(PODS, pod)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(made, range(BURST)))
    deadline = time.monotonic() + BURST_SECONDS
    while time.monotonic() < deadline and any(_is_untold(item.value) for item in client.list(PODS).items):
        time.sleep(0.5)
    for name in names:
        client.delete(PODS, Key("default", name), DeleteOptions(grace_period_seconds=0))


def _is_untold(pod: dict[str, Any] | None) -> bool:
    return pod is not None and not pod["spec"].get("nodeName") and not (pod.get("status") or {}).get("conditions")


def all_but(top: str) -> list[str]:
    """Patterns of every cgroup outside of a directory: what else runs on this machine comes and goes."""
    differs = [f"{top[:place]}[!{top[place]}]*" for place in range(1, len(top))]
    return [*differs, *(top[:place] for place in range(2, len(top)))]


@contextmanager
def agent_settings(pods: Pods, folder: Path, url: str) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Servers that answer for the agent's node; yields its settings file and a step that replaces a pod."""
    certificate = make_certificate(folder, f"DNS:{NODE}")
    (folder / "token").write_text(TOKEN)
    (folder / "kubeconfig").write_text(_KUBECONFIG.format(url=url))
    configuration = {"cgroupRoot": pods.top.path, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": True}
    answers = {"/pods": pods.kubelet(), "/configz": msgspec.json.encode({"kubeletconfig": configuration})}
    socket = folder / "runtime.sock"
    with KubeletServer(certificate, answers) as kubelet, RuntimeServer(socket, pods.runtime()) as runtime:
        text = _SETTINGS.format(port=AGENT_PORT, folder=folder, endpoint=kubelet.url, socket=socket)
        ignored = json.dumps(all_but(pods.top.path))
        (folder / "koordlet.toml").write_text(f"{text}[cgroups]\nignore = {ignored}\n")

        def replace() -> None:
            pods.replace()
            kubelet.answers["/pods"] = pods.kubelet()
            runtime.cri = pods.runtime()

        yield folder / "koordlet.toml", replace


def summary(programs: list[Program], minutes: float) -> str:
    """Return a table: a row for each program, with its quarters."""
    lines = [
        f"{'program':<10} {'MB, by quarter':<28} {'descriptors':<14} {'threads':<12} {'CPU, % of a core':>16} errors"
    ]
    for each in programs:
        memory = " ".join(f"{each.quarter(number, 'mb'):6.1f}" for number in range(4))
        counted = [f"{each.quarter(1, name):g} -> {each.quarter(3, name):g}" for name in ("descriptors", "threads")]
        spent = 100 * (each.rows[-1]["cpu_seconds"] - each.rows[0]["cpu_seconds"]) / (minutes * 60)
        lines.append(
            f"{each.name:<10} {memory:<28} {counted[0]:<14} {counted[1]:<12} {spent:>16.1f} {len(each.errors())}"
        )
    return "\n".join(lines)


@click.command()
@click.option("--minutes", type=click.FloatRange(0.5, 24 * 60), default=30.0, show_default=True)
@click.option("--nodes", type=click.IntRange(2, 5000), default=100, show_default=True, help="Simulated, beside ours.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="All samples go there.")
def main(minutes: float, nodes: int, json_file: Path | None) -> None:
    """Run all three programs under churn, and say whether they stayed flat and silent."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started must end with us
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    tree = CgroupTree.detect()
    churn, begun = Churn(), time.monotonic()
    with (
        tree.make_cgroup("soak") as top,
        tempfile.TemporaryDirectory(prefix="koord-soak-") as name,
        server(None, "") as (client, options),
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        load(client, nodes, 0)
        own = {**a_node(0), "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}}
        make(client, NODES, own, own["status"])
        pods = Pods(top)
        stack.callback(pods.end)
        settings, replace = stack.enter_context(agent_settings(pods, folder, options[1]))
        (folder / "manager.toml").write_text(_MANAGER)
        agent = ["koordlet", "run", "--enforce", "--config", str(settings), "--node", NODE]
        manager = ["controllers", *options, "--config", str(folder / "manager.toml"), "run"]
        scheduler = ["scheduler", *options, "run", "--port", str(SCHEDULER_PORT)]
        programs = [
            stack.enter_context(launched(program, command, folder))
            for program, command in (
                ("koordlet", [*agent, "--kubeconfig", str(folder / "kubeconfig")]),
                ("manager", [*manager, "--port", str(MANAGER_PORT), "--lease", f"{NAMESPACE}/koord-manager"]),
                ("scheduler", [*scheduler, "--health-address", f"127.0.0.1:{HEALTH_PORT}"]),
            )
        ]
        time.sleep(20)
        warm(client, programs[-1])
        churn_cluster(churn, client, nodes)
        churn.every("node pods", POD_SECONDS, lambda _: replace())
        churn.every("reads", SAMPLE_SECONDS, lambda _: read_pages(churn.faults))
        stack.callback(churn.stop)
        print(f"begun {time.monotonic() - begun:.0f} s after the command, for {minutes:g} minutes", flush=True)
        started = time.monotonic()
        while (passed := time.monotonic() - started) < minutes * 60:
            if any(each.process.poll() is not None for each in programs):
                break  # nothing is left to learn from the others
            time.sleep(min(SAMPLE_SECONDS, minutes * 60 - passed + 0.1))
            for each in programs:
                with contextlib.suppress(OSError):
                    each.sample(time.monotonic() - started)
            if len(programs[0].rows) % 6 == 0:
                latest = "; ".join(
                    f"{each.name} {each.rows[-1]['mb']} MB, {each.rows[-1]['descriptors']:g} fds" for each in programs
                )
                print(f"{passed / 60:5.1f} min: {latest}", flush=True)
        placed = sum(bool(item.value["spec"].get("nodeName")) for item in client.list(PODS).items)
        churn.stop()
        print(summary(programs, minutes))
        print(f"{pods.replaced} pods of the node replaced, {churn.counts}; {placed} pods placed at the end")
        found = [*churn.faults[:20], *(fault for each in programs for fault in each.faults())]
        alive = int((POD_LIFE_SECONDS + POD_END_SECONDS) * PODS_PER_SECOND)
        if not 0 < placed <= 1.2 * alive:
            found.append(f"{placed} pods are placed at the end, where {alive} live")
        if json_file is not None:
            json_file.write_text(json.dumps({each.name: each.rows for each in programs}))
    print("\n".join(found) or "flat and silent")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
