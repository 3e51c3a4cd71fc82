"""One patch for all that was decided."""

from typing import Any

from scheduler.cluster_state.columns import Row
from scheduler.framework import Action, Attempt, Plugin, Verb
from scheduler.plugins.defaultprebind import DefaultPreBind
from tests.schedobjects import engine, node, pod


class First(Plugin[tuple[()]]):
    """Decides one annotation."""

    name = "First"

    def reserve(self, attempt: Attempt, spec: tuple[()], row: Row) -> None:
        attempt.pod.patch["first"] = "1"


class Second(Plugin[tuple[()]]):
    """Decides another."""

    name = "Second"

    def reserve(self, attempt: Attempt, spec: tuple[()], row: Row) -> None:
        attempt.pod.patch["second"] = "2"


def writes(kinds: dict[str, Any]) -> list[Any]:
    made = engine(
        [node("a")], kinds=kinds | {"defaultprebind": DefaultPreBind}, plugins={"defaultprebind": {"enabled": True}}
    )
    made.on_pod(Action.ADD, pod("p"), 0.0)
    made.schedule_one(0.0)
    return list(made.bindings.popleft().writes)


def test_decisions_are_merged_into_one_patch_before_the_binding() -> None:
    patch, bind = writes({"first": First, "second": Second})
    assert (patch.verb, bind.verb) == (Verb.PATCH, Verb.BIND)
    assert patch.body.body == {"metadata": {"uid": "uid-p", "annotations": {"first": "1", "second": "2"}}}


def test_without_decisions_nothing_is_written() -> None:
    [bind] = writes({})
    assert bind.verb is Verb.BIND
