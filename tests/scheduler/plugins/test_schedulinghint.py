"""Hints restrict and prefer; a hint that cannot be read is a reason."""

import json
from typing import Any

import pytest

from scheduler.framework import Action
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.schedulinghint import SchedulingHint
from tests.schedobjects import drain, engine, node, pod, rejected

KINDS = {"schedulinghint": SchedulingHint, "noderesourcesfit": NodeResourcesFit}
KEY = "internal.scheduling.koordinator.sh/scheduling-hint"
OLD_KEY = "scheduling.koordinator.sh/scheduling-hint"
NO = ["node(s) not among those hinted at"]


def hinted(key: str = KEY, **hint: Any) -> Any:
    return pod("p", {"cpu": "3"}, annotations={key: json.dumps(hint)})


@pytest.mark.parametrize("key", [KEY, OLD_KEY])
def test_only_hinted_nodes(key: str) -> None:
    made = engine([node("a"), node("b")], kinds=KINDS)
    assert rejected(made, hinted(key, nodeNames=["b", "gone"])) == {"a": NO, "b": []}


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        pytest.param({"preferredNodeNames": ["c", "b"]}, "c", id="the first preferred"),
        pytest.param({"preferredNodeNames": ["full", "b"]}, "b", id="the first that fits"),
        pytest.param({"preferredNodeNames": ["c", "b"], "nodeNames": ["b", "a"]}, "b", id="within the hinted"),
        pytest.param({"preferredNodeNames": ["gone"], "nodeNames": ["a"]}, "a", id="none of them there"),
    ],
)
def test_preferred_nodes(hint: dict[str, Any], expected: str) -> None:
    made = engine(
        [node(name) for name in ("a", "b", "c", "full")], [pod("x", {"cpu": "4"}, nodeName="full")], kinds=KINDS
    )
    made.on_pod(Action.ADD, hinted(**hint), 0.0)
    assert drain(made) == {"p": expected}


def test_preferences_beyond_the_limit_are_passed_over() -> None:
    made = engine([node("a"), node("b")], kinds=KINDS, plugins={"schedulinghint": {"max_hint_nodes": 1}})
    info = made.classes.info(hinted(preferredNodeNames=["a", "b"]))
    hint = made.plugins["SchedulingHint"].prepare(info)
    assert hint is not None
    assert hint.preferred == ("a",)


def test_an_unreadable_hint_is_named() -> None:
    made = engine([node("a")], kinds=KINDS)
    made.on_pod(Action.ADD, pod("p", annotations={KEY: "[]"}), 0.0)
    made.schedule_one(0.0)
    assert f"annotation {KEY} cannot be read" in made.outcomes[-1].message
