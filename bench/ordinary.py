"""Ordinary work for hours beside the agent: every verdict that blames one of its cgroups for another's loss is counted.

    sudo .venv/bin/python -m bench.ordinary [--minutes 180] [--json FILE]

Fifty cgroups as nodes have them, each far within what the machine can give: web servers with clients, proxies over
loopback, a database that flushes, a bulk sender on a wire of its own, services with heavy tails, cron jobs, batch of
the idle class. The agent is the one users run. Verdicts are counted by rule, and by what they blame: own cgroups, none
or the kernel, and cgroups that are not the bench's. The last are real waits on a machine that does other work too. The
upper bound is of a Poisson rate (`detector/evaluation/intervals.py`), per node and day.
"""

import json
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from api.cgroup_path import is_within
from api.verdict_text import in_words
from api.verdicts import Verdict, VerdictState
from bench.detect import loads
from bench.detect.measures import busy_seconds
from bench.detect.services import free_port, is_listening
from bench.detect.stage import Stage
from bench.detect.subject import Subject
from detector.evaluation.intervals import most_events

DAY_SECONDS = 86_400.0
WARM_UP_SECONDS = 30.0
OWN, NONE, FOREIGN = "one of its own", "none, or the kernel", "others of the machine"


def ordinary_work(stage: Stage) -> int:
    """Start it all; returns the number of cgroups. Raises OSError where the host cannot stage it."""
    before = len(stage.paths)
    for number in range(4):
        port = free_port()
        stage.start(f"web-{number}", loads.nginx(port, stage.folder()), stage.near)
        stage.until(lambda port=port: is_listening(port))  # type: ignore[misc]
        stage.start(f"web-clients-{number}", loads.paced_requests(port, 20), stage.far)
    for number in range(2):
        port, backend = free_port(), free_port()
        stage.start(f"backend-{number}", loads.nginx(backend, stage.folder()), stage.far)
        stage.start(f"proxy-{number}", loads.nginx_proxy(port, backend, stage.folder()), stage.near)
        stage.until(lambda port=port, backend=backend: is_listening(port) and is_listening(backend))  # type: ignore[misc]
        stage.start(f"proxy-clients-{number}", loads.paced_requests(port, 20), stage.far)
    disk = stage.disk()
    for number in range(2):
        loads.lay_out(disk.mount / f"database-{number}", 32)
        syncs = ("--rw=randwrite", "--bs=8k", "--ioengine=psync", "--size=32m", "--fdatasync=1", "--rate_iops=4")
        stage.start(f"database-{number}", loads.fio("database", disk.mount / f"database-{number}", *syncs), stage.near)
    namespaces = stage.namespaces()
    namespaces.shape("20mbit", "200kb")
    stage.start("receiver", loads.iperf_server(5301), stage.far, namespace=namespaces.far)
    stage.wait(0.5)
    stage.start("sender", loads.iperf(5301, "--parallel", "2"), stage.near, namespace=namespaces.near)
    for number in range(12):
        stage.start(f"tailed-{number}", loads.tailed_service(2 + number, 1.0, 0.003, connections=2), stage.near)
    for number in range(12):
        stage.start(f"paced-{number}", loads.sysbench(rate=2, primes=2_000), stage.far)
    for number in range(8):
        stage.start(f"cron-{number}", loads.every(5 + number, loads.short_job()), stage.far)
    for number in range(2):
        stage.set_cpu_idle(f"be-batch-{number}")
        stage.start(f"be-batch-{number}", loads.stress("--cpu", "1", "--cpu-load", "20"), stage.far)
    return len(stage.paths) - before


def blamed(verdict: Verdict, prefix: str) -> str:
    """Return the culprit that a verdict blames most."""
    path = verdict.culprits[0].path if verdict.culprits else ""
    if not path.startswith("/"):
        return NONE
    return OWN if is_within(path, prefix) else FOREIGN


def summary(opened: list[Verdict], prefix: str, seconds: float, busy_cpus: float) -> str:
    """Counts by rule and blame, and the bounds."""
    counts = Counter((verdict.rule, blamed(verdict, prefix)) for verdict in opened)
    lines = [f"{rule:<20} blames {culprit:<22} {count:>5}" for (rule, culprit), count in sorted(counts.items())]
    for name, kept in ((f"all but {FOREIGN}", (OWN, NONE)), ("all", (OWN, NONE, FOREIGN))):
        count = sum(count for (_, culprit), count in counts.items() if culprit in kept)
        days = seconds / DAY_SECONDS
        lines.append(
            f"{name}: {count} verdicts in {seconds / 3600:.2f} node-hours: {count / days:.1f} a node-day, at most "
            f"{most_events(count) / days:.1f} (95 %)"
        )
    return "\n".join([*lines, f"CPUs busy with others' work: {busy_cpus:.2f}"])


@click.command()
@click.option("--minutes", type=click.FloatRange(0.5, 7 * 24 * 60), default=180.0, show_default=True)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="All verdicts go there.")
def main(minutes: float, json_file: Path | None) -> None:
    """Count verdicts about ordinary work."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    with (
        tempfile.TemporaryDirectory(prefix="koord-ordinary-") as folder,
        Subject(Path(folder)) as subject,
        Stage("ordinary", subject) as stage,
    ):
        count = ordinary_work(stage)
        stage.wait(WARM_UP_SECONDS)
        print(f"{count} cgroups, {minutes:g} minutes", flush=True)
        stage.verdicts.clear()
        began, busy, used = time.monotonic(), busy_seconds(), stage.used_seconds()
        opened: list[Verdict] = []
        try:
            while (passed := time.monotonic() - began) < minutes * 60:
                stage.wait(min(10.0, minutes * 60 - passed))
                fresh = [each for each in stage.verdicts if is_within(each.victim, stage.prefix)]
                stage.samples.clear()
                stage.verdicts.clear()
                for verdict in (each for each in fresh if each.state is VerdictState.OPEN):
                    opened.append(verdict)
                    print(f"{passed / 60:6.1f} min  {verdict.rule}: {in_words(verdict)}", flush=True)
        finally:
            seconds = time.monotonic() - began
            others = (busy_seconds() - busy - (stage.used_seconds() - used)) / seconds
            print(summary(opened, stage.prefix, seconds, others), flush=True)
            if json_file is not None:
                json_file.write_text(json.dumps([f"{each.rule} {in_words(each)}" for each in opened]))


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(1)


if __name__ == "__main__":
    main()
