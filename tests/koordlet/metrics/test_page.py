"""The metrics page is what the table and the registries of the programs say."""

from pathlib import Path

from docs.render import metrics_page


def test_the_page_is_up_to_date() -> None:
    assert Path("docs/metrics.md").read_text() == metrics_page(), "run: make docs"
