"""Runs as text: tables for people, CSV for everything else."""

from collections.abc import Iterable, Sequence
from statistics import mean

from scheduler.simulation.drive import Curve, Point


def at(curve: Curve, arrived: float) -> Point:
    """The first sample at or after this share of capacity arrived; the last one when the run ended before."""
    return next((point for point in curve.points if point.arrived >= arrived), curve.last)


def by_policy(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """Runs of each policy, in the order in which policies first appear."""
    groups: dict[str, list[Curve]] = {}
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
