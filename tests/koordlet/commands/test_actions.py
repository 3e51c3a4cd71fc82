"""`koordlet actions`: what the journal holds and the audit's last lines, torn ones included."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from koordlet.__main__ import main
from koordlet.enforcer.guardian.restoring import boot_id
from koordlet.enforcer.journal import Journal
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.host.attributes import Format, KernelFile
from koordlet.host.files import HostTree

DECISION = {
    "time": "2026-01-01T00:00:00Z",
    "outcome": "set",
    "file": "f",
    "qos": "BE",
    "priority": "koord-batch",
    "from": "0",
    "to": "1",
    "reason": "web loses",
}


def invoke(directory: Path, *words: str) -> Any:
    config = directory / "koordlet.toml"
    config.write_text(f'[enforcer]\nstate_dir = "{directory}"\naudit_file = "{directory}/audit.jsonl"\n')
    return CliRunner().invoke(main, ["actions", "--config", str(config), *words])


def test_nothing_is_changed_where_there_is_no_journal(tmp_path: Path) -> None:
    result = invoke(tmp_path)
    assert (result.exit_code, result.output) == (0, "nothing is changed\n")


def test_an_unreadable_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    result = invoke(tmp_path)
    assert (result.exit_code, str(tmp_path / "journal") in result.output) == (1, True)


def test_settings_in_effect_and_last_decisions(tmp_path: Path) -> None:
    entry = JournalEntry(
        attribute=KernelFile("/cg/batch/cpu.idle", Format.INTEGER),
        identity="7",
        original="0",
        ours=("1",),
        target="/batch",
        knob="cpu.idle",
        strategy="response",
        verdict="/web|cpu",
        lease_end=0.0,
    )
    journal = Journal(tmp_path, boot_id(HostTree(Path("/"))))
    assert journal.hold([entry])
    journal.close()
    lines = [json.dumps({**DECISION, "to": str(number)}) for number in range(20)]
    (tmp_path / "audit.jsonl").write_text("\n".join([*lines, '{"torn": ']))
    shown = invoke(tmp_path, "--log", "2").output.splitlines()
    assert shown[0].startswith("action")
    assert "= 1 (was 0) by response for /web|cpu" in shown[0]
    assert " set f (BE, koord-batch): 0 -> 18" in shown[1]
    assert [line.split(" -> ")[1] for line in shown[1:]] == ["18, web loses", "19, web loses"]
    rows = [json.loads(line) for line in invoke(tmp_path, "--json", "--log", "1").output.splitlines()]
    assert (rows[0]["value"], rows[1]["to"]) == ("1", "19")
