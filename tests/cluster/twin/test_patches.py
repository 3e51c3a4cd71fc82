"""The patch types, by table; examples of the RFCs and of Kubernetes' own documentation among them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.twin.patches import json_patch, merge, strategic
from cluster.twin.status_errors import StatusError


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="remove"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="remove-one-of-two"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="string-for-list"),
        pytest.param({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}, id="list-for-string"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="nested"),
        pytest.param({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}, id="lists-do-not-merge"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="null-in-target-stays"),
        pytest.param([1, 2], {"a": "b", "c": None}, {"a": "b"}, id="object-for-list"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="null-below-new-key"),
        pytest.param({"a": "foo"}, "bar", "bar", id="string-for-object"),
    ],
)
def test_merge_patch(target: Any, patch: Any, expected: Any) -> None:
    assert merge(target, patch) == expected


PODS = {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param(
            {"containers": [{"name": "a", "image": "2"}]},
            {"containers": [{"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]},
            id="by name",
        ),
        pytest.param(
            {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
            {
                "containers": [
                    {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                    {"name": "b"},
                ]
            },
            id="nested",
        ),
        pytest.param({"containers": [{"name": "c"}]}, {"containers": [*PODS["containers"], {"name": "c"}]}, id="added"),
        pytest.param(
            {"containers": [{"name": "a", "$patch": "delete"}]}, {"containers": [{"name": "b"}]}, id="deleted"
        ),
        pytest.param(
            {"containers": [{"name": "z"}, {"$patch": "replace"}]}, {"containers": [{"name": "z"}]}, id="replaced"
        ),
        pytest.param({"$patch": "replace", "x": 1}, {"x": 1}, id="whole map replaced"),
        pytest.param({"containers": None}, {}, id="removed"),
        pytest.param({"$setElementOrder/containers": [{"name": "b"}], "x": 1}, {**PODS, "x": 1}, id="order ignored"),
        pytest.param({"$retainKeys": ["x"], "x": 1}, {"x": 1}, id="retained"),
    ],
)
def test_strategic_patch(patch: Any, expected: Any) -> None:
    assert strategic(PODS, patch) == expected


def test_strategic_lists_without_a_key_are_replaced() -> None:
    assert strategic({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}) == {
        "tolerations": [{"key": "b"}]
    }
    assert strategic({"args": ["a"]}, {"args": ["b"]}) == {"args": ["b"]}


def test_strategic_sets_merge_and_shrink() -> None:
    metadata = {"finalizers": ["a", "b"]}
    assert strategic(metadata, {"finalizers": ["b", "c"]}) == {"finalizers": ["a", "b", "c"]}
    assert strategic(metadata, {"$deleteFromPrimitiveList/finalizers": ["a"]}) == {"finalizers": ["b"]}


def test_an_element_without_its_merge_key_is_refused() -> None:
    with pytest.raises(StatusError, match="merge key"):
        strategic(PODS, {"containers": [{"image": "x"}]})


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        pytest.param({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}, id="add-key"),
        pytest.param({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}, id="add-in-list"),
        pytest.param({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="append"),
        pytest.param({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}, id="remove-key"),
        pytest.param({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="remove-from-list"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}, id="replace"),
        pytest.param(
            {"a": {"b": 1}, "c": {}},
            [{"op": "move", "from": "/a/b", "path": "/c/d"}],
            {"a": {}, "c": {"d": 1}},
            id="move",
        ),
        pytest.param({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}, id="copy"),
        pytest.param(
            {"a/b": 1, "m~n": 2},
            [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}],
            {},
            id="escaped-paths",
        ),
        pytest.param({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}, id="test"),
        pytest.param({"a": 1}, [{"op": "add", "path": "", "value": {"b": 1}}], {"b": 1}, id="whole-document"),
    ],
)
def test_json_patch(target: Any, operations: Any, expected: Any) -> None:
    before = msgspec.json.encode(target)
    assert json_patch(target, operations) == expected
    assert msgspec.json.encode(target) == before


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "replace", "path": "/missing", "value": 1}, id="replace-missing"),
        pytest.param({"op": "remove", "path": "/missing"}, id="remove-missing"),
        pytest.param({"op": "test", "path": "/a", "value": 2}, id="failed-test"),
        pytest.param({"op": "add", "path": "/list/9", "value": 1}, id="index-past-the-end"),
        pytest.param({"op": "add", "path": "no-slash", "value": 1}, id="path-without-slash"),
        pytest.param({"op": "invent", "path": "/a"}, id="unknown-operation"),
        pytest.param({"path": "/a"}, id="no-operation"),
    ],
)
def test_json_patch_that_does_not_fit_is_refused(operation: Any) -> None:
    with pytest.raises(StatusError) as refused:
        json_patch({"a": 1, "list": []}, [operation])
    assert refused.value.status == 422


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(target=JSON, patch=JSON)
def test_merging_twice_is_merging_once(target: Any, patch: Any) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once
