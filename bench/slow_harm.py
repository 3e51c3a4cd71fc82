"""Slow harm with and without delivered models: what the judge finds at equal numbers of wrong verdicts.

    python -m bench.slow_harm [--services 20] [--hours 4] [--seed 1]

The frames are simulated, and nothing else is: the agent's rows become profiles, the nightly job's code trains, tries
and packs the models, and the judge of the agent judges the frames that come after. Origin of the numbers: the load of
each service follows a wave of an hour with noise that lasts for minutes and sudden surges of its own. Half of the
services wait more for others the more they do, near the threshold (0.05 s/s) at their peaks, as a service on a node
with others does; half wait as little at any load. Slow harm is a neighbour that costs a victim 0.5 to 1 threshold more
for one to five minutes. The alternative to models is a lower threshold for everybody: the lowest one that gives no more
wrong verdicts.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, CgroupInfo, Frame, Table
from api.window import Window
from controllers.models.training import Outcome, decide
from detector.evaluation.scoring import GRACE_SECONDS, Label, Score, episodes, score
from detector.judging.judge import Judge, JudgeSettings
from detector.models.delivery import unpack
from detector.models.fit import FitPolicy
from detector.models.format import ModelFile
from detector.rules import Rule
from koordlet.profiles.rows import ProfileSegment, Rows

Floats = NDArray[np.float64]

NODE_TYPE = "simulated"
BEGIN_NS = 1_700_000_000 * 10**9
ROW_SECONDS = 10
COLUMNS = (
    *("cpu.oncpu_ns", "cpu.wait_neighbour_ns", "cpu.wait_kernel_ns", "cpu.wait_self_ns"),
    *("cpu.wait_count", "cpu.involuntary_switches"),
)
THRESHOLDS = (0.05, 0.045, 0.04, 0.035, 0.03, 0.0275, 0.025, 0.0225, 0.02)
CONTENTION = "cpu_contention"


@dataclass(frozen=True, slots=True)
class Harm:
    """A neighbour that costs a service time; ticks from `begin` to `end`."""

    service: int
    begin: int
    end: int
    lost: float


@dataclass(frozen=True, slots=True)
class Services:
    """What is fixed about them, shapes (services,)."""

    mean: Floats
    phase: Floats
    at_peak: Floats
    """Ordinary wait for others at twice the mean load."""
    steepness: Floats
    """0: the wait does not follow the load."""

    @classmethod
    def drawn(cls, count: int, draw: np.random.Generator) -> "Services":
        """Return services, every other one of which waits more the more it does."""
        busy = np.arange(count) % 2 == 0
        peak = np.where(busy, draw.uniform(0.02, 0.042, count), draw.uniform(0.002, 0.01, count))
        return cls(draw.uniform(0.2, 0.8, count), draw.uniform(0, 2 * np.pi, count), peak, np.where(busy, 2.0, 0.0))


def drawn_harm(services: int, ticks: int, draw: np.random.Generator) -> list[Harm]:
    """Return about one harm an hour and service."""
    found = []
    for service in range(services):
        at = int(draw.exponential(1200))
        while True:
            length = int(draw.uniform(60, 300))
            if at + length >= ticks:
                break
            found.append(Harm(service, at, at + length, float(draw.uniform(0.5, 1.0) * 0.05)))
            at += length + 600 + int(draw.exponential(2400))
    return found


def frames(services: Services, ticks: int, harms: Sequence[Harm], seed: int, begin_ns: int) -> Iterator[Frame]:
    """Yield cumulative frames, one a second; the last two cgroups are the neighbours: the usual one and the culprit."""
    draw = np.random.default_rng(seed)
    count = len(services.mean)
    infos = (
        *(
            CgroupInfo(place + 1, f"/svc/{place}", f"svc-{place}", "LS", f"Deployment/shop/svc-{place}", "main")
            for place in range(count)
        ),
        CgroupInfo(count + 1, "/usual", "usual", "BE"),
        CgroupInfo(count + 2, "/culprit", "culprit", "BE"),
    )
    ids = np.arange(1, count + 3, dtype=np.uint64)
    sums = {name: np.full(count + 2, 1e9) for name in COLUMNS}
    blamed = np.full((count, 2), 1e9)
    extra = np.zeros((ticks, count))
    for harm in harms:
        extra[harm.begin : harm.end, harm.service] += harm.lost
    slow, surge = np.zeros(count), np.zeros(count)
    for tick in range(ticks):
        slow = 0.98 * slow + 0.05 * draw.standard_normal(count)
        surge = np.where(draw.random(count) < 1 / 1800, draw.uniform(0.5, 1.0, count), 0.98 * surge)
        wave = 1 + 0.6 * np.sin(2 * np.pi * tick / 3600 + services.phase)
        load = np.clip(wave * np.exp(slow) + surge, 0.05, 3.0)
        noise = draw.lognormal(0.0, 0.2, count)
        usual = services.at_peak * np.minimum(load / 2, 1.2) ** services.steepness * noise
        cores = services.mean * load * draw.lognormal(0.0, 0.05, count)
        harmed = extra[tick] * draw.lognormal(0.0, 0.2, count)
        both = usual + harmed
        grown = {
            "cpu.oncpu_ns": cores * 1e9,
            "cpu.wait_neighbour_ns": both * 1e9,
            "cpu.wait_kernel_ns": 0.0005 * load * 1e9,
            "cpu.wait_self_ns": 0.02 * load**2 * noise * 1e9,
            "cpu.wait_count": 400 * load * draw.lognormal(0.0, 0.05, count),
            "cpu.involuntary_switches": 20 * load + 300 * both,
        }
        for name, growth in grown.items():
            sums[name][:count] += growth
        sums["cpu.oncpu_ns"][count:] += 0.8e9
        blamed[:, 0] += usual * 1e9
        blamed[:, 1] += harmed * 1e9
        victims = np.repeat(ids[:count], 2)
        culprits = np.tile(ids[count:], count)
        table = Table({"cgroup": victims, "culprit": culprits}, {"cpu.blame_ns": blamed.ravel().astype(np.uint64)})
        dense = Table({"cgroup": ids}, {name: column.astype(np.uint64) for name, column in sums.items()})
        at_ns = begin_ns + tick * 10**9
        yield Frame(at_ns - BEGIN_NS + 10**9, at_ns, infos, {CGROUP: dense, "cpu.blame": table})


def profile(services: Services, ticks: int, seed: int, harms: Sequence[Harm] = ()) -> ProfileSegment:
    """Return the rows that an agent collects; there is no verdict, so that none is marked."""
    rows = Rows(NODE_TYPE, 0.9)
    last: Frame | None = None
    for number, frame in enumerate(frames(services, ticks, harms, seed, BEGIN_NS)):
        if number % ROW_SECONDS == 0 and last is not None:
            rows.add(Window([last, frame]), ())
        last = frame
    return rows.take()


def trained(segment: ProfileSegment, seed: int) -> tuple[list[ModelFile], list[str]]:
    """Return the models that the nightly job delivers, as nodes unpack them, and its sentences."""
    columns = {name: np.array(column) for name, column in segment.texts.items()}
    columns |= {name: np.array(column) for name, column in segment.flags.items()}
    columns |= {name: segment.column(name) for name in segment.floats}
    decisions = decide(columns, {}, FitPolicy(min_samples=500, seed=seed), BEGIN_NS / 1e9)
    files = [
        unpack(each.models.data, each.models.sha256, each.workload)
        for each in decisions
        if each.outcome is Outcome.DELIVER and each.models is not None
    ]
    return files, [f"{each.outcome:8} {each.workload}: {each.reason}" for each in decisions]


@dataclass(frozen=True, slots=True)
class Found:
    """What a judge found."""

    name: str
    score: Score
    wrong_seconds: float
    """Under verdicts about a service that no harm of it explains."""

    @property
    def named(self) -> float:
        """Part of the harms that were found with the right culprit blamed most."""
        outcomes = self.score.outcomes
        return sum(each.culprit_right is True for each in outcomes) / max(len(outcomes), 1)


def judged(settings: JudgeSettings, stream: Iterator[Frame], labels: Sequence[Label], name: str) -> Found:
    """Return what a judge finds in frames."""
    judge, found, last = Judge(settings), [], 0.0
    for frame in stream:
        found += [each for each in judge.step(frame) if each.resource == "cpu"]
        last = frame.wall_ns / 1e9
    wrong = 0.0
    for episode in episodes(found, last):
        own = [each for each in labels if each.victim == episode.lines[0].victim]
        explained = sum(
            max(min(episode.end, each.end + GRACE_SECONDS) - max(episode.start, each.start), 0.0) for each in own
        )
        wrong += max(episode.end - episode.start - explained, 0.0)
    return Found(name, score(name, labels, found, until=last), wrong)


def with_threshold(rules: Sequence[Rule], threshold: float) -> tuple[Rule, ...]:
    """Return rules with another threshold of waits for others."""
    return tuple(
        msgspec.structs.replace(rule, threshold=threshold) if CONTENTION in rule.symptoms else rule for rule in rules
    )


def main() -> None:
    """Print what the job decides and the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--hours", type=float, default=4.0, help="Of judged frames; as many are trained on.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="Print the job's decisions, too.")
    asked = parser.parse_args()
    began = time.process_time()
    draw = np.random.default_rng(asked.seed)
    ticks = int(asked.hours * 3600)
    services = Services.drawn(asked.services, draw)
    # Slow harm opens no verdict, so that the rows of the training have it unmarked, as they have in life.
    segment = profile(services, ticks, asked.seed + 1, drawn_harm(asked.services, ticks, draw))
    files, sentences = trained(segment, asked.seed)
    print("\n".join(sentences) if asked.verbose else f"models are delivered for {len(files)} of {asked.services}")
    harms = drawn_harm(asked.services, ticks, draw)
    begin_ns = BEGIN_NS + 86_400 * 10**9
    labels = [
        Label(
            victim=f"/svc/{each.service}",
            resource="cpu",
            cause="contention",
            culprit="/culprit",
            start=begin_ns / 1e9 + each.begin,
            end=begin_ns / 1e9 + each.end,
        )
        for each in harms
    ]

    def run(settings: JudgeSettings, name: str) -> Found:
        return judged(settings, frames(services, ticks, harms, asked.seed + 2, begin_ns), labels, name)

    plain = JudgeSettings(node_type=NODE_TYPE)
    own = run(msgspec.structs.replace(plain, fleet_models=tuple(files)), "with models")
    scores = [own]
    for threshold in THRESHOLDS:
        rules = with_threshold(plain.rules, threshold)
        scores.append(run(msgspec.structs.replace(plain, rules=rules), f"threshold {threshold:g}"))
    print(f"{len(labels)} harms of {asked.services} services in {asked.hours:g} hours")
    print(
        "| judge | found | found, culprit right | wrong verdicts | minutes under wrong verdicts | seconds to detect |"
    )
    print("|---|---|---|---|---|---|")
    for each in scores:
        seconds = each.score.median_seconds_to_detect
        told = "-" if seconds is None else f"{seconds:.0f}"
        parts = f"{100 * (each.score.recall or 0):.1f} % | {100 * each.named:.1f} % | {each.score.wrong_episodes}"
        print(f"| {each.name} | {parts} | {each.wrong_seconds / 60:.0f} | {told} |")
    print()
    for what, wrong in (("wrong verdicts", _count), ("minutes under wrong verdicts", _seconds)):
        equal = [each for each in scores[1:] if wrong(each) <= wrong(own)]
        best = max(equal, key=lambda each: each.named, default=scores[1])
        gain = 100 * (own.named - best.named)
        print(f"at no more {what}: {gain:+.1f} points of harms found with their culprit, against {best.name}")
    print(f"{time.process_time() - began:.0f} s of CPU")


def _count(found: Found) -> float:
    return found.score.wrong_episodes


def _seconds(found: Found) -> float:
    return found.wrong_seconds


if __name__ == "__main__":
    main()
