"""Rate of the recommender: `python -m bench.recommend [--containers 50000]`, on one CPU, in its processor time.

Samples of CPU and memory arrive as a collector brings them, one of each container every five minutes. The peer is
the same arithmetic for one sample at a time, as the Vertical Pod Autoscaler has it, in Python. Printed are samples a
second (a sample is CPU and memory of one container), what a year takes at that rate, and a checkpoint. A year itself
is replayed with `--rounds 105120`.
"""

import os
import sys
import time

import click
import numpy as np

from controllers.recommend.checkpoint import decode, encode
from controllers.recommend.estimates import recommend
from controllers.recommend.usage import Usage
from tests.controllers.recommend.test_usage import Slow

EVERY_SECONDS = 300.0
NOW = 1_700_000_000.0
DRAWN = 40
"""Rounds of samples that are drawn; of more, the first come again."""


@click.command(help=__doc__)
@click.option("--containers", default=50_000, show_default=True)
@click.option("--replicas", default=4, show_default=True, help="Containers of one aggregate.")
@click.option("--rounds", default=40, show_default=True, help="Of samples of every container.")
def main(containers: int, replicas: int, rounds: int) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    draw = np.random.default_rng(1)
    usage = Usage()
    streams = usage.open(np.arange(containers) // replicas)
    drawn = min(rounds, DRAWN)
    cores = draw.exponential(0.5, (drawn, containers))
    memory = draw.lognormal(20.0, 0.5, (drawn, containers))
    began = time.process_time()
    with click.progressbar(range(rounds), label="replaying", file=sys.stderr) as turns:
        for turn in turns:
            at = np.full(containers, NOW + turn * EVERY_SECONDS)
            usage.add_cpu(streams, at, cores[turn % drawn])
            usage.add_memory(streams, at, memory[turn % drawn])
    seconds = time.process_time() - began
    rate = rounds * containers / seconds
    year = 365 * 24 * 3600.0 / EVERY_SECONDS * containers / rate
    click.echo(f"{rate / 1e6:.2f} M samples/s; a year of {containers} containers at 5 minutes: {year / 60:.0f} min")
    began = time.process_time()
    recommend(usage, np.arange(len(usage)))
    click.echo(f"recommendations of {len(usage)} aggregates: {time.process_time() - began:.2f} s")
    names = (
        [f"aggregate-{number}" for number in range(len(usage))],
        [f"stream-{number}" for number in range(containers)],
    )
    began = time.process_time()
    data = encode(usage, *names)
    written = time.process_time() - began
    decode(data)
    both = time.process_time() - began
    click.echo(f"checkpoint: {len(data) / 1e6:.0f} MB, written in {written:.2f} s, read in {both - written:.2f} s")
    slow, few = Slow(), min(containers, 20_000)
    began = time.process_time()
    for stream in range(few):
        slow.add_cpu(stream, NOW, float(cores[0, stream]))
        slow.add_memory(stream, NOW, float(memory[0, stream]))
    click.echo(f"one at a time: {few / (time.process_time() - began) / 1e6:.3f} M samples/s")


if __name__ == "__main__":
    main()
