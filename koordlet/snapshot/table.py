"""A snapshot as a table."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_ROWS = 20
_RATES = ("on cpu", "cpu wait", "of it by others", "quota", "memory")
_GAP = 2
"""Characters between columns."""
_LEAST_CHARS = 8
"""What is shown of a name in the narrowest terminal."""


def print_table(measured: dict[str, Any]) -> None:
    """Print the cgroups that lost most, with causes and their worst culprit."""
    seconds = measured["seconds"]
    ranked = sorted(measured["cgroups"], key=_lost, reverse=True)[:_ROWS]
    console = Console()
    names, culprits = [_name(row) for row in ranked], [_culprit(row, seconds) for row in ranked]
    name_chars, culprit_chars = _shares(
        console.width - sum(len(heading) + _GAP for heading in _RATES) - _GAP,
        max(map(len, names), default=0),
        max([len("worst culprit"), *(len(name) + len(rate) for name, rate in culprits)]),
    )
    table = Table(title=f"lost seconds per second over {seconds:.1f} s", box=None, pad_edge=False)
    table.add_column("cgroup", no_wrap=True)
    for heading in _RATES:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("worst culprit", no_wrap=True)
    for row, name, (culprit, rate) in zip(ranked, names, culprits, strict=True):
        worst = _cut(culprit, culprit_chars - len(rate)) + rate
        table.add_row(escape(_cut(name, name_chars)), *_rates(row, seconds), escape(worst))
    console.print(table)


def _shares(room: int, names: int, culprits: int) -> tuple[int, int]:
    """Divide `room` characters among both columns of names, which want so many: a half each, or what one leaves."""
    if names + culprits <= room:
        return names, culprits
    half = max(room // 2, _LEAST_CHARS)
    if names <= half:
        return names, max(room - names, _LEAST_CHARS)
    culprits = min(culprits, half)
    return max(room - culprits, _LEAST_CHARS), culprits


def _cut(name: str, chars: int) -> str:
    return name if len(name) <= chars else f"{name[: max(chars - 1, 0)]}…"


def _lost(row: dict[str, Any]) -> float:
    cpu, memory = row["cpu"] or {}, row["memory"] or {}
    stalls = (memory.get("stall_by_cause") or {}).values()
    return float((cpu.get("wait_seconds") or 0) + sum(value or 0 for value in stalls))


def _name(row: dict[str, Any]) -> str:
    kind, _, owner = row["workload"].partition("/")
    owner = owner.partition("/")[2] if row["pod"] else ""
    return f"{row['name']} ({kind} {owner})" if owner else str(row["name"])


def _culprit(row: dict[str, Any], seconds: float) -> tuple[str, str]:
    """Return name and rate of the worst culprit; neither where none is blamed."""
    blame = (row["cpu"] or {}).get("blame") or []
    return (str(blame[0]["name"]), f" {blame[0]['seconds'] / seconds:.2f}") if blame else ("", "")


def _rates(row: dict[str, Any], seconds: float) -> list[str]:
    cpu, memory = row["cpu"] or {}, row["memory"] or {}
    causes = cpu.get("wait_by_cause") or {}
    stalls = sum(value or 0 for value in (memory.get("stall_by_cause") or {}).values())
    others = (causes.get("neighbour") or 0) + (causes.get("kernel") or 0)
    quota = (causes.get("own_quota") or 0) + (causes.get("ancestor_quota") or 0)
    rates = [cpu.get("oncpu_seconds") or 0, cpu.get("wait_seconds") or 0, others, quota, stalls]
    return [f"{rate / seconds:.3f}" for rate in rates]
