"""Server-side apply on plain documents."""

from typing import Any

import pytest

from cluster.twin.server_side_apply import Ownership, apply, leaves, with_value, without
from cluster.twin.status_errors import StatusError


def document(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **fields}


def test_leaves_step_into_keyed_lists_only() -> None:
    value = {"containers": [{"name": "a", "image": "1"}], "args": ["x"], "labels": {}}
    assert dict(leaves(value)) == {
        ("containers", "name=a", "name"): "a",
        ("containers", "name=a", "image"): "1",
        ("args",): ["x"],
        ("labels",): {},
    }


@pytest.mark.parametrize(
    ("value", "path", "leaf", "expected"),
    [
        pytest.param({}, ("a", "b"), 1, {"a": {"b": 1}}, id="into-nothing"),
        pytest.param({"a": {"c": 2}}, ("a", "b"), 1, {"a": {"c": 2, "b": 1}}, id="beside-a-sibling"),
        pytest.param(
            {}, ("containers", "name=x", "image"), "i", {"containers": [{"image": "i"}]}, id="makes-the-list-item"
        ),
        pytest.param(
            {"containers": [{"name": "x", "tty": True}]},
            ("containers", "name=x", "image"),
            "i",
            {"containers": [{"name": "x", "tty": True, "image": "i"}]},
            id="finds-the-item-by-name",
        ),
        pytest.param(
            {"ports": [{"containerPort": 80}]},
            ("ports", "containerPort=80", "name"),
            "w",
            {"ports": [{"containerPort": 80, "name": "w"}]},
            id="finds-the-item-by-number",
        ),
    ],
)
def test_setting_a_path(value: Any, path: tuple[str, ...], leaf: Any, expected: Any) -> None:
    assert with_value(value, path, leaf) == expected


def test_removing_a_path_takes_what_it_empties() -> None:
    value = {"a": {"b": 1}, "c": 2}
    assert without(value, ("a", "b")) == {"c": 2}
    assert without(value, ("a", "x")) == value
    elements = {"containers": [{"name": "x"}, {"name": "y", "tty": True}]}
    assert without(elements, ("containers", "name=x", "name")) == {"containers": [{"name": "y", "tty": True}]}


def test_a_keyed_element_is_owned_and_given_up() -> None:
    ownership = Ownership()
    both = document(spec={"containers": [{"name": "x", "image": "1"}, {"name": "y", "image": "2"}]})
    first = apply({}, both, ownership, manager="m", force=False)
    assert first["spec"] == both["spec"]
    fewer = document(spec={"containers": [{"name": "x", "image": "1"}]})
    assert apply(first, fewer, ownership, manager="m", force=False)["spec"] == fewer["spec"]


def test_equal_values_are_shared_without_conflict() -> None:
    ownership = Ownership()
    state = apply({}, document(spec={"x": 1}), ownership, manager="a", force=False)
    state = apply(state, document(spec={"x": 1}), ownership, manager="b", force=False)
    # One owner lets go, the other still holds the field.
    state = apply(state, document(), ownership, manager="a", force=False)
    assert state["spec"] == {"x": 1}
    assert "spec" not in apply(state, document(), ownership, manager="b", force=False)


def test_fields_of_plain_writers_are_left_alone() -> None:
    current = document(spec={"theirs": 1})
    state = apply(current, document(spec={"ours": 2}), Ownership(), manager="m", force=False)
    assert state["spec"] == {"theirs": 1, "ours": 2}


def test_a_refused_apply_changes_no_ownership() -> None:
    ownership = Ownership()
    state = apply({}, document(spec={"x": 1}), ownership, manager="a", force=False)
    with pytest.raises(StatusError, match="1 conflict"):
        apply(state, document(spec={"x": 2}), ownership, manager="b", force=False)
    assert "b" not in ownership.fields
    assert apply(state, document(), ownership, manager="a", force=False).get("spec") is None
