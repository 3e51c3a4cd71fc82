"""Every symptom: it declares what it reads, is silent where nothing measures it, and has its rule, test and row."""

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import detector.symptom
import detector.symptoms
from api.metrics import BY_COLUMN
from api.plugin import discover
from detector.explain.symptom_table import symptom_table
from detector.registry import default_rules, discover_symptoms
from detector.symptom import Symptom
from tests.detector.symptoms.ticks import lost, tick

ALL = discover_symptoms()
BUILT_IN = discover(detector.symptoms, Symptom)  # type: ignore[type-abstract]
DOCUMENT = Path("docs/verdicts.md")


@pytest.mark.parametrize("name", ALL)
def test_silent_where_nothing_is_measured(name: str) -> None:
    assert ALL[name].sense(tick(ALL[name], {})) is None


@pytest.mark.parametrize("name", ALL)
def test_columns_are_known_and_the_module_has_a_docstring(name: str) -> None:
    symptom = ALL[name]
    assert set(symptom.columns) <= set(BY_COLUMN)
    assert {symptom.blame.suspects, symptom.blame.used, *symptom.blame.ancestor_columns} <= {"", *symptom.columns}
    assert type(symptom).__doc__


def test_default_rules_use_every_symptom() -> None:
    assert {name for rule in default_rules() for name in rule.symptoms} == set(ALL)


def test_every_symptom_has_its_test() -> None:
    names = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert names - {"symptoms"} == set(BUILT_IN)


def test_the_document_has_a_row_for_every_symptom() -> None:
    table = re.search(r"<!-- koord-detector symptoms -->\n(.*?)<!-- end -->", DOCUMENT.read_text(), re.DOTALL)
    symptoms = {name: ALL[name] for name in sorted(BUILT_IN)}
    assert table, "docs/verdicts.md has no table of symptoms"
    assert table[1] == symptom_table(symptoms, default_rules(symptoms)), "put in what `koord-detector symptoms` prints"


def test_the_example_of_the_extension_page_is_a_symptom() -> None:
    page = inspect.getdoc(detector.symptom) or ""
    example = re.search(r"^    from typing.*?^(?=\*)", page, re.DOTALL | re.MULTILINE)
    assert example
    made: dict[str, Any] = {"__name__": "example"}
    exec(textwrap.dedent(example[0]), made)
    symptom: Symptom = made["PageRefault"]()
    assert lost(symptom, {"memstat.refaults": 3000}) == pytest.approx(0.3)
    assert symptom.sense(tick(symptom, {})) is None
    assert set(symptom.columns) <= set(BY_COLUMN)
    assert "page-refault" in {rule.name for rule in default_rules({"page_refault": symptom})}
