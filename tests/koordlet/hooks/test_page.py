"""The table of rules in docs/hooks.md, and the conventions of rules."""

from pathlib import Path

from koordlet.hooks.decide import discover_rules
from koordlet.hooks.page import DOCUMENT, rewritten

ROOT = Path(__file__).parents[3]


def test_the_document_is_up_to_date() -> None:
    document = (ROOT / DOCUMENT).read_text()
    assert document == rewritten(document), "run: python -m koordlet.hooks.page"


def test_every_rule_has_its_test() -> None:
    for name in discover_rules():
        assert (ROOT / f"tests/koordlet/hooks/rules/test_{name}.py").exists(), name
