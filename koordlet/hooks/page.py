"""Table of docs/hooks.md, made from the rules: `python -m koordlet.hooks.page` rewrites it in place."""

import inspect
import re
from pathlib import Path

import koordlet.hooks.rules as package
from api.plugin import discover
from koordlet.hooks.rule import Rule

DOCUMENT = Path("docs/hooks.md")
_BEGIN, _END = "<!-- rules: made by python -m koordlet.hooks.page -->\n", "<!-- end of rules -->\n"
_KEYS = ("Applies", "Knobs", "Source")
_ENTRY = re.compile(rf"^({'|'.join(_KEYS)}): (.*(?:\n[ ].*)*)", re.MULTILINE)


def rewritten(document: str) -> str:
    """Return the document with the table between its two marks replaced by today's."""
    before, _, rest = document.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + table() + _END + after


def table() -> str:
    """Return one row for each rule of this project. Raises ValueError for a docstring that lacks a line."""
    rows = [_row(name, kind) for name, kind in sorted(discover(package, Rule).items())]
    head = "| rule | applies to | knobs | kept by | gates, default | source |\n|---|---|---|---|---|---|\n"
    return head + "".join(rows)


def _row(name: str, kind: type[Rule]) -> str:
    said = {key: " ".join(text.split()) for key, text in _ENTRY.findall(inspect.cleandoc(kind.__doc__ or ""))}
    for key in _KEYS:
        if key not in said:
            where = f"koordlet/hooks/rules/{name}.py: the docstring of {kind.__name__}"
            raise ValueError(f"{where} lacks a line '{key}: ...', which its row in {DOCUMENT} needs")
    gates = ", ".join(f"`{gate}` {'on' if default else 'off'}" for gate, default in kind.features.items())
    keeper = "reconciler" if kind.reconciled else "the strategy"
    if kind.reconciled and said["Knobs"].split()[0].strip(",;") in ("environment", "devices"):
        keeper = "-"
    cells = (said["Applies"], said["Knobs"], keeper, gates or "those of the strategy", said["Source"])
    return f"| `{name}` | {' | '.join(cells)} |\n"


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
