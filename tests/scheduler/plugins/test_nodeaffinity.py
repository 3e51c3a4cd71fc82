"""Node selectors, required terms and preferred terms."""

from typing import Any

import pytest

from scheduler.plugins.nodeaffinity import NodeAffinity
from tests.schedobjects import engine, node, pod, rejected, totals

KINDS = {"nodeaffinity": NodeAffinity}
REASON = "node(s) didn't match Pod's node affinity/selector"


def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": term} for term in terms]
            }
        }
    }


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


NODES = [node("ssd", labels={"disk": "ssd", "cores": "8"}), node("hdd", labels={"disk": "hdd"}), node("none")]


@pytest.mark.parametrize(
    ("affinity", "passing"),
    [
        pytest.param(required([expression("disk", "In", "ssd", "nvme")]), {"ssd"}, id="in"),
        pytest.param(required([expression("disk", "NotIn", "ssd")]), {"hdd", "none"}, id="not-in-takes-absent"),
        pytest.param(required([expression("disk", "Exists")]), {"ssd", "hdd"}, id="exists"),
        pytest.param(required([expression("disk", "DoesNotExist")]), {"none"}, id="absent"),
        pytest.param(required([expression("cores", "Gt", "7")]), {"ssd"}, id="greater"),
        pytest.param(required([expression("cores", "Gt", "8")]), set(), id="not-greater"),
        pytest.param(required([expression("cores", "Lt", "9")]), {"ssd"}, id="less-wants-a-number"),
        pytest.param(
            required([expression("disk", "In", "hdd")], [expression("cores", "Exists")]),
            {"ssd", "hdd"},
            id="terms-are-alternatives",
        ),
        pytest.param(
            required([expression("disk", "Exists"), expression("cores", "Exists")]), {"ssd"}, id="all-of-a-term"
        ),
        pytest.param(required([]), set(), id="an-empty-term-matches-nothing"),
    ],
)
def test_required(affinity: dict[str, Any], passing: set[str]) -> None:
    made = engine(NODES, kinds=KINDS)
    answer = rejected(made, pod("p", affinity=affinity))
    assert {name for name, reasons in answer.items() if not reasons} == passing
    assert all(reasons in ([], [REASON]) for reasons in answer.values())


def test_match_fields_name_the_node() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["hdd"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
        }
    }
    assert rejected(engine(NODES, kinds=KINDS), pod("p", affinity=affinity)) == {
        "ssd": [REASON],
        "hdd": [],
        "none": [REASON],
    }


def test_the_selector_holds_beside_affinity() -> None:
    candidate = pod("p", nodeSelector={"disk": "ssd"}, affinity=required([expression("disk", "Exists")]))
    assert rejected(engine(NODES, kinds=KINDS), candidate) == {"ssd": [], "hdd": [REASON], "none": [REASON]}


def test_preferred_terms_add_up_and_scale_to_the_best() -> None:
    preferred = [
        {"weight": 10, "preference": {"matchExpressions": [expression("disk", "Exists")]}},
        {"weight": 30, "preference": {"matchExpressions": [expression("disk", "In", "ssd")]}},
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert totals(engine(NODES, kinds=KINDS), pod("p", affinity=affinity)) == {"ssd": 200, "hdd": 50, "none": 0}


def test_a_relabelled_node_is_judged_anew() -> None:
    made = engine(NODES, kinds=KINDS)
    candidate = pod("p", nodeSelector={"disk": "nvme"})
    assert rejected(made, candidate)["none"] == [REASON]
    made.snapshot.set_node(node("none", labels={"disk": "nvme"}))
    assert rejected(made, candidate)["none"] == []
