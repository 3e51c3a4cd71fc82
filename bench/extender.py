"""Pods through a real kube-scheduler and our extender: `python -m bench.extender --kubeconfig FILE --stock PROGRAM`.

First pods of random sizes one by one: before each, our scheduler says where it would place it, without doing so, and
kube-scheduler must choose the same node. Then gangs: each round is one of eight members, all of them needed. In three
of five rounds all members come at once; in one the last comes seconds later; in one it never comes, and none may be
bound. Many rounds run at a time; a line tells how far they are.
The API server must be empty: no controllers, no kubelet.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec

from cluster import (
    NODES,
    PODS,
    Client,
    ClientSettings,
    DeleteOptions,
    Document,
    Informer,
    Key,
    StoreDelta,
    connect,
    merge_patch,
)

NAMESPACE = "default"
MEMBERS = 8
AT_ONCE = 24
NODES_COUNT, CORES = 26, 8
"""Room for the gangs that run at a time, and two that are being deleted. With less, the stock scheduler gives parts of
the room to more gangs than fit, and all of them wait for the 60 s after which the extender gives them up."""
LATE_SECONDS = 2.0
ALONE_SECONDS = 6.0
"""Time for which an incomplete gang is watched."""
WHOLE_SECONDS = 300.0
GANG = "gang.scheduling.koordinator.sh"
WEIGHT = 1000
"""With it, one step of our score outweighs all scores of the stock scheduler together."""
TELL_SECONDS = 10.0
READY_SECONDS = 120.0
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Members:
    """Bound members of each gang, and nodes of other pods, from a watch."""

    def __init__(self) -> None:
        self.bound: defaultdict[str, set[str]] = defaultdict(set)
        self.nodes: dict[str, str] = {}
        """Nodes of pods without a gang."""
        self.changed = threading.Condition()

    def __call__(self, deltas: Iterable[StoreDelta[Document]]) -> None:
        with self.changed:
            for delta in deltas:
                if delta.new is None or not delta.new["spec"].get("nodeName"):
                    continue
                labels = delta.new["metadata"]["labels"]
                if "gang" in labels:
                    self.bound[labels["gang"]].add(delta.new["metadata"]["uid"])
                else:
                    self.nodes[labels["single"]] = delta.new["spec"]["nodeName"]
            self.changed.notify_all()

    def wait(self, gang: str, seconds: float) -> int:
        """Wait until all members of a gang are bound, or the time is over; the number of those bound."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.bound[gang]) >= MEMBERS, seconds)
            return len(self.bound[gang])

    def node_of(self, single: str, seconds: float) -> str:
        """Wait until a pod without a gang is bound; its node, empty when the time is over."""
        with self.changed:
            self.changed.wait_for(lambda: single in self.nodes, seconds)
            return self.nodes.get(single, "")


@dataclass(slots=True)
class Agreement:
    """Where the stock scheduler placed pods, beside where ours would have."""

    same: int = 0
    """On the node that our scheduler named."""
    equally_good: int = 0
    """On another one to which it gives the same score: both draw among these."""
    other: int = 0


def compare(client: Client, members: Members, port: int, pods: int) -> Agreement:
    """Place pods one by one; they are deleted in the end."""
    draw, found = Random(0), Agreement()
    names = [f"n{index}" for index in range(NODES_COUNT)]
    for number in range(pods):
        name = f"single-{number:04d}"
        document = single(name, draw)
        extended = {"Pod": document, "NodeNames": names}
        simulated = ask(port, "/v1/placements:simulate", {"pods": [{"pod": document}]})["placements"][0]["node"]
        scores = {each["Host"]: each["Score"] for each in ask(port, "/extender/prioritize", extended)}
        client.create(PODS, document)
        node = members.node_of(name, WHOLE_SECONDS)
        if node and node == simulated:
            found.same += 1
        elif node and scores[node] == max(scores.values()):
            found.equally_good += 1
        else:
            print(
                f"{name}: the stock scheduler chose {node or 'no node'}, ours {simulated}", file=sys.stderr, flush=True
            )
            found.other += 1
    for number in range(pods):
        client.delete(PODS, Key(NAMESPACE, f"single-{number:04d}"), DeleteOptions(grace_period_seconds=0))
    return found


def ask(port: int, path: str, question: Any) -> Any:
    """Ask our scheduler over HTTP."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=msgspec.json.encode(question))
    with urllib.request.urlopen(request, timeout=30.0) as answer:
        return msgspec.json.decode(answer.read())


def await_ready(port: int) -> None:
    """Wait until our scheduler has seen the cluster."""
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5.0):
                return
        except OSError as error:
            if time.monotonic() > until:
                raise click.ClickException(f"our scheduler is not ready: {error}") from error
            time.sleep(0.2)


def single(name: str, draw: Random) -> Document:
    """A pod without a gang."""
    requests = {"cpu": f"{draw.randint(50, 900)}m", "memory": f"{draw.randint(64, 4096)}Mi"}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"single": name}},
        "spec": {
            "schedulerName": "default-scheduler",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "registry.invalid/app", "resources": {"requests": requests}}],
        },
    }


def member(gang: str, index: int) -> Document:
    """A member that takes one core."""
    annotations = {f"{GANG}/name": gang, f"{GANG}/min-available": str(MEMBERS)}
    container = {
        "name": "main",
        "image": "registry.invalid/app",
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    return {
        "metadata": {
            "name": f"{gang}-{index}",
            "namespace": NAMESPACE,
            "labels": {"gang": gang},
            "annotations": annotations,
        },
        "spec": {"automountServiceAccountToken": False, "containers": [container]},
    }


def play(client: Client, members: Members, number: int) -> tuple[str, int, float]:
    """Play one round: its kind, the members bound in the end, and the seconds that this took."""
    kind = ("whole", "whole", "whole", "late", "incomplete")[number % 5]
    gang = f"gang-{number:05d}"
    began = time.monotonic()
    for index in range(MEMBERS - (kind != "whole")):
        client.create(PODS, member(gang, index))
    if kind == "late":
        time.sleep(LATE_SECONDS)
        client.create(PODS, member(gang, MEMBERS - 1))
    bound = members.wait(gang, ALONE_SECONDS if kind == "incomplete" else WHOLE_SECONDS)
    took = time.monotonic() - began
    for index in range(MEMBERS - (kind == "incomplete")):
        client.delete(PODS, Key(NAMESPACE, f"{gang}-{index}"), DeleteOptions(grace_period_seconds=0))
    # A member that was bound while it was deleted.
    bound = max(bound, len(members.bound[gang]))
    return kind, bound, took


def play_all(client: Client, members: Members, rounds: int) -> list[tuple[str, int, float]]:
    """Play the rounds, many at a time, and tell how far they are."""
    began = time.monotonic()
    found: list[tuple[str, int, float]] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = {pool.submit(play, client, members, number) for number in range(rounds)}
        while waiting:
            done, waiting = wait(waiting, TELL_SECONDS, FIRST_EXCEPTION)
            if any(each.exception() for each in done):
                pool.shutdown(wait=False, cancel_futures=True)
            found += [each.result() for each in done]
            right = sum(bound == (0 if kind == "incomplete" else MEMBERS) for kind, bound, _ in found)
            print(
                f"{time.monotonic() - began:6.0f} s  rounds {len(found)}, as they must be {right}"
                f"  slowest so far {max((took for _, _, took in found), default=0.0):.1f} s",
                file=sys.stderr,
                flush=True,
            )
    return found


def build(client: Client) -> None:
    """Make the nodes."""
    for index in range(NODES_COUNT):
        name = f"n{index}"
        amounts = {"cpu": str(CORES), "memory": "64Gi", "pods": "110"}
        client.create(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        client.patch(NODES, Key("", name), merge_patch({"status": status}), subresource="status")


@contextmanager
def process(command: list[str], log: Path) -> Iterator[None]:
    """Run a program; raises where it ended by itself."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as running:
        try:
            yield
            if running.poll() is not None:
                raise click.ClickException(f"{command[0]} ended:\n{log.read_text(errors='replace')[-2000:]}")
        finally:
            running.terminate()


def stock_settings(kubeconfig: Path, port: int) -> dict[str, Any]:
    """Settings of the stock scheduler, with the extender."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        "podMaxBackoffSeconds": 2,
        "extenders": [
            {
                "urlPrefix": f"http://127.0.0.1:{port}/extender",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "bindVerb": "bind",
                "weight": WEIGHT,
                "nodeCacheCapable": True,
                "httpTimeout": "65s",
            }
        ],
    }


@click.command()
@click.option("--kubeconfig", type=FILE, required=True)
@click.option("--stock", type=FILE, required=True, help="kube-scheduler.")
@click.option("--rounds", default=1000, show_default=True, help="Gangs.")
@click.option("--pods", default=300, show_default=True, help="Pods whose node is compared, one by one.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder for the schedulers' logs.")
def main(kubeconfig: Path, stock: Path, rounds: int, pods: int, logs: Path | None) -> None:
    """Play the rounds and print what became of the gangs. Exit 1 where one was bound in part, or not at all."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    members = Members()
    settings = ClientSettings(requests_per_second=10_000, burst=10_000)
    with tempfile.TemporaryDirectory() as name, connect(settings, kubeconfig=kubeconfig) as client:
        folder = logs or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        build(client)
        ours = folder / "scheduler.toml"
        ours.write_text('extender_scheduler_names = ["default-scheduler"]\n')
        theirs = folder / "kube-scheduler.yaml"
        theirs.write_bytes(msgspec.yaml.encode(stock_settings(kubeconfig, port)))
        own = [sys.executable, "-m", "scheduler", "--config", str(ours), "--kubeconfig", str(kubeconfig)]
        own += ["run", "--no-leader-elect", "--port", str(port)]
        with (
            Informer(client, PODS.of(dict)) as informer,
            process(own, folder / "own.log"),
            process([str(stock), f"--config={theirs}", "--secure-port=0"], folder / "stock.log"),
        ):
            informer.subscribe(members)
            await_ready(port)
            agreement = compare(client, members, port, pods)
            print(agreement, file=sys.stderr, flush=True)
            began = time.monotonic()
            found = play_all(client, members, rounds)
            took = time.monotonic() - began
    outcomes = Counter((kind, bound) for kind, bound, _ in found)
    wrong = {
        (kind, bound): count
        for (kind, bound), count in outcomes.items()
        if bound != (0 if kind == "incomplete" else MEMBERS)
    }
    result = {
        "rounds": rounds,
        "seconds": round(took, 1),
        "bound members": {f"{kind}: {bound}": count for (kind, bound), count in sorted(outcomes.items())},
        "slowest whole gang, seconds": round(max((took for kind, _, took in found if kind == "whole"), default=0.0), 1),
        "pods on the node that ours names": agreement.same,
        "pods on an equally good one": agreement.equally_good,
        "pods elsewhere": agreement.other,
        "gangs bound in part": sum(count for (_, bound), count in outcomes.items() if 0 < bound < MEMBERS),
    }
    print(json.dumps(result, indent=2))
    sys.exit(1 if wrong or agreement.other else 0)


if __name__ == "__main__":
    main()
