"""A snapshot as a table."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_ROWS = 20


def print_table(measured: dict[str, Any]) -> None:
    """Print the cgroups that lost most, with causes and their worst culprit."""
    seconds = measured["seconds"]
    table = Table(title=f"lost seconds per second over {seconds:.1f} s", box=None, pad_edge=False)
    table.add_column("cgroup", no_wrap=True)
    for heading in ("on cpu", "cpu wait", "of it by others", "quota", "memory"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=6)
    table.add_column("worst culprit", no_wrap=True)
    ranked = sorted(measured["cgroups"], key=_lost, reverse=True)
    for row in ranked[:_ROWS]:
        table.add_row(*_cells(row, seconds))
    Console().print(table)


def _lost(row: dict[str, Any]) -> float:
    cpu, memory = row["cpu"] or {}, row["memory"] or {}
    stalls = (memory.get("stall_by_cause") or {}).values()
    return float((cpu.get("wait_seconds") or 0) + sum(value or 0 for value in stalls))


def _cells(row: dict[str, Any], seconds: float) -> list[str]:
    cpu, memory = row["cpu"] or {}, row["memory"] or {}
    causes = cpu.get("wait_by_cause") or {}
    stalls = sum(value or 0 for value in (memory.get("stall_by_cause") or {}).values())
    others = (causes.get("neighbour") or 0) + (causes.get("kernel") or 0)
    quota = (causes.get("own_quota") or 0) + (causes.get("ancestor_quota") or 0)
    blame = cpu.get("blame") or []
    worst = f"{escape(blame[0]['name'])} {blame[0]['seconds'] / seconds:.2f}" if blame else ""
    rates = [cpu.get("oncpu_seconds") or 0, cpu.get("wait_seconds") or 0, others, quota, stalls]
    kind, _, owner = row["workload"].partition("/")
    owner = owner.partition("/")[2] if row["pod"] else ""
    name = f"{row['name']} ({kind} {owner})" if owner else row["name"]
    return [escape(name), *(f"{rate / seconds:.3f}" for rate in rates), worst]
