"""Hard taints repel, soft taints cost score."""

from typing import Any

import pytest

from scheduler.plugins.tainttoleration import TaintToleration
from tests.schedobjects import engine, node, pod, rejected, totals

KINDS = {"tainttoleration": TaintToleration}
HARD = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
SOFT = {"key": "old", "value": "1", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True, id="equal"),
        pytest.param({"key": "gpu", "value": "no", "effect": "NoSchedule"}, False, id="other-value"),
        pytest.param({"key": "gpu", "operator": "Exists"}, True, id="exists-any-effect"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False, id="other-effect"),
        pytest.param({"value": "yes"}, False, id="no-key-needs-exists"),
    ],
)
def test_hard_taints(toleration: dict[str, Any] | None, passes: bool) -> None:
    made = engine([node("a", taints=[HARD])], kinds=KINDS)
    candidate = pod("p", tolerations=[toleration] if toleration else [])
    assert rejected(made, candidate) == {"a": [] if passes else ["node(s) had untolerated taint(s)"]}


def test_no_execute_repels_and_soft_does_not() -> None:
    made = engine([node("a", taints=[HARD | {"effect": "NoExecute"}]), node("b", taints=[SOFT])], kinds=KINDS)
    assert rejected(made, pod("p")) == {"a": ["node(s) had untolerated taint(s)"], "b": []}


def test_fewer_soft_taints_are_better() -> None:
    nodes = [node("none"), node("one", taints=[SOFT]), node("two", taints=[SOFT, SOFT | {"key": "odd"}])]
    made = engine(nodes, kinds=KINDS)
    assert totals(made, pod("p")) == {"none": 300, "one": 150, "two": 0}
    assert totals(made, pod("q", tolerations=[{"key": "old", "operator": "Exists"}])) == {
        "none": 300,
        "one": 300,
        "two": 0,
    }


def test_a_new_taint_is_noticed() -> None:
    made = engine([node("a")], kinds=KINDS)
    assert rejected(made, pod("p")) == {"a": []}
    made.snapshot.set_node(node("a", taints=[HARD]))
    assert rejected(made, pod("p")) == {"a": ["node(s) had untolerated taint(s)"]}
