"""`koordlet actions`: what is in effect on this node, and the last decisions of the audit."""

import json
from collections import deque
from pathlib import Path

import click

from api.settings import SettingsError
from koordlet.commands.startup import USAGE_ERROR, die


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Settings file of the agent.")
@click.option("--log", "lines", type=click.IntRange(0, 100_000), default=10, show_default=True, help="Decisions shown.")
@click.option("--json", "as_lines", is_flag=True, help="One JSON object a line: settings in effect, then decisions.")
def actions(config: Path | None, lines: int, as_lines: bool) -> None:
    """Print the settings in effect, and the last decisions. Reads journal and audit; needs no running agent.

    \b
    Examples:
      koordlet actions
      koordlet actions --log 100 --json | jq 'select(.outcome == "set")'
    """
    from koordlet.config import load_settings
    from koordlet.enforcer.guardian.restoring import boot_id
    from koordlet.enforcer.journal import peek
    from koordlet.host.files import HostTree

    try:
        settings = load_settings(config)
    except SettingsError as error:
        die(str(error), code=USAGE_ERROR)
    directory = Path(settings.enforcer.state_dir)
    try:
        held = peek(directory, boot_id(HostTree(Path(settings.root))))
    except OSError as error:
        die(f"{directory / 'journal'}: {error.strerror}", hint="the journal needs root to read")
    for key, entry in sorted(held.items()):
        row = {
            "kind": entry.kind.value,
            "file": key,
            "value": entry.ours[-1],
            "original": entry.original,
            "strategy": entry.strategy,
            "verdict": entry.verdict,
        }
        click.echo(json.dumps(row) if as_lines else _in_words(row))
    if not held and not as_lines:
        click.echo("nothing is changed")
    for line in _last(Path(settings.enforcer.audit_file), lines):
        click.echo(json.dumps(line) if as_lines else _decision(line))


def _in_words(row: dict[str, str]) -> str:
    why = f" for {row['verdict']}" if row["verdict"] else ""
    return f"{row['kind']:<8} {row['file']} = {row['value']} (was {row['original']}) by {row['strategy']}{why}"


def _decision(line: dict[str, object]) -> str:
    dry = " (dry run)" if line.get("dry_run") else ""
    what = line.get("file") or line.get("target")
    known = ", ".join(str(line[key]) for key in ("qos", "priority") if line.get(key))
    of_class = f" ({known})" if known else ""
    change = f"{line.get('from')} -> {line.get('to')}"
    return f"{line.get('time')} {line.get('outcome')}{dry} {what}{of_class}: {change}, {line.get('reason')}"


def _last(audit: Path, count: int) -> list[dict[str, object]]:
    """Return the last whole lines of the audit; a torn or foreign line is passed over."""
    if not count or not audit.name or not audit.exists():
        return []
    found: deque[dict[str, object]] = deque(maxlen=count)
    with audit.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                decision = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(decision, dict):
                found.append(decision)
    return list(found)
