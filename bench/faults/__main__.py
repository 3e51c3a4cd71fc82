"""Faults at random moments: `sudo python -m bench.faults --count 200`.

Real cgroups, control loop, journal, audit, guardian; measurement is left out, the lease is half a second in place of
thirty. For each fault: how often it came, the time until all that actions had changed was as found (median, p99, most),
and what went wrong. Goal: within lease + 5 s, nothing twice, without a person.
"""

import sys
import tempfile
from pathlib import Path

import click

from bench.faults.rounds import KINDS, LEASE_SECONDS, LIMIT_SECONDS, Outcome, is_possible, play, staged


@click.command()
@click.option("--count", type=int, default=200, help="Rounds of each fault [200].")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="These faults.")
@click.option("--seed", type=int, default=2026, help="Of the moments.")
def main(count: int, only: tuple[str, ...], seed: int) -> None:
    """Run the rounds and print a table. Exit 1 where a round went wrong."""
    obstacle = is_possible()
    if obstacle:
        raise click.ClickException(obstacle)
    print(f"lease {LEASE_SECONDS} s, limit {LIMIT_SECONDS} s")
    print(f"{'fault':<8}{'rounds':>8}{'changed':>9}{'median':>9}{'p99':>9}{'most':>9}{'wrong':>7}", flush=True)
    outcomes = []
    for kind in only or KINDS:
        with tempfile.TemporaryDirectory() as directory, staged(Path(directory), seed, kind) as scene:
            outcome = Outcome(kind)
            for number in range(count):
                play(scene, kind, number, outcome)
        outcomes.append(outcome)
        seconds = sorted(outcome.seconds)
        middle, near_end = seconds[len(seconds) // 2], seconds[min(len(seconds) * 99 // 100, len(seconds) - 1)]
        print(
            f"{kind:<8}{len(seconds):>8}{outcome.set_attributes / len(seconds):>9.1f}{middle:>8.2f}s{near_end:>8.2f}s"
            f"{seconds[-1]:>8.2f}s{len(outcome.wrong):>7}",
            flush=True,
        )
        for wrong in outcome.wrong[:10]:
            print(f"    {wrong}", flush=True)
    sys.exit(1 if any(outcome.wrong for outcome in outcomes) else 0)


if __name__ == "__main__":
    main()
