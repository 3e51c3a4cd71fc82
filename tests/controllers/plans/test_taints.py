"""Taints that nodes ask for: set, owned, renewed, removed; those of others stay."""

import json
from typing import Any

import msgspec
import pytest

from api.kube.times import epoch_seconds, rfc3339
from cluster import NODES, Key
from cluster.twin import Twin
from controllers.kinds import NODE, NODE_METRIC, Node
from controllers.plans.taints import ANNOTATION_OWNED, Taints
from controllers.runtime.writes import Write, Writes
from tests.capacity import NOW, UPDATED, a_node, a_report, to_load
from tests.managed import built, running, view_of
from tests.waiting import wait_for

KEY = "node.koordinator.sh/eviction-cooldown"


def wish(until: float = NOW + 180, **changes: Any) -> dict[str, Any]:
    return {
        "key": KEY,
        "value": "evicted",
        "effect": "NoSchedule",
        "strategy": "eviction_cooldown",
        "reason": "pods were evicted",
        "until": rfc3339(until),
        **changes,
    }


def tainted(*taints: dict[str, Any], owned: dict[str, str] | None = None) -> Node:
    node = a_node(annotations={ANNOTATION_OWNED: json.dumps(owned)} if owned is not None else {})
    document = {**msgspec.to_builtins(node), "spec": {"taints": taints}}
    return msgspec.convert(document, Node)


def plan(
    node: Node, *wishes: dict[str, Any], now: float = NOW, heard: float = float("-inf"), **settings: Any
) -> Writes:
    controller = built(Taints, **settings)
    report = a_report(extensions={"wantedTaints": list(wishes)} if wishes else None)
    view = view_of(controller, {NODE: [node], NODE_METRIC: [report]}, heard_since_seconds=heard)
    return controller.plan(view, now)


def single(writes: Writes) -> Write:
    (write,) = writes.writes
    return write


OURS = {"key": KEY, "value": "evicted", "effect": "NoSchedule"}
OWNED = {f"{KEY}:NoSchedule": "eviction_cooldown"}
THEIRS = {"key": "example.com/maintenance", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def test_a_wish_is_set_beside_the_taints_of_others_with_owner_and_event() -> None:
    write = single(plan(tainted(THEIRS), wish()))
    assert write.body["spec"]["taints"] == [THEIRS, OURS]
    assert json.loads(write.body["metadata"]["annotations"][ANNOTATION_OWNED]) == OWNED
    assert write.version == "1"
    assert write.event is not None
    assert (write.event.reason, "pods were evicted" in write.event.note) == ("Tainted", True)


def test_what_stands_is_left_alone() -> None:
    assert not plan(tainted(THEIRS, OURS, owned=OWNED), wish()).writes


@pytest.mark.parametrize(
    "wishes", [[], [wish(until=NOW)], [wish(until=NOW, strategy="x")]], ids=["unsaid", "over", "x"]
)
def test_a_taint_goes_with_its_wish(wishes: list[dict[str, Any]]) -> None:
    write = single(plan(tainted(THEIRS, OURS, owned=OWNED), *wishes))
    assert write.body["spec"]["taints"] == [THEIRS]
    assert write.body["metadata"]["annotations"] == {ANNOTATION_OWNED: None}
    assert write.event is not None
    assert write.event.reason == "Untainted"


def test_a_taint_of_that_name_that_somebody_else_set_stays_theirs() -> None:
    assert not plan(tainted(OURS), wish()).writes
    assert not plan(tainted(OURS)).writes


def test_one_that_was_removed_by_hand_is_set_again_while_it_is_asked_for() -> None:
    assert single(plan(tainted(owned=OWNED), wish())).body == {"spec": {"taints": [OURS]}}


def test_a_wish_that_could_not_be_renewed_in_an_outage_holds_a_little_longer() -> None:
    node = tainted(OURS, owned=OWNED)
    assert not plan(node, wish(until=NOW - 600), heard=NOW - 60).writes
    assert plan(node, wish(until=NOW - 600), heard=NOW - 181).writes


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(wish(key="node.kubernetes.io/unreachable"), id="foreign-key"),
        pytest.param(wish(key="node.koordinator.sh/"), id="no-name"),
        pytest.param(wish(key="node.koordinator.sh/a/b"), id="slash"),
        pytest.param(wish(effect="NoExecute"), id="evicting"),
        pytest.param(wish(value="a b"), id="value"),
        pytest.param({"value": 1}, id="malformed"),
    ],
)
def test_what_a_node_may_not_ask_for_is_refused_and_said(asked: dict[str, Any]) -> None:
    writes = plan(tainted(), asked)
    assert not writes.writes
    assert writes.warnings[0].reason == "TaintRefused"


def test_evicting_taints_carry_their_time_where_they_are_allowed() -> None:
    write = single(plan(tainted(), wish(effect="NoExecute"), effects=("NoExecute",)))
    assert write.body["spec"]["taints"][0]["timeAdded"] == rfc3339(NOW)


def test_a_wish_without_an_end_is_none() -> None:
    assert not plan(tainted(), wish(until=NOW) | {"until": None}).writes


def test_a_wish_holds_no_longer_than_an_hour_after_its_report() -> None:
    node, endless = tainted(OURS, owned=OWNED), wish(until=NOW + 10**9)
    reported = epoch_seconds(UPDATED)
    assert reported is not None
    assert not plan(node, endless, now=reported + 3599).writes
    assert plan(node, endless, now=reported + 3601).writes
    assert plan(node, endless, now=reported - 301).writes, "a report from the future is none"
    assert not plan(tainted(), endless, now=reported + 3601, heard=reported + 3600).writes, "nothing old is set anew"


def test_against_a_server_a_taint_comes_and_goes_with_the_report() -> None:
    with Twin() as twin, twin.client() as client:
        twin.serve(NODE_METRIC)
        twin.load(NODES, [to_load(a_node())])
        twin.load(NODE_METRIC, [to_load(a_report(extensions={"wantedTaints": [wish()]}))])

        def taints() -> list[str]:
            return [each["key"] for each in twin.objects(NODES)[Key("", "n1")].get("spec", {}).get("taints") or []]

        with running(twin, {"taints": built(Taints)}, clock=lambda: NOW):
            wait_for(lambda: taints() == [KEY])
            client.modify(
                NODE_METRIC,
                Key("", "n1"),
                lambda metric: {**metric, "status": {**metric["status"], "extensions": {}}},
                subresource="status",
            )
            wait_for(lambda: not taints())
