"""Runs as text: tables for people, CSV for everything else."""

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Protocol, TypeVar

from scheduler.simulation.day import DayCurve
from scheduler.simulation.drive import Curve, Point, ReplayCurve

WARM_UP_HOURS = 1.0
"""Left out of a day's means: the cluster fills."""


class Run(Protocol):
    """A run of some policy."""

    @property
    def policy(self) -> str:
        """Name of the policy."""


R = TypeVar("R", bound=Run)


def at(curve: Curve, arrived: float) -> Point:
    """The first sample at or after this share of capacity arrived; the last one when the run ended before."""
    return next((point for point in curve.points if point.arrived >= arrived), curve.last)


def by_policy(curves: Iterable[R]) -> dict[str, list[R]]:
    """Runs of each policy, in the order in which policies first appear."""
    groups: dict[str, list[R]] = {}
    for curve in curves:
        groups.setdefault(curve.policy, []).append(curve)
    return groups


def saturation_table(curves: Sequence[Curve], arrivals: Sequence[float]) -> str:
    """Markdown: allocated and fragmented GPUs (percent of capacity, mean over seeds) as arrivals grow."""
    groups = by_policy(curves)
    head = "| arrived | " + " | ".join(f"{name}: allocated / fragmented" for name in groups) + " |"
    lines = [head, "|---:|" + "---:|" * len(groups)]
    for arrived in arrivals:
        cells = []
        for runs in groups.values():
            points = [at(run, arrived) for run in runs]
            allocated, fragmented = mean(p.allocated for p in points), mean(p.fragmented for p in points)
            cells.append(f"{allocated:.1%} / {fragmented:.1%}")
        lines.append(f"| {arrived:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def final_table(curves: Sequence[Curve]) -> str:
    """Markdown: where each policy ends, mean and range over seeds, and how many pods it turned away."""
    lines = [
        "| policy | allocated | lowest to highest seed | fragmented | pods turned away |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, runs in by_policy(curves).items():
        ends = [run.last for run in runs]
        allocated = [end.allocated for end in ends]
        lines.append(
            f"| {name} | {mean(allocated):.2%} | {min(allocated):.2%} to {max(allocated):.2%} "
            f"| {mean(end.fragmented for end in ends):.2%} | {mean(end.turned_away for end in ends):.0f} |"
        )
    return "\n".join(lines)


def best_policy(curves: Sequence[Curve]) -> str:
    """The policy with the most GPUs allocated at the end, mean over seeds."""
    groups = by_policy(curves)
    return max(groups, key=lambda name: mean(run.last.allocated for run in groups[name]))


def saturation_csv(curves: Iterable[Curve]) -> str:
    """Every sample of every run."""
    lines = ["policy,seed,arrived,allocated,fragmented,turned_away"]
    lines += [
        f"{curve.policy},{curve.seed},{p.arrived:.5f},{p.allocated:.5f},{p.fragmented:.5f},{p.turned_away}"
        for curve in curves
        for p in curve.points
    ]
    return "\n".join(lines) + "\n"


def day_table(curves: Sequence[DayCurve]) -> str:
    """Markdown: spread of node load and predicted lost seconds by policy, mean over seeds."""
    head = "| policy | p95 - p50 of node load | its maximum | highest p95 | predicted lost s per day | against first |"
    lines = [head, "|---|---:|---:|---:|---:|---:|"]
    groups = by_policy(curves)
    first = mean(run.lost_seconds for run in next(iter(groups.values())))
    for name, runs in groups.items():
        warm = [run.hours > WARM_UP_HOURS for run in runs]
        spread = mean(float(run.spread[w].mean()) for run, w in zip(runs, warm, strict=True))
        widest = max(float(run.spread[w].max()) for run, w in zip(runs, warm, strict=True))
        highest = max(float(run.load_p95.max()) for run in runs)
        lost = mean(run.lost_seconds for run in runs)
        change = lost / first - 1 if first else 0.0
        lines.append(f"| {name} | {spread:.3f} | {widest:.3f} | {highest:.3f} | {lost:.0f} | {change:+.0%} |")
    return "\n".join(lines)


def day_csv(curves: Iterable[DayCurve]) -> str:
    """Every step of every run."""
    lines = ["policy,seed,hour,load_p50,load_p95,lost_seconds_per_second"]
    for curve in curves:
        rows = zip(curve.hours, curve.load_p50, curve.load_p95, curve.lost, strict=True)
        policy = curve.policy.replace(",", " and")
        lines += [f"{policy},{curve.seed},{h:.3f},{p50:.4f},{p95:.4f},{lost:.4f}" for h, p50, p95, lost in rows]
    return "\n".join(lines) + "\n"


def replay_table(curves: Sequence[ReplayCurve]) -> str:
    """Markdown: packing, fragmentation and spread over a replayed trace."""
    lines = [
        "| policy | cpu allocated | GPU allocated | GPU fragmented | spread of cpu requested | turned away |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for curve in curves:
        points = curve.points
        cpu, gpu = max(p.cpu for p in points), max(p.gpu for p in points)
        fragmented, spread = mean(p.fragmented for p in points), mean(p.spread for p in points)
        away = points[-1].turned_away
        lines.append(f"| {curve.policy} | {cpu:.1%} | {gpu:.1%} | {fragmented:.1%} | {spread:.3f} | {away} |")
    return "\n".join(lines)
