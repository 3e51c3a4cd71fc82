"""Selectors and the labels that they match."""

from typing import Any

import msgspec
import pytest

from api.kube.meta import LabelSelector
from api.kube.selectors import (
    NodeSelectorTerm,
    SelectorError,
    label_selector_matches,
    node_term_matches,
    parse_label_selector,
)


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        pytest.param(None, {"a": "1"}, False, id="none-matches-nothing"),
        pytest.param({}, {}, True, id="empty-matches-everything"),
        pytest.param({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True, id="label"),
        pytest.param({"matchLabels": {"a": "1"}}, {"a": "2"}, False, id="other-value"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True, id="in"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True, id="not-in-absent"
        ),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True, id="exists-empty"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False, id="absent"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Like"}]}, {"a": "1"}, False, id="unknown"),
        pytest.param(
            {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]},
            {"a": "1"},
            False,
            id="both-must-hold",
        ),
    ],
)
def test_label_selectors(selector: dict[str, Any] | None, labels: dict[str, str], matches: bool) -> None:
    made = None if selector is None else msgspec.convert(selector, LabelSelector)
    assert label_selector_matches(made, labels) is matches


@pytest.mark.parametrize(
    ("operator", "bound", "value", "matches"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "5", None, False),
        ("Gt", "5", "many", False),
    ],
)
def test_numbers_compare_only_with_numbers(operator: str, bound: str, value: str | None, matches: bool) -> None:
    expression = {"key": "cores", "operator": operator, "values": [bound]}
    term = msgspec.convert({"matchExpressions": [expression]}, NodeSelectorTerm)
    assert node_term_matches(term, {} if value is None else {"cores": value}, "n") is matches


def test_an_empty_term_matches_no_node() -> None:
    assert not node_term_matches(NodeSelectorTerm(), {"a": "1"}, "n")


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", "", True),
        ("a=1", "a=1", True),
        ("a==1, b!=2", "a=1,b=3", True),
        ("a!=1", "", True),
        ("a in (1, 2),b", "a=2,b=", True),
        ("a notin (1,2)", "a=2", False),
        ("!a", "a=1", False),
        ("node.k8s.io/a=", "node.k8s.io/a=", True),
    ],
)
def test_text_as_kubectl_reads_it(text: str, labels: str, matches: bool) -> None:
    pairs = dict(each.split("=") for each in labels.split(",") if each)
    assert label_selector_matches(parse_label_selector(text), pairs) is matches


@pytest.mark.parametrize("text", ["a in 1", "=1", "a=1=2", "a in (1", "a b", "(", "-a", "a>1"])
def test_other_text_is_refused_by_its_part(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_label_selector(text)
