"""Renew the generated parts of the documents: `make docs`, or `python -m docs.render` from the top of the tree."""

import re
from pathlib import Path

from api.lake import TABLES, kind_of
from detector.explain.symptom_table import symptom_table
from detector.registry import default_rules, discover_symptoms
from docs.program_metrics import program_tables
from docs.settings_page import settings_page
from koordlet.hooks.page import rewritten as with_rules
from koordlet.host.knobs.spec import KnobFile
from koordlet.host.knobs.table import KNOBS
from koordlet.metrics.page import render
from koordlet.strategies.page import rewritten

DOCUMENTS = Path(__file__).parent
_SYMPTOMS = re.compile(r"(<!-- koord-detector symptoms -->\n).*?(<!-- end -->)", re.DOTALL)
_LAKE = re.compile(r"(<!-- tables -->\n).*?(<!-- end -->)", re.DOTALL)
_KNOBS = re.compile(r"(?<=\n)((?:\| [\w.]+ \|.*\n)+)(?=\n\*\*Reclaim on v1)")


def main() -> None:
    """Write the pages of metrics and settings, and the tables of other documents."""
    (DOCUMENTS / "metrics.md").write_text(metrics_page())
    (DOCUMENTS / "settings.md").write_text(settings_page())
    strategies, verdicts, enforcer = (DOCUMENTS / f"{name}.md" for name in ("strategies", "verdicts", "enforcer"))
    strategies.write_text(rewritten(strategies.read_text()))
    hooks = DOCUMENTS / "hooks.md"
    hooks.write_text(with_rules(hooks.read_text()))
    analysis = DOCUMENTS / "analysis.md"
    analysis.write_text(_LAKE.sub(lambda marks: marks[1] + lake_tables() + marks[2], analysis.read_text()))
    symptoms = discover_symptoms()
    table = symptom_table(symptoms, default_rules(symptoms))
    verdicts.write_text(_SYMPTOMS.sub(lambda marks: marks[1] + table + marks[2], verdicts.read_text()))
    enforcer.write_text(_KNOBS.sub(lambda rows: knob_rows(rows[1]), enforcer.read_text()))


def metrics_page() -> str:
    """Return docs/metrics.md: the agent's metrics, then those of the other programs."""
    return render() + program_tables()


def lake_tables() -> str:
    """Return a table of columns for each table of an export."""
    parts = []
    for name, columns in TABLES.items():
        rows = "".join(f"| `{column}` | {kind_of(column)} | {meaning} |\n" for column, meaning in columns.items())
        parts.append(f"\n### {name}\n\n| column | kind | meaning |\n|---|---|---|\n{rows}\n")
    return "".join(parts)


def knob_rows(present: str) -> str:
    """Return a row for each knob of the table, with the remarks of the present rows."""
    remarks = dict(re.findall(r"^\| ([\w.]+) \|(?:[^|]*\|){4}(.*)\|$", present, re.MULTILINE))
    rows = []
    for knob, spec in KNOBS.items():
        v1 = "same" if spec.v1 == spec.v2 and spec.v2 else _files(spec.v1)
        widening = "may be widened" if spec.may_widen_protected else "-"
        cells = " | ".join((knob.value, spec.scope.value, _files(spec.v2), v1, widening))
        rows.append(f"| {cells} |{remarks.get(knob.value, ' ')}|\n")
    return "".join(rows)


def _files(files: tuple[KnobFile, ...]) -> str:
    return ", ".join(file.name for file in files) or "unsupported"


if __name__ == "__main__":
    main()
