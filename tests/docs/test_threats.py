"""docs/threats.md: every line names the tests that show it, or says what does not hold."""

import re

import pytest

from tests.docs.pages import ROOT

ROWS = [
    line
    for line in (ROOT / "docs/threats.md").read_text().splitlines()
    if line.startswith("| ") and line.count(" | ") == 2 and not line.startswith(("| attempt |", "| wrong ground |"))
]
HAS_TEST = re.compile(r"^def test_", re.MULTILINE)


def test_the_rows_are_found() -> None:
    assert len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=[row.split(" | ")[0][2:42] for row in ROWS])
def test_a_line_is_shown_by_tests_or_not_held(row: str) -> None:
    _attempt, held_by, shown = row.strip("| ").split(" | ")
    named = [ROOT / text for text in re.findall(r"`(tests/[^`]+)`", shown)]
    if not named:
        assert shown == "-"
        assert "not held" in held_by
    for path in named:
        files = sorted(path.glob("test_*.py")) if path.is_dir() else [path]
        assert files, f"{path} has no tests"
        for each in files:
            assert HAS_TEST.search(each.read_text()), f"{each} has no tests"
