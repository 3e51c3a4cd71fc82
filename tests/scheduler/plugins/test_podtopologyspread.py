"""Skew over domains: rejected and preferred nodes."""

from typing import Any

from scheduler.plugins.podtopologyspread import PodTopologySpread
from tests.schedobjects import engine, node, pod, rejected, totals

KINDS = {"podtopologyspread": PodTopologySpread}
SKEW = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
WEB = {"app": "web"}


def spread(key: str = "zone", skew: int = 1, when: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": WEB},
        **more,
    }


def web(name: str, where: str = "", **fields: Any) -> Any:
    return pod(name, labels=WEB, nodeName=where, **fields)


NODES = [
    node("a1", labels={"zone": "a"}),
    node("a2", labels={"zone": "a"}),
    node("b1", labels={"zone": "b"}),
    node("bare"),
]


def test_the_fuller_domain_is_rejected() -> None:
    made = engine(NODES, [web("x", "a1")], kinds=KINDS)
    answer = rejected(made, web("p", topologySpreadConstraints=[spread()]))
    assert answer == {"a1": [SKEW], "a2": [SKEW], "b1": [], "bare": [MISSING]}


def test_skew_two_allows_one_more() -> None:
    made = engine(NODES, [web("x", "a1")], kinds=KINDS)
    assert rejected(made, web("p", topologySpreadConstraints=[spread(skew=2)]))["a1"] == []
    made.snapshot.add_pod(made.classes.info(web("y", "a2")), 1)
    assert rejected(made, web("p", topologySpreadConstraints=[spread(skew=2)]))["a1"] == [SKEW]


def test_a_pod_that_does_not_match_itself_adds_nothing() -> None:
    made = engine(NODES, [web("x", "a1")], kinds=KINDS)
    other = pod("p", topologySpreadConstraints=[spread()])
    assert rejected(made, other)["a1"] == []


def test_pods_on_their_way_out_and_other_namespaces_do_not_count() -> None:
    leaving = web("x", "a1", deletion_timestamp="2026-01-01T00:00:00Z")
    made = engine(NODES, [leaving, web("y", "a1", namespace="other")], kinds=KINDS)
    assert rejected(made, web("p", topologySpreadConstraints=[spread()]))["a1"] == []


def test_too_few_domains_count_as_an_empty_one() -> None:
    made = engine(NODES, [web("x", "a1"), web("y", "b1")], kinds=KINDS)
    assert rejected(made, web("p", topologySpreadConstraints=[spread()]))["a1"] == []
    strict = web("p", topologySpreadConstraints=[spread(minDomains=3)])
    assert rejected(made, strict)["a1"] == [SKEW]


def test_domains_that_the_pod_cannot_use_do_not_hold_it_back() -> None:
    made = engine(NODES, [web("x", "a1")], kinds=KINDS)
    only_a = {"nodeSelector": {"zone": "a"}}
    assert rejected(made, web("p", topologySpreadConstraints=[spread()], **only_a))["a1"] == []
    ignoring = spread(nodeAffinityPolicy="Ignore")
    assert rejected(made, web("p", topologySpreadConstraints=[ignoring], **only_a))["a1"] == [SKEW]


def test_tainted_domains_count_unless_taints_are_honoured() -> None:
    taint = {"key": "x", "effect": "NoSchedule"}
    nodes = [node("a1", labels={"zone": "a"}), node("b1", labels={"zone": "b"}, taints=[taint])]
    made = engine(nodes, [web("x", "a1")], kinds=KINDS)
    assert rejected(made, web("p", topologySpreadConstraints=[spread()]))["a1"] == [SKEW]
    honoured = spread(nodeTaintsPolicy="Honor")
    assert rejected(made, web("p", topologySpreadConstraints=[honoured]))["a1"] == []


def test_match_label_keys_narrow_the_selector_to_the_revision() -> None:
    old = pod("x", labels={**WEB, "rev": "1"}, nodeName="a1")
    made = engine(NODES, [old], kinds=KINDS)
    new = pod("p", labels={**WEB, "rev": "2"}, topologySpreadConstraints=[spread(matchLabelKeys=["rev"])])
    assert rejected(made, new)["a1"] == []


def test_softly_the_emptier_domain_is_better() -> None:
    made = engine(NODES, [web("x", "a1"), web("y", "a2")], kinds=KINDS)
    scores = totals(made, web("p", topologySpreadConstraints=[spread(when="ScheduleAnyway")]))
    assert scores["b1"] == 200
    assert scores["a1"] == scores["a2"] == 0
    assert scores["bare"] == 0


def test_counts_follow_pods() -> None:
    made = engine(NODES, [web("x", "a1")], kinds=KINDS)
    candidate = web("p", topologySpreadConstraints=[spread()])
    assert rejected(made, candidate)["a1"] == [SKEW]
    made.snapshot.remove_pod("uid-x")
    assert rejected(made, candidate)["a1"] == []


def test_replicas_spread_by_default_over_hosts_and_zones() -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "rs"}
    placed = [web("x", "a1", owner=owner), web("y", "a1", owner=owner)]
    made = engine(NODES, placed, kinds=KINDS)
    scores = totals(made, web("p", owner=owner))
    assert scores["a1"] < scores["a2"]
    assert scores["b1"] == 200
    assert totals(made, web("q")) == dict.fromkeys(scores, 0)
    off = engine(NODES, placed, kinds=KINDS, plugins={"podtopologyspread": {"default_max_skew": {}}})
    assert totals(off, web("p", owner=owner)) == dict.fromkeys(scores, 0)
