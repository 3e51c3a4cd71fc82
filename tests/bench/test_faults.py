"""What the rounds of faults conclude from the audit."""

import json
from pathlib import Path

from bench.faults.rounds import restored_twice


def line(outcome: str, file: str = "/cg/a/cpu.max") -> bytes:
    return json.dumps({"strategy": "response", "outcome": outcome, "file": file}).encode() + b"\n"


def test_what_is_restored_again_without_being_set_is_found(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    assert restored_twice(audit, 0) == []
    audit.write_bytes(line("set") + line("restored") + line("set") + line("restored"))
    assert restored_twice(audit, 0) == []
    audit.write_bytes(line("set") + line("restored") + line("restored"))
    assert restored_twice(audit, 0) == ["/cg/a/cpu.max"]


def test_lines_that_are_under_way_are_left_out(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    audit.write_bytes(line("restored") + line("restored") + line("set")[:-5])
    assert restored_twice(audit, 0) == ["/cg/a/cpu.max"]
    assert restored_twice(audit, len(line("restored"))) == [], "the second one alone"
    assert restored_twice(audit, 5) == [], "the first one began before"
