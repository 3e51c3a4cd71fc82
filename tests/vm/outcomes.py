"""From outcomes of tests to the table: kernel x test group x pass, fail or unsupported (reason)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

RERUN_REASON = "emulated"
"""Why any test of a guest has further attempts: one thread runs its CPUs in turn, slower than any hardware."""

Result = Literal["pass", "FAIL", "unsupported", "unavailable", "left"]


class Outcome(msgspec.Struct, frozen=True):
    """One decided test (or uncollectable file). `outcome` is pytest's: passed, failed, skipped or rerun."""

    nodeid: str
    outcome: str
    reason: str
    seconds: float
    figure: str = ""
    """What a passed test measured, from its property of this name."""

    @property
    def group(self) -> str:
        """The part of the file's name after "test_"."""
        return PurePosixPath(self.nodeid.partition("::")[0]).stem.removeprefix("test_")

    @property
    def test(self) -> str:
        return self.nodeid.partition("::")[2] or self.nodeid


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `notes` are reasons and failures, one line each."""

    kernel: str
    group: str
    result: Result
    summary: str
    notes: tuple[str, ...] = ()


def read_lines(path: Path) -> list[Outcome]:
    """Read what the guest wrote; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Outcome) for line in path.read_bytes().split(b"\n")[:-1]]


def rows_of(kernel: str, outcomes: Iterable[Outcome]) -> list[Row]:
    """Return one row per group, in order of appearance."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.group, []).append(outcome)
    return [_row(kernel, group, members) for group, members in groups.items()]


def failed_last(rows: list[Row]) -> str:
    """Return the table, then the rows that failed once more: the end of a long log is what a reader sees of it."""
    failed = [row for row in rows if row.result == "FAIL"]
    return "\n\n".join([table(rows), *([f"FAILED\n{table(failed)}"] if failed else [])])


def _row(kernel: str, group: str, outcomes: list[Outcome]) -> Row:
    failed = {o.nodeid: o for o in outcomes if o.outcome == "failed"}
    skipped = [o for o in outcomes if o.outcome == "skipped"]
    passed = {o.nodeid for o in outcomes if o.outcome == "passed"} - failed.keys()
    seconds = sum(o.seconds for o in outcomes)
    counts = [f"{len(passed)} passed"] if passed else []
    counts += [f"{len(failed)} failed"] if failed else []
    counts += [f"{len(skipped)} unsupported"] if skipped else []
    repeated = {o.nodeid: o for o in outcomes if o.outcome == "rerun"}
    counts += [f"{len(repeated)} tried again"] if repeated else []
    result: Result = "FAIL" if failed else "pass" if passed else "unsupported"
    notes = [f"FAIL {o.test}: {o.reason}" for o in failed.values()]
    notes += [f"tried again ({RERUN_REASON}) {o.test}: {o.reason}" for o in repeated.values()]
    notes += [f"measured {o.test}: {o.figure}" for o in outcomes if o.figure and o.nodeid in passed]
    notes += [f"unsupported ({reason}): {names}" for reason, names in _by_reason(skipped)]
    return Row(kernel, group, result, f"{', '.join(counts)} in {seconds:.0f} s", tuple(notes))


def _by_reason(skipped: list[Outcome]) -> list[tuple[str, str]]:
    reasons = Counter(outcome.reason for outcome in skipped)
    return [(reason, ", ".join(outcome.test for outcome in skipped if outcome.reason == reason)) for reason in reasons]


def table(rows: list[Row]) -> str:
    """Return the table as text, notes indented under their row."""
    header = ("kernel", "test group", "result", "")
    cells = [header, *((row.kernel, row.group, row.result, row.summary) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = []
    for line, notes in zip(cells, [(), *(row.notes for row in rows)], strict=True):
        columns = [cell.ljust(width) for cell, width in zip(line[:3], widths, strict=True)]
        lines.append("  ".join([*columns, line[3]]).rstrip())
        lines += [f"    {note}" for note in notes]
    return "\n".join(lines)
