"""Selectors in the API's syntax, where the contract tests do not reach."""

from typing import Any

import pytest

from cluster.twin.kinds import ServedKind, builtin_kinds
from cluster.twin.selectors import matches_selector, predicate
from cluster.twin.status_errors import StatusError

KINDS = {kind.name: kind for kind in builtin_kinds() if kind.group != "" or kind.name != "Event"}


def selected(kind: ServedKind, document: dict[str, Any], labels: str = "", fields: str = "") -> bool:
    chosen = predicate(kind, labels, fields)
    return chosen is None or chosen(document)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("a==1", True),
        ("a = 1", True),
        ("a=", False),
        ("empty=", True),
        ("missing!=1", True),
        ("a in (2,1),empty", True),
        ("a notin (1,2)", False),
        ("missing notin (1)", True),
        ("!a", False),
        ("example.com/x=y", True),
    ],
)
def test_labels(labels: str, expected: bool) -> None:
    metadata = {"name": "n", "labels": {"a": "1", "empty": "", "example.com/x": "y"}}
    assert selected(KINDS["Pod"], {"metadata": metadata}, labels) is expected


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("Node", "spec.unschedulable=false", True),
        ("Node", "spec.unschedulable!=true,metadata.name=n", True),
        ("Pod", "spec.nodeName!=", False),
        ("Pod", "status.phase==Running", False),
        ("Event", "regarding.name=n", False),
    ],
)
def test_fields(kind: str, fields: str, expected: bool) -> None:
    assert selected(KINDS[kind], {"metadata": {"name": "n"}}, fields=fields) is expected


@pytest.mark.parametrize(
    ("labels", "fields"), [("a=b=c,", ""), ("a >> 1", ""), ("", "spec.x=1"), ("", "metadata.name")]
)
def test_what_cannot_be_parsed_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(StatusError):
        predicate(KINDS["Pod"], labels, fields)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({}, False, id="empty"),
        pytest.param({"matchLabels": {"a": "1"}}, True, id="labels"),
        pytest.param({"matchLabels": {"a": "2"}}, False, id="other-labels"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, True, id="in"),
        pytest.param(
            {"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True, id="not-in-absent"
        ),
        pytest.param({"matchExpressions": [{"key": "b", "operator": "Exists"}]}, False, id="exists-absent"),
        pytest.param({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True, id="does-not-exist"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Like"}]}, False, id="unknown-operator"),
    ],
)
def test_selectors_of_budgets(selector: Any, expected: bool) -> None:
    assert matches_selector(selector, {"a": "1"}) is expected
