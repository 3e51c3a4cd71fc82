"""Rate of placements, with load and interference awareness on: `python -m bench.schedule COMMAND`.

`inprocess` measures decisions of one engine on one core, bindings answered at once. `live` starts an API server (the
in-process twin in a process of its own) or takes the one that --kubeconfig names, fills it with nodes, starts
`koord-scheduler run` and measures what a watch shows; with --stock in turn with the stock scheduler. `scale` measures
the CPU time of each step of the scheduling thread in a large cluster, and its memory; `claims` attempts with volumes,
`devices` attempts with resource claims, `plans` attempts that decide for many pods at once.
"""

import json
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import click

from bench.schedule.decisions import measure
from bench.schedule.devices import devices
from bench.schedule.live import live, own_column, stock_column, twin_process
from bench.schedule.plans import run_plans
from bench.schedule.scale import claims, printed, scale
from bench.schedule.scene import Scene
from cluster import Client, ClientSettings, connect, plain_endpoint

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
@click.option("--nodes", default=1000, show_default=True)
@click.option("--pods", default=5000, show_default=True)
@click.option("--workloads", default=50, show_default=True, help="Workloads that the pods belong to.")
@click.option("--burst", default=20, show_default=True, help="Pods of one workload in a row.")
@click.option("--seed", default=0, show_default=True)
@click.pass_context
def main(ctx: click.Context, nodes: int, pods: int, workloads: int, burst: int, seed: int) -> None:
    """Measure placements."""
    ctx.obj = Scene(nodes, pods, workloads, burst, seed)


@main.command()
@click.pass_obj
def inprocess(scene: Scene) -> None:
    """Decisions of one engine on one core."""
    print(json.dumps(asdict(measure(scene)), indent=2))


@main.command(name="scale")
@click.option("--running", default=30_000, show_default=True, help="Pods that run from the start.")
@click.option("--arrivals", default=400, show_default=True, help="Pods that come each second; as many end.")
@click.option("--seconds", default=30, show_default=True)
@click.pass_obj
def run_scale(scene: Scene, running: int, arrivals: int, seconds: int) -> None:
    """Steps of the scheduling thread in a large cluster, and its memory."""
    print(printed(scale(scene, running, arrivals, seconds)))


@main.command(name="claims")
@click.option("--volumes", default=5000, show_default=True, help="Free volumes, each on one node.")
@click.option("--attempts", default=500, show_default=True)
@click.pass_obj
def run_claims(scene: Scene, volumes: int, attempts: int) -> None:
    """Attempts of pods with a claim that waits for its first consumer."""
    print(printed(claims(scene, volumes, attempts)))


@main.command(name="devices")
@click.option("--per-node", default=8, show_default=True, help="Devices of each node.")
@click.option("--attempts", default=300, show_default=True)
@click.option("--count", default=2, show_default=True, help="Devices that a claim asks for, of one NUMA node.")
@click.option("--named", is_flag=True, help="Give each device an attribute of its own, as GPUs have their UUID.")
@click.pass_obj
def run_devices(scene: Scene, per_node: int, attempts: int, count: int, named: bool) -> None:
    """Attempts of pods with resource claims beside pods without."""
    print(printed(devices(scene, per_node, attempts, count, named=named)))


main.add_command(run_plans)


@main.command(name="live")
@click.option("--kubeconfig", type=FILE, help="An API server with no nodes of its own, instead of the twin.")
@click.option("--stock", type=FILE, help="A kube-scheduler to measure in turn with ours; needs --kubeconfig.")
@click.option("--rounds", default=1, show_default=True, help="Measurements of each.")
@click.option("--arrivals", default=0.0, show_default=True, help="Pods a second; 0: a backlog, there from the start.")
@click.option("--server-pid", "pids", type=int, multiple=True, help="Process of the API server or etcd; repeatable.")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds to wait for the last binding.")
@click.pass_obj
def run_live(
    scene: Scene,
    kubeconfig: Path | None,
    stock: Path | None,
    rounds: int,
    arrivals: float,
    pids: tuple[int, ...],
    timeout: float,
) -> None:
    """A backlog, or arrivals, through an API server."""
    if stock is not None and kubeconfig is None:
        raise click.UsageError("--stock needs --kubeconfig: the twin is no server for the stock scheduler")
    settings = ClientSettings(requests_per_second=100_000, burst=100_000)
    with nullcontext("") if kubeconfig else twin_process() as url, tempfile.TemporaryDirectory() as folder:
        client = Client(plain_endpoint(url), settings) if url else connect(settings, kubeconfig=kubeconfig)
        columns = [own_column(["--server", url] if url else ["--kubeconfig", str(kubeconfig)])]
        if stock is not None and kubeconfig is not None:
            columns.append(stock_column(stock, kubeconfig, Path(folder)))
        with client:
            found = live(
                client,
                scene,
                columns,
                rounds=rounds,
                arrivals_per_second=arrivals,
                timeout_seconds=timeout,
                server_pids=pids,
            )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
