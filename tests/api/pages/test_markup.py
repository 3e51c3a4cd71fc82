"""Markup: every text is escaped where it enters, bounded and visible; nothing that runs or fetches can be made."""

import html.parser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pages.markup import LONGEST, Markup, element, escaped, joined

HOSTILE = "<script>alert(1)</script>\"'&\u202e\x00\x1b[2J\ud800"


class Collected(html.parser.HTMLParser):
    """Elements, attributes and text of a document, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def read(markup: str) -> Collected:
    found = Collected()
    found.feed(markup)
    found.close()
    return found


def assert_fetches_nothing(document: str) -> None:
    """Check that a page has one style and one script of its own, and neither loads nor runs anything else."""
    found = read(document)
    assert found.elements.count("script") == found.elements.count("style") == 1
    assert not {"link", "img", "iframe", "object", "base", "use", "image"} & set(found.elements)
    names = {name for name, _ in found.attributes}
    assert not {"src", "style", "srcset", "action"} & names
    assert not [name for name in names if name.startswith("on")]
    assert all((value or "").startswith("#") for name, value in found.attributes if name == "href")


def test_text_and_attributes_are_escaped_and_what_cannot_be_seen_is_shown() -> None:
    made = element("p", HOSTILE, title=HOSTILE)
    found = read(made)
    assert found.elements == ["p"]
    assert found.text == "<script>alert(1)</script>\"'&\\u202e\\x00\\x1b[2J\\ud800"
    assert found.attributes == [("title", found.text)]
    made.encode()


@given(st.text(), st.text())
def test_no_text_makes_an_element(content: str, title: str) -> None:
    found = read(element("td", element("b", content, title=title)))
    assert found.elements == ["td", "b"]
    assert [name for name, _ in found.attributes] == ["title"]


def test_long_text_is_cut_in_its_middle() -> None:
    text = escaped("a" * 5000 + "end")
    assert len(text) == LONGEST + 1
    assert text.endswith("end")


def test_markup_is_taken_as_it_stands_and_numbers_are_text() -> None:
    assert joined((Markup("<br>"), 3, "<")) == "<br>3&lt;"
    assert element("rect", x=1, stroke_dasharray=None, class_="a", aria_label="b") == (
        '<rect x="1" class="a" aria-label="b"></rect>'
    )
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


@pytest.mark.parametrize("attribute", ["onclick", "src", "style", "a b", 'x"'])
def test_attributes_that_run_fetch_or_break_out_are_refused(attribute: str) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        element("p", **{attribute: "1"})


def test_elements_and_links_elsewhere_are_refused() -> None:
    with pytest.raises(ValueError, match="no element"):
        element("p onclick=1")
    with pytest.raises(ValueError, match="a part of the page"):
        element("a", "here", href="javascript:alert(1)")
