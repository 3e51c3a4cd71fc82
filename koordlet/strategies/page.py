"""Table of docs/strategies.md, made from the strategies: `python -m koordlet.strategies.page` rewrites it in place."""

import inspect
import re
from pathlib import Path

import koordlet.strategies.plugins as package
from api.plugin import discover
from koordlet.strategies.strategy import Strategy, StrategySettings, settings_path

DOCUMENT = Path("docs/strategies.md")
_BEGIN, _END = "<!-- strategies: made by python -m koordlet.strategies.page -->\n", "<!-- end of strategies -->\n"
_KEYS = ("Reads", "Intents", "Default", "Source")
_ENTRY = re.compile(rf"^({'|'.join((*_KEYS, 'Pods'))}): (.*(?:\n[ ].*)*)", re.MULTILINE)


def rewritten(document: str) -> str:
    """Return the document with the table between its two marks replaced by today's."""
    before, _, rest = document.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + table() + _END + after


def table() -> str:
    """Return one row for each strategy of this project. Raises ValueError for a docstring that lacks a line."""
    rows = [_row(name, kind) for name, kind in sorted(discover(package, Strategy).items())]  # type: ignore[type-abstract]
    head = "| strategy | settings; gates | reads | intents | default | source |\n|---|---|---|---|---|---|\n"
    return head + "".join(rows)


def _row(name: str, kind: type[Strategy[StrategySettings]]) -> str:
    said = {key: " ".join(text.split()) for key, text in _ENTRY.findall(inspect.cleandoc(kind.__doc__ or ""))}
    for key in _KEYS:
        if key not in said:
            where = f"koordlet/strategies/plugins/{name}.py: the docstring of {kind.__name__}"
            raise ValueError(f"{where} lacks a line '{key}: ...', which its row in {DOCUMENT} needs")
    pods = f", pod {said['Pods']}" if "Pods" in said else ""
    gates = ", ".join(f"`{gate}`" for gate in kind.features)
    settings = f"`{settings_path(name, kind)}`{pods}{'; ' if gates else ''}{gates}"
    return f"| `{name}` | {settings} | {' | '.join(said[key] for key in _KEYS)} |\n"


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
