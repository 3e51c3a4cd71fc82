"""Merge of nodes' reports into profiles: `python -m bench.profiles [--nodes 10000]`, on one CPU, in its processor time.

Every node has reported before and reports again: usage of its pods, what they waited, verdicts of those that lose, and
usual values. What the manager then does is done for all of them: reading their JSON, merging them, and the profiles
that follow. Figures are planted, so the rank correlation of what was found with the truth is printed after each round,
beside that of an estimator that is told all strengths and a loss for each pod and report. `--verdicts-only` is a fleet
whose agents state no waits, so that a loss without a verdict is none.

    python -m bench.profiles --nodes 1000 --workloads 500 --rounds 12
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec
import numpy as np
from scipy.stats import spearmanr

from api.crds import NodeMetric
from api.kube.interference import MOST_CULPRITS
from controllers.kinds import NODE, NODE_METRIC, POD
from controllers.plans.workload_profiles import WorkloadProfiles
from controllers.profiles.merge import traits
from controllers.profiles.observations import Observations, Observed
from controllers.runtime.loop import look_for_cycles_less
from controllers.runtime.writes import Verb
from tests.capacity import NOW, a_node, a_report, a_usage
from tests.controllers.profiles.fleet import at, name_of, usual
from tests.controllers.recommend.cluster import container, pod
from tests.managed import added, built, copy_of

CORES = 64
USUAL_VALUES = 16
LEAST_LOST = 0.03
"""Seconds a second from which a pod has a verdict."""
BATCH = 500
"""Reports of one round of the manager's loop."""


class Fleet:
    """Nodes with the same pods for ever, of workloads with planted figures."""

    def __init__(self, nodes: int, pods: int, workloads: int, *, states_waits: bool = True) -> None:
        self.draw = np.random.default_rng(1)
        self.sensitivity = self.draw.lognormal(-4.2, 0.8, workloads)
        self.strength = self.draw.lognormal(0.0, 0.6, workloads)
        self.here = [self.draw.choice(workloads, pods, replace=False) for _ in range(nodes)]
        self.states_waits = states_waits
        self.best = np.zeros((2, workloads))
        """Sums of loss times strength times pressure, and of the square of that: all that a report can tell."""

    def reports(self, turn: int) -> list[bytes]:
        """Return the reports of all nodes as the API server sends them."""
        return [msgspec.json.encode(self._report(node, turn)) for node in range(len(self.here))]

    def _report(self, node: int, turn: int) -> NodeMetric:
        here = self.here[node]
        cores = self.draw.uniform(0.5, 4.0, len(here))
        harm = np.outer(self.sensitivity[here], self.strength[here] * cores / CORES)
        np.fill_diagonal(harm, 0.0)
        lost = harm.sum(axis=1) * self.draw.lognormal(0.0, 0.3, len(here))
        exerted = harm.sum(axis=1) / self.sensitivity[here]
        known = lost if self.states_waits else np.where(lost >= LEAST_LOST, lost, 0.0)
        if turn:  # the first report has no begin
            self.best[:, here] += known * exerted, exerted * exerted
        pods = []
        for place, number in enumerate(here.tolist()):
            stated = []
            if lost[place] >= LEAST_LOST:
                first = np.argsort(-harm[place])[:MOST_CULPRITS]
                shares = harm[place, first] / harm[place].sum()
                stated = [
                    {
                        "resource": "cpu",
                        "culprits": [name_of(int(each)) for each in here[first]],
                        "shares": shares.round(4).tolist(),
                        "lostSecondsPerSecond": float(lost[place]),
                    }
                ]
            besides = {"workload": name_of(number), "interference": {"verdicts": stated}}
            if self.states_waits:
                besides["waited"] = round(float(lost[place]), 4)
            pods.append(
                a_usage(f"w{number}-{node}", f"{cores[place] * 1000:.0f}m", f"{1 + number % 9}G", extensions=besides)
            )
        values = [usual(int(each), 0.01, self.draw) for each in self.draw.choice(here, USUAL_VALUES)]
        return a_report(f"n{node}", pods=pods, updated=at(turn), extensions={"usualValues": values})


@contextmanager
def measured(what: str, into: list[float]) -> Iterator[None]:
    """Print the processor time of a step."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    yield
    after = resource.getrusage(resource.RUSAGE_SELF)
    into.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    click.echo(f"{what}: {into[-1]:.2f} s")


@click.command(help=__doc__)
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--pods", default=20, show_default=True, help="Of each node.")
@click.option("--workloads", default=5_000, show_default=True)
@click.option("--rounds", default=2, show_default=True, help="Of reports of every node.")
@click.option("--verdicts-only", is_flag=True, help="Agents state no waits.")
def main(nodes: int, pods: int, workloads: int, rounds: int, verdicts_only: bool) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    look_for_cycles_less()  # as the manager does
    fleet = Fleet(nodes, pods, workloads, states_waits=not verdicts_only)
    controller = built(WorkloadProfiles, enabled=True)
    copy = copy_of(controller, {NODE: [a_node(f"n{node}", CORES) for node in range(nodes)]})
    copy.view("it", full=True)
    running = [
        pod(f"w{number}-{node}", container("app", "1", "4Gi"), nodeName=f"n{node}")
        for node, here in enumerate(fleet.here)
        for number in here.tolist()
    ]
    copy.apply(POD, added(running))
    decoder = msgspec.json.Decoder(NodeMetric)

    def read(texts: list[bytes]) -> list[NodeMetric]:
        return [decoder.decode(text) for text in texts]

    def merge(reports: list[NodeMetric]) -> None:
        for begin in range(0, len(reports), BATCH):
            copy.apply(NODE_METRIC, added(reports[begin : begin + BATCH]))

    merge(read(fleet.reports(0)))
    for turn in range(1, rounds + 1):
        texts, seconds = fleet.reports(turn), list[float]()
        click.echo(f"{nodes} reports of {sum(map(len, texts)) / nodes / 1024:.0f} KB on average")
        with measured("  read", []):
            reports = read(texts)
        with measured("  merged", seconds):
            merge(reports)
        with measured("  profiles of them", seconds):
            writes = controller.plan(copy.view("it", full=True), NOW + 60.0 * turn).writes
        made = sum(write.verb is Verb.CREATE for write in writes)
        click.echo(f"  merge and profiles {sum(seconds):.2f} s; {made} profiles")
        _ranks(fleet, copy.view("it", full=True).of(Observations))


def _ranks(fleet: Fleet, seen: Observed) -> None:
    """Print how the order of the figures resembles that of the truth."""
    found = traits(seen.sums.of(0), len(seen.workloads), 1)
    numbers = np.array([int(name.rpartition("w")[2]) for name in seen.workloads])
    best = (fleet.best[0] / np.maximum(fleet.best[1], 1e-12))[numbers]
    for what, truth, values, other in (
        ("sensitivity", fleet.sensitivity[numbers], found.sensitivity.value, best),
        ("strength", fleet.strength[numbers], found.strength.value, None),
    ):
        known = np.isfinite(values)
        text = f"  rank correlation of {what} {spearmanr(truth[known], values[known])[0]:.3f}"
        if other is not None:
            text += f" (strengths told: {spearmanr(truth[known], other[known])[0]:.3f})"
        click.echo(f"{text} over {known.sum()} workloads")


if __name__ == "__main__":
    main()
