"""Memory and time of following workloads' use: `python -m bench.workload_usage [--workloads 50000]`, on one CPU.

Nodes of fifty pods report once an hour, each pod of a workload of its own, as long as it takes until each workload has
a forecast. Printed are the resident memory that the projection of `controllers/recommend/observed.py` took, beyond the
pods that the manager keeps anyway, and the processor time of a report, of the change of the hour and of the advice.
"""

import os
import time
from pathlib import Path

import click
import numpy as np

from controllers.kinds import NODE_METRIC, POD
from controllers.recommend.advice import Target, advise
from controllers.recommend.observed import WorkloadUsage
from controllers.recommend.outlook import MIN_HOURS
from tests.controllers.recommend.cluster import BEGIN, changed, container, pod, told

PODS = 50
"""Of each node."""


@click.command(help=__doc__)
@click.option("--workloads", default=50_000, show_default=True)
@click.option("--hours", default=MIN_HOURS + 2, show_default=True)
@click.option("--losing", default=0.1, show_default=True, help="Part of the workloads that lose time to their quota.")
def main(workloads: int, hours: int, losing: float) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    draw = np.random.default_rng(1)
    table = WorkloadUsage()
    found = table.value()
    nodes = [range(begin, min(begin + PODS, workloads)) for begin in range(0, workloads, PODS)]
    for number, here in enumerate(nodes):
        made = [pod(f"w{each}", container("app", "1", "1Gi"), nodeName=f"n{number}") for each in here]
        table.apply(POD, changed(*made))
    before = _resident_mb()
    spent = [0.0, 0.0]
    for hour in range(hours):
        cores = draw.lognormal(0.0, 0.5, workloads)
        waited, throttled = draw.exponential(0.02, workloads), np.where(draw.random(workloads) < losing, 0.1, 0.0)
        for number, here in enumerate(nodes):
            changes = []
            for each in here:
                lost = {"waited": float(waited[each]), "throttled": float(throttled[each]) or None}
                used = {f"w{each}": (f"{cores[each] * 1000:.0f}m", "1G")}
                changes += told(BEGIN + 3600 * hour, used, workload=f"Deployment/d/w{each}", node=f"n{number}", **lost)
            report = changes[0]
            for other in changes[1:]:
                report.new.status.pods_metric.extend(other.new.status.pods_metric)
            began = time.process_time()
            table.apply(NODE_METRIC, [report])
            spent[number == 0] += time.process_time() - began
    grown = _resident_mb() - before
    click.echo(f"{len(found.rows)} workloads: {grown:.0f} MB, {grown * 1e3 / len(found.rows):.1f} KB of each")
    click.echo(f"report of {PODS} pods: {spent[0] / (hours * max(len(nodes) - 1, 1)) * 1e3:.2f} ms")
    click.echo(f"first report of an hour: {spent[1] / hours:.2f} s on average")
    began = time.process_time()
    made = advise(found, [Target((name,)) for name in found.rows], {})
    told_of = sum(each is not None and each.replicas is not None for each in made)
    click.echo(f"advice of all, {told_of} with replicas: {time.process_time() - began:.1f} s")
    click.echo(f"after it {_resident_mb() - before:.0f} MB")


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
