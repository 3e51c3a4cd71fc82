"""Recommendations as rows to print, plot or give to another program. Pure."""

import math
from collections.abc import Iterable

import msgspec

from controllers.recommend.estimates import DEFAULTS, Bounds, Recommendations, RecommendSettings
from controllers.recommend.losses import Losses

DAY_SECONDS = 24 * 3600.0
LOW_CONFIDENCE = 0.5
"""Days of history below which a recommendation is called uncertain."""


class Amounts(msgspec.Struct, frozen=True):
    """Recommended amounts of one resource: millicores, or bytes."""

    lower: int
    target: int
    upper: int | None
    """None where so little is known that there is no bound."""


class Row(msgspec.Struct, frozen=True):
    """What is recommended for one container of a workload, and why. Times in seconds a day of one replica."""

    workload: str
    container: str
    confidence_days: float
    cpu_millicores: Amounts | None
    memory_bytes: Amounts | None
    cpu_wait_seconds: float
    curable_seconds: float
    throttled_seconds: float
    unthrottled_millicores: int | None


def rows(names: Iterable[tuple[str, str]], found: Recommendations, lost: Losses) -> list[Row]:
    """Return a row for each aggregate, the one with the most curable loss first."""
    made = [
        Row(
            workload,
            container,
            round(float(found.confidence[place]), 3),
            _amounts(found.cpu_millicores, place),
            _amounts(found.memory_bytes, place),
            round(float(lost.waited[place]), 1),
            round(float(lost.curable[place]), 1),
            round(float(lost.throttled[place]), 1),
            _whole(float(lost.unthrottled_millicores[place])),
        )
        for place, (workload, container) in enumerate(names)
    ]
    return sorted(made, key=lambda row: (-row.curable_seconds - row.throttled_seconds, row.workload, row.container))


def text(table: Iterable[Row]) -> list[str]:
    """Return a table for a terminal: bounds in brackets, losses as seconds a day."""
    heads = ("WORKLOAD", "CONTAINER", "DAYS", "CPU", "MEMORY", "WAITS", "CURED", "THROTTLED", "LIMIT")
    cells = [
        (
            row.workload,
            row.container,
            f"{row.confidence_days:.1f}{'?' if row.confidence_days < LOW_CONFIDENCE else ''}",
            _cpu(row.cpu_millicores),
            _memory(row.memory_bytes),
            f"{row.cpu_wait_seconds:.0f}",
            f"{row.curable_seconds:.0f}",
            f"{row.throttled_seconds:.0f}",
            "-" if row.unthrottled_millicores is None else f"{row.unthrottled_millicores}m",
        )
        for row in table
    ]
    widths = [max(len(line[place]) for line in (heads, *cells)) for place in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *cells)
    ]


def why(row: Row, settings: RecommendSettings = DEFAULTS) -> list[str]:
    """Return lines that say what a row follows from: inputs, formula, result."""
    lines = why_requests(row, settings)
    lines.append(
        f"  waits: {row.cpu_wait_seconds:.0f} s a day for CPUs that neighbours held; with the request above"
        f" {row.curable_seconds:.0f} s of them would be the container's by right"
    )
    if row.unthrottled_millicores is not None:
        lines.append(
            f"  throttled {row.throttled_seconds:.0f} s a day by its own limit: none with a limit of"
            f" {row.unthrottled_millicores}m"
        )
    return lines


def why_requests(row: Row, settings: RecommendSettings = DEFAULTS) -> list[str]:
    """Return lines that say what the requests of a row follow from."""
    margin, days = 1.0 + settings.margin_ratio, row.confidence_days
    doubt = ", less than half a day: uncertain" if days < LOW_CONFIDENCE else ""
    lines = [f"{row.workload} {row.container}".rstrip(), f"  history of {days:.2f} days at a sample a minute{doubt}"]
    for name, unit, amounts, least in (
        ("cpu", "m", row.cpu_millicores, settings.min_cpu_millicores),
        ("memory", " bytes", row.memory_bytes, settings.min_memory_bytes),
    ):
        if amounts is None:
            lines.append(f"  {name}: no sample, no recommendation")
            continue
        at_least = ", the least of a pod" if amounts.target <= math.ceil(least) else ""
        lines.append(
            f"  {name}: request {amounts.target}{unit} = p{100 * settings.target_quantile:.0f} of use"
            f" ({amounts.target / margin:.0f}{unit}) x {margin:g}{at_least}"
        )
        upper = "nothing" if amounts.upper is None else f"{amounts.upper}{unit}"
        lines.append(
            f"  {name}: bounds {amounts.lower}{unit} = p{100 * settings.lower_quantile:.0f} x {margin:g}"
            f" x (1 + 0.001 / days)^-2, {upper} = p{100 * settings.upper_quantile:.0f} x {margin:g} x (1 + 1 / days)"
        )
    return lines


def _amounts(bounds: Bounds, place: int) -> Amounts | None:
    lower, target, upper = (float(each[place]) for each in (bounds.lower, bounds.target, bounds.upper))
    if math.isnan(target):
        return None
    return Amounts(int(lower), int(target), None if upper >= 1e14 else int(upper))


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


def _cpu(amounts: Amounts | None) -> str:
    if amounts is None:
        return "-"
    return f"{amounts.target}m ({amounts.lower}..{'' if amounts.upper is None else amounts.upper})"


def _memory(amounts: Amounts | None) -> str:
    if amounts is None:
        return "-"
    lower, target = (math.ceil(each / (1 << 20)) for each in (amounts.lower, amounts.target))
    return f"{target}Mi ({lower}..{'' if amounts.upper is None else math.ceil(amounts.upper / (1 << 20))})"
