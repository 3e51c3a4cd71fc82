"""The closing table of the demonstration on a terminal of the usual width."""

import io

import numpy as np
from rich.console import Console

from koordlet.demo.measure import DemoPhase
from koordlet.demo.show import table


def phase(name: str, latency: float, blocks: int) -> DemoPhase:
    return DemoPhase(name, 60.0, np.linspace(0, 59, 100), np.full(100, latency), blocks)


def test_the_table_fits_into_80_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    phases = [phase("alone", 0.0101, 0), phase("unprotected", 9.8765, 900_000), phase("protected", 0.0112, 870_000)]
    console.print(table(phases))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\u2026" not in text, text
    rows = [line.split() for line in text.splitlines() if "x " in line]
    assert [row[0] for row in rows] == ["alone", "unprotected", "protected"]
    assert "9.88" in rows[1]
    assert all(len(line) <= 80 for line in text.splitlines())
