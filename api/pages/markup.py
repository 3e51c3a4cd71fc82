"""Markup of our pages: elements are made of escaped text, so that no name of a pod or cgroup becomes HTML.

A `Markup` is text that is safe as it stands; every other text is escaped where it enters an element, and characters
that cannot be seen (control, bidirectional, undecodable) are shown as escapes.
"""

import html
import re
from collections.abc import Iterable

from api.cgroup_names import printable

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_VOID = frozenset({"meta", "link", "br", "input"})
LONGEST = 400
"""Letters of one text; a user may nest cgroups to paths of many thousands."""


class Markup(str):
    """HTML text that is safe as it stands."""

    __slots__ = ()


Child = str | int | float | Markup
"""A `Markup` is taken as it stands, anything else as text."""


def escaped(child: Child) -> Markup:
    """Return a child as markup: bounded, visible and escaped unless it is markup."""
    if isinstance(child, Markup):
        return child
    text = str(child)
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}"
    return Markup(html.escape(printable(text)))


def joined(children: Iterable[Child]) -> Markup:
    """Return children one after another."""
    return Markup("".join(map(escaped, children)))


def element(name: str, /, *children: Child, **attributes: Child | None) -> Markup:
    """Return an element; attributes that are None are left out, `_` in their names is `-`, and `class_` is `class`.

    Raises ValueError for the name of an element or attribute that is none, and for attributes that run code or fetch.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        if not _NAME.fullmatch(attribute) or attribute.lower().startswith("on") or attribute in ("src", "style"):
            raise ValueError(f"{attribute} is no attribute of this page")
        if attribute == "href" and not str(value).startswith("#"):
            raise ValueError(f"a link leads to a part of the page, not to {value}")
        parts.append(f'{attribute}="{_attribute(value)}"')
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name} is no element")
    start = f"<{' '.join(parts)}>"
    if name in _VOID:
        return Markup(start)
    return Markup(f"{start}{joined(children)}</{name}>")


def _attribute(value: Child) -> str:
    """Escaped anew even where it is markup: an attribute holds text only."""
    text = str(value)
    return html.escape(printable(text if len(text) <= LONGEST else f"{text[:LONGEST]}…"))
