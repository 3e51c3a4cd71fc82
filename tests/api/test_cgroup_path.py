"""Text form of paths, and ancestry by paths."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cgroup_path import (
    ROOT,
    ancestors,
    competing_ancestor,
    is_below,
    is_within,
    lineage,
    outermost,
    parent,
    path_text,
    raw_path,
)

PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4).map(lambda parts: "/" + "/".join(parts))

NOT_ROOT = PATHS.filter(lambda path: path != ROOT)


@pytest.mark.parametrize(
    ("path", "above", "expected"),
    [
        pytest.param("/", "", [], id="root"),
        pytest.param("/a", "/", [], id="top-level"),
        pytest.param("/a/b/c", "/a/b", ["/a/b", "/a"], id="deep"),
    ],
)
def test_ancestors_are_nearest_first_without_the_root(path: str, above: str, expected: list[str]) -> None:
    assert parent(path) == above
    assert ancestors(path) == expected
    assert lineage(path) == [path, *expected]


@pytest.mark.parametrize("path", [pytest.param("/a/b/", id="trailing"), pytest.param("a/b", id="no-leading")])
def test_slashes_at_the_ends_do_not_matter_to_a_lineage(path: str) -> None:
    assert lineage(path) == ["/a/b", "/a"]


@given(PATHS, PATHS)
def test_below_is_what_has_the_other_as_an_ancestor(path: str, other: str) -> None:
    assert is_below(path, other) == (other in ancestors(path))
    assert is_within(path, other) == (other in lineage(path))


@given(PATHS)
def test_parents_lead_to_the_root(path: str) -> None:
    above, found = path, []
    while above := parent(above):
        found.append(above)
    assert found == ([*ancestors(path), ROOT] if path != ROOT else [])


@given(st.lists(PATHS))
def test_the_outermost_cover_all_and_none_another(paths: list[str]) -> None:
    found = outermost(paths)
    assert all(any(is_within(path, each) for each in found) for path in paths)
    assert not any(is_below(one, other) for one in found for other in found)


def test_the_root_competes_with_its_children() -> None:
    assert competing_ancestor(ROOT, "/a/b") == ROOT
    assert competing_ancestor("/a/b", ROOT) == "/a"
    assert competing_ancestor(ROOT, ROOT) == ""


@given(NOT_ROOT, NOT_ROOT)
def test_competitors_are_siblings(path: str, other: str) -> None:
    one, two = competing_ancestor(path, other), competing_ancestor(other, path)
    if is_within(path, other) or is_within(other, path):
        assert one == two == ""
    else:
        assert parent(one) == parent(two)
        assert one != two
        assert is_within(path, one)
        assert is_within(other, two)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(b"/web", "/web", id="plain"),
        pytest.param("/caf\u00e9".encode(), "/caf\u00e9", id="utf-8"),
        pytest.param(b"/system.slice/dev\\x2dsda.mount", "/system.slice/dev\\\\x2dsda.mount", id="backslash-doubled"),
        pytest.param(b"/a\x1b[2J", "/a\\x1b[2J", id="escape-sequence"),
        pytest.param(b"/bad\x80name", "/bad\\x80name", id="no-utf-8"),
        pytest.param("/a\u202eb".encode(), "/a\\xe2\\x80\\xaeb", id="bidirectional"),
    ],
)
def test_text_form(name: bytes, text: str) -> None:
    assert path_text(os.fsdecode(name)) == text
    assert os.fsencode(raw_path(text)) == name


@given(st.binary(max_size=40))
def test_the_text_form_is_printable_and_loses_nothing(name: bytes) -> None:
    text = path_text(os.fsdecode(name))
    assert text.isprintable()
    if b"\0" not in name:
        assert os.fsencode(raw_path(text)) == name


@pytest.mark.parametrize("text", [r"/a\x2e\x2e/b", r"/a\x00", r"/a\q", "/a\\", r"/a\x5c", r"/\xZZ"])
def test_text_that_no_path_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no cgroup path"):
        raw_path(text)
