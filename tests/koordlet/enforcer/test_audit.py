"""The audit file: bounded, and lossy rather than blocking."""

import json
from pathlib import Path

from koordlet.enforcer.audit import AuditFile, Line, Outcome


def line(number: int) -> Line:
    return Line(
        time="2026-01-01T00:00:00+00:00",
        strategy="calm",
        verdict="",
        target=f"/{number}",
        file="",
        before="",
        after="",
        reason="because",
        dry_run=False,
        lease_seconds=0.0,
        outcome=Outcome.SET,
    )


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    audit = AuditFile(tmp_path / "log/audit.jsonl", 2000, 3)
    for number in range(100):
        audit.write(line(number))
    audit.close()
    files = sorted((tmp_path / "log").iterdir())
    assert [path.name for path in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(path.stat().st_size <= 2000 for path in files)
    told = [json.loads(text)["target"] for path in reversed(files) for text in path.read_text().splitlines()]
    assert told == [f"/{number}" for number in range(100 - len(told), 100)]
    assert audit.lost == 0


def test_one_file_is_enough(tmp_path: Path) -> None:
    audit = AuditFile(tmp_path / "audit.jsonl", 2000, 1)
    for number in range(50):
        audit.write(line(number))
    audit.close()
    assert [path.name for path in tmp_path.iterdir()] == ["audit.jsonl"]


def test_a_removed_file_is_made_again(tmp_path: Path) -> None:
    audit = AuditFile(tmp_path / "audit.jsonl", 100_000, 2)
    audit.write(line(1))
    (tmp_path / "audit.jsonl").unlink()
    audit.write(line(2))
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 1


def test_what_cannot_be_written_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    audit = AuditFile(tmp_path / "file/audit.jsonl", 100_000, 2)
    audit.write(line(1))
    assert audit.lost == 1


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("as it was")
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "mine")
    audit = AuditFile(tmp_path / "audit.jsonl", 100_000, 2)
    audit.write(line(1))
    audit.close()
    assert audit.lost == 1
    assert (tmp_path / "mine").read_text() == "as it was"
