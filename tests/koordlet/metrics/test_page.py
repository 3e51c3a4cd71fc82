"""The metrics page is what the table says."""

from pathlib import Path

from koordlet.metrics.page import render


def test_the_page_is_up_to_date() -> None:
    assert Path("docs/metrics.md").read_text() == render(), "run: python -m koordlet.metrics.page > docs/metrics.md"
