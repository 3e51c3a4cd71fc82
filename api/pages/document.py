"""The document that all pages share: head, keys, filter, sections, tiles and tables. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.pages.assets import SCRIPT, STYLE
from api.pages.markup import Child, Markup, element, joined

MOST_ROWS = 50
"""Of one table."""
_KEYS = (
    ("j, k", "next and previous row"),
    ("/", "filter rows; Esc ends it"),
    ("p", "pause and go on"),
    ("t", "dark or light"),
    ("?", "this help; Esc closes it"),
)


@dataclass(frozen=True, slots=True)
class Badge:
    """A word beside the title; `tone` is good, warn, bad or faint."""

    text: str
    tone: str


@dataclass(frozen=True, slots=True)
class Heading:
    """Top of a page."""

    title: str
    program: str
    badges: Sequence[Badge]
    facts: str
    links: Sequence[tuple[str, str]]
    """Identity of a section, and the text of the link to it."""


def document(heading: Heading, sections: Iterable[Child]) -> str:
    """Return the whole document."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{heading.title} · {heading.program}"),
        element("style", Markup(STYLE)),
    )
    body = element(
        "body",
        _header(heading),
        element("main", *sections, id="live"),
        _help(),
        element("script", Markup(SCRIPT)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def section(identity: str, title: str, body: Markup) -> Markup:
    """Return a part of the page with a heading."""
    return element("section", element("h2", title), body, id=identity)


def tiles(figures: Iterable[tuple[str, str]]) -> Markup:
    """Return large figures with what they count."""
    return element(
        "section",
        *(element("div", element("b", value), element("span", text), class_="tile") for value, text in figures),
        class_="tiles",
    )


def table(head: Sequence[str], body: Iterable[Child], *, right: Sequence[int] = ()) -> Markup:
    """Return a table; columns `right` have numbers."""
    cells = (
        element("th", title, scope="col", class_="number" if place in right else None)
        for place, title in enumerate(head)
    )
    return element("table", element("thead", element("tr", *cells)), element("tbody", *body), class_="filtered")


def table_row(key: str, *cells: Child) -> Markup:
    """Return a row that keys reach; `key` tells it from the others when the page is renewed."""
    found = (cell if cell.startswith("<td") else element("td", cell) for cell in map(_markup, cells))
    return element("tr", *found, tabindex=0, data_key=key)


def number_cell(value: float, digits: int = 3) -> Markup:
    """Return a cell with a number."""
    return element("td", f"{value:.{digits}f}", class_="number")


def name_span(text: str, full: str = "") -> Markup:
    """Return a name, with its full form as a hint."""
    return element("span", text or "-", class_="name", title=full if full and full != text else None)


def noun(count: int, singular: str) -> str:
    """Return a noun as it stands after a count: `1 verdict`, `2 verdicts`."""
    return singular if count == 1 else f"{singular}s"


def left_out(count: int) -> Markup:
    """Return how many rows a table of `count` does not show."""
    return element("p", f"and {count - MOST_ROWS} more", class_="faint") if count > MOST_ROWS else Markup()


def _markup(cell: Child) -> Markup:
    return cell if isinstance(cell, Markup) else joined((cell,))


def _header(heading: Heading) -> Markup:
    return element(
        "header",
        element("h1", heading.title),
        element(
            "div",
            *(element("span", each.text, class_=f"badge {each.tone}") for each in heading.badges),
            element("p", heading.facts),
            id="facts",
        ),
        element("span", "", id="state", class_="faint", role="status"),
        element(
            "input", id="filter", type="search", placeholder="filter rows ( / )", aria_label="filter rows", hidden=""
        ),
        element("nav", *(element("a", text, href=f"#{anchor}") for anchor, text in heading.links)),
    )


def _help() -> Markup:
    keys = joined(joined((element("dt", element("kbd", key)), element("dd", text))) for key, text in _KEYS)
    close = element("form", element("button", "Close"), method="dialog")
    return element("dialog", element("h2", "Keys"), element("dl", keys), close, id="keys", aria_label="keys")
