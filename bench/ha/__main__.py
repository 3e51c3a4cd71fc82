"""Two replicas against a real API server, with faults: `python -m bench.ha --kubeconfig FILE --seconds 3600`.

Each replica reaches the server through a proxy of its own (`bench.ha.proxy`). One fault after the other: kills, stops,
partitions of one replica in both directions or in one, outages for both, watches that are 30 s late; for 1-60 s each.
All the while pods come and go, and in rounds preemptors need room on full nodes. Counted are writes that reached the
API server from a process that did not hold the lease, ends of a process, bindings per pod, nodes that held more than
they have, victims; and the time from a change of leader to the new one's first binding. The cluster must be empty: no
controllers, no kubelet.
"""

import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import click

from bench.ha.faults import Kind, Planned, heal, hit, plan
from bench.ha.ledger import Ledger
from bench.ha.load import Load, build
from bench.ha.proxy import Proxy, Upstream
from bench.ha.replica import Replica
from cluster import ClientSettings, connect

ARRIVALS_PER_SECOND = 3.0
LAST_SECONDS = 120.0
"""Time for the last pods to be bound."""


class Trial:
    """Two replicas, their load and the faults."""

    def __init__(
        self, load: Load, ledger: Ledger, replicas: list[Replica], draw: Random, longest_seconds: float
    ) -> None:
        self.load, self.ledger, self.replicas = load, ledger, replicas
        self.seconds: defaultdict[Kind, list[float]] = defaultdict(list)
        self._draw, self._longest = draw, longest_seconds
        self._began = time.monotonic()

    def run(self, seconds: float) -> None:
        """Make faults until the time is over; then let all pods be bound."""
        until = time.monotonic() + seconds
        self._rest(20.0)
        while time.monotonic() < until:
            self._play(plan(self._draw, self._longest))
        self.load.ebb()
        last = time.monotonic() + LAST_SECONDS
        while self.load.observer.pending and time.monotonic() < last:
            self._rest(0.5)

    def _play(self, planned: Planned) -> None:
        leader = next((each for each in self.replicas if each.proxy.leads), self.replicas[0])
        standby = next(each for each in self.replicas if each is not leader)
        at, bound = time.monotonic() - self._began, sum(self.ledger.bindings.values())
        changes = len(self.ledger.takeovers)
        hits = hit(planned.kind, leader, standby)
        self._rest(planned.seconds, without=hits if planned.kind.startswith("kill") else [])
        heal(planned.kind, hits)
        self._rest(planned.calm_seconds)
        self.seconds[planned.kind].append(planned.seconds)
        placed = sum(self.ledger.bindings.values()) - bound
        print(
            f"{at:7.1f} s  {planned.kind:<16} {planned.seconds:5.1f} s  bindings {placed:4}"
            f"  changes of leader {len(self.ledger.takeovers) - changes}  pending {len(self.load.observer.pending):3}"
            f"  foreign {len(self.ledger.foreign)}  exits {sum(len(each.exits) for each in self.replicas)}",
            flush=True,
        )

    def _rest(self, seconds: float, without: list[Replica] | None = None) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for replica in self.replicas:
                if replica not in (without or []):
                    replica.check()
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))

    def report(self) -> bool:
        """Print what was counted; return whether nothing went wrong."""
        ledger, observer, rounds = self.ledger, self.load.observer, self.load.rounds
        print(f"\n{time.monotonic() - self._began:.0f} s, {sum(map(len, self.seconds.values()))} faults:")
        for kind, lengths in self.seconds.items():
            print(f"  {kind:<16} {len(lengths):3}, {min(lengths):.1f}-{max(lengths):.1f} s")
        print(f"pods created {self.load.created}, bound {len(ledger.bindings)}, never bound {len(observer.pending)}")
        print(f"longest wait for a node {observer.longest_pending_seconds:.1f} s")
        print(f"writes taken {sum(ledger.writes.values())}: {dict(ledger.writes)}, refused: {dict(ledger.refused)}")
        print(f"starts {[each.starts for each in self.replicas]}")
        took = [each for each in ledger.takeovers[1:] if each.first_binding_seconds is not None]
        if took:
            first = sorted((each.first_binding_seconds or 0.0) - each.change.at_seconds for each in took)
            gap = sorted((each.first_binding_seconds or 0.0) - each.change.before_seconds for each in took)
            print(
                f"changes of leader {len(ledger.takeovers) - 1}, of them {len(took)} with a binding before the next one"
            )
            print(f"  change to first binding: median {statistics.median(first):.2f} s, most {first[-1]:.2f} s")
            print(
                f"  last renewal before to first binding: median {statistics.median(gap):.1f} s, most {gap[-1]:.1f} s"
            )
        whole = [each for each in rounds if each.seconds is not None]
        extra = [f"{each.victims} for {each.least}" for each in rounds if each.victims > each.least]
        victims, least = sum(each.victims for each in whole), sum(each.least for each in whole)
        print(
            f"rounds of preemption {len(rounds)}, all bound in {len(whole)}, cut off by the end"
            f" {sum(each.cut for each in rounds)}; victims {victims}, least possible {least}"
        )
        wrongs = {
            "writes while another process led": ledger.foreign,
            "writes after the own lease had run out": ledger.expired,
            "ends of a process": [str(code) for each in self.replicas for code in each.exits],
            "pods bound twice": ledger.doubled,
            "pods that changed their node": observer.moved,
            "overfull nodes": observer.overfull,
            "rounds with a victim too many": extra,
            "rounds not all bound": [f"round {number}" for number, each in enumerate(rounds) if each.failed],
            "pods never bound": [str(len(observer.pending))] if observer.pending else [],
        }
        for name, found in wrongs.items():
            print(f"{name}: {len(found)}")
            for item, times in Counter(found).most_common(20):
                print(f"    {item}" + (f" ({times} times)" if times > 1 else ""))
        if self.load.errors:
            print(f"errors of the trial's own requests: {Counter(self.load.errors).most_common(5)}")
        return not any(wrongs.values())


@click.command()
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--seconds", default=3600.0, show_default=True, help="Length of the trial.")
@click.option("--longest", default=60.0, show_default=True, help="Seconds of the longest fault.")
@click.option("--seed", default=0, show_default=True)
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder for the schedulers' logs.")
def main(kubeconfig: Path, seconds: float, longest: float, seed: int, logs: Path | None) -> None:
    """Run the trial and print what was counted. Exit 1 where anything went wrong."""
    draw, ledger = Random(seed), Ledger()
    upstream = Upstream.of(kubeconfig)
    with connect(ClientSettings(requests_per_second=500, burst=500), kubeconfig=kubeconfig) as client:
        build(client)
        load = Load(client, ARRIVALS_PER_SECOND, seed)
        with tempfile.TemporaryDirectory() as folder:
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
            replicas = [Replica(Proxy(name, upstream, ledger), logs or Path(folder)) for name in ("a", "b")]
            trial = Trial(load, ledger, replicas, draw, longest)
            try:
                for replica in replicas:
                    replica.proxy.start()
                    replica.start()
                load.start()
                trial.run(seconds)
                load.stop()
                good = trial.report()
            finally:
                for replica in replicas:
                    replica.kill()
                    replica.proxy.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
