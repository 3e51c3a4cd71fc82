"""Every link of the documents leads somewhere: to a file, and to a heading in it."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, prose


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if re.match(r"https?://", target):
            assert " " not in target
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        assert file.is_relative_to(ROOT), f"{page.name} links out of the tree: {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to a heading that is not there: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`((?:docs|deploy|tests)/[\w./-]+\.(?:md|yaml|sh|toml|py))`", prose(page)):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_page_is_named_by_another_one() -> None:
    texts = {page: prose(page) for page in PAGES}
    for page in PAGES:
        if page.parent == ROOT:
            continue
        named = f"docs/{page.name}", f"({page.name}"
        assert any(name in text for other, text in texts.items() if other != page for name in named), page.name
