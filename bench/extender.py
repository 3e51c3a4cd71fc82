"""Gangs through a real kube-scheduler and our extender: `python -m bench.extender --kubeconfig FILE --stock PROGRAM`.

Each round is a gang of eight members whose minimum is eight. In three of five rounds all members come at once; in one
the last comes seconds later; in one it never comes, and none may be bound. Many rounds run at a time.
The API server must be empty: no controllers, no kubelet.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
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
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Members:
    """Bound members of each gang, from a watch."""

    def __init__(self) -> None:
        self.bound: defaultdict[str, set[str]] = defaultdict(set)
        self.changed = threading.Condition()

    def __call__(self, deltas: Iterable[StoreDelta[Document]]) -> None:
        with self.changed:
            for delta in deltas:
                if delta.new is not None and delta.new["spec"].get("nodeName"):
                    self.bound[delta.new["metadata"]["labels"]["gang"]].add(delta.new["metadata"]["uid"])
            self.changed.notify_all()

    def wait(self, gang: str, seconds: float) -> int:
        """Wait until all members of a gang are bound, or the time is over; the number of those bound."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.bound[gang]) >= MEMBERS, seconds)
            return len(self.bound[gang])


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
                "weight": 10,
                "nodeCacheCapable": True,
                "httpTimeout": "65s",
            }
        ],
    }


@click.command()
@click.option("--kubeconfig", type=FILE, required=True)
@click.option("--stock", type=FILE, required=True, help="kube-scheduler.")
@click.option("--rounds", default=1000, show_default=True)
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder for the schedulers' logs.")
def main(kubeconfig: Path, stock: Path, rounds: int, logs: Path | None) -> None:
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
            ThreadPoolExecutor(AT_ONCE) as pool,
        ):
            informer.subscribe(members)
            time.sleep(5.0)
            began = time.monotonic()
            found = list(pool.map(lambda number: play(client, members, number), range(rounds)))
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
        "slowest whole gang, seconds": round(max(seconds for kind, _, seconds in found if kind == "whole"), 1),
        "gangs bound in part": sum(count for (_, bound), count in outcomes.items() if 0 < bound < MEMBERS),
    }
    print(json.dumps(result, indent=2))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
