"""Pods attract and repel pods, in both directions."""

from typing import Any

import msgspec
import pytest

from api.kube.objects import Namespace
from cluster.resources import NAMESPACES, Key
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.interpodaffinity import InterPodAffinity
from tests.schedobjects import engine, node, pod, rejected, totals

KINDS = {"interpodaffinity": InterPodAffinity}
ATTRACT = "node(s) didn't match pod affinity rules"
REPEL = "node(s) didn't match pod anti-affinity rules"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"
NODES = [
    node("a1", labels={"zone": "a"}),
    node("a2", labels={"zone": "a"}),
    node("b1", labels={"zone": "b"}),
    node("bare"),
]


def term(key: str = "zone", namespaces: Any = None, **labels: str) -> dict[str, Any]:
    made: dict[str, Any] = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return made | (namespaces or {})


def required(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def preferred(kind: str, weight: int, wanted: dict[str, Any]) -> dict[str, Any]:
    weighed = {"weight": weight, "podAffinityTerm": wanted}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [weighed]}}


DB = pod("db", labels={"app": "db"}, nodeName="a1")


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(
            required("podAffinity", term(app="db")),
            {"a1": [], "a2": [], "b1": [ATTRACT], "bare": [ATTRACT]},
            id="with",
        ),
        pytest.param(
            required("podAntiAffinity", term(app="db")),
            {"a1": [REPEL], "a2": [REPEL], "b1": [], "bare": []},
            id="without",
        ),
        pytest.param(
            required("podAntiAffinity", term("kubernetes.io/hostname", app="db")),
            {"a1": [REPEL], "a2": [], "b1": [], "bare": []},
            id="per-host",
        ),
        pytest.param(
            required("podAffinity", term(app="none")),
            {"a1": [ATTRACT], "a2": [ATTRACT], "b1": [ATTRACT], "bare": [ATTRACT]},
            id="no-pod-to-be-with",
        ),
    ],
)
def test_own_terms(affinity: dict[str, Any], expected: dict[str, list[str]]) -> None:
    assert rejected(engine(NODES, [DB], kinds=KINDS), pod("p", affinity=affinity)) == expected


def test_the_first_of_a_group_goes_anywhere_with_the_label() -> None:
    first = pod("p", labels={"app": "new"}, affinity=required("podAffinity", term(app="new")))
    answer = rejected(engine(NODES, [DB], kinds=KINDS), first)
    assert answer == {"a1": [], "a2": [], "b1": [], "bare": [ATTRACT]}


def test_all_terms_must_be_met_by_one_pod() -> None:
    other = pod("other", labels={"tier": "1"}, nodeName="a1")
    both = required("podAffinity", term(app="db"), term(tier="1"))
    assert rejected(engine(NODES, [DB, other], kinds=KINDS), pod("p", affinity=both))["a1"] == [ATTRACT]


def test_placed_pods_repel_newcomers() -> None:
    hermit = pod("hermit", nodeName="b1", affinity=required("podAntiAffinity", term(app="web")))
    made = engine(NODES, [hermit], kinds=KINDS)
    assert rejected(made, pod("p", labels={"app": "web"})) == {"a1": [], "a2": [], "b1": [REPELLED], "bare": []}
    assert rejected(made, pod("q", labels={"app": "db"}))["b1"] == []
    made.snapshot.remove_pod("uid-hermit")
    assert rejected(made, pod("p", labels={"app": "web"}))["b1"] == []


def test_terms_mean_the_own_namespace_unless_they_name_others() -> None:
    made = engine(NODES, [pod("db", labels={"app": "db"}, nodeName="a1", namespace="data")], kinds=KINDS)
    near = required("podAntiAffinity", term(app="db"))
    assert rejected(made, pod("p", affinity=near))["a1"] == []
    named = required("podAntiAffinity", term(app="db", namespaces={"namespaces": ["data"]}))
    assert rejected(made, pod("q", affinity=named))["a1"] == [REPEL]
    everywhere = required("podAntiAffinity", term(app="db", namespaces={"namespaceSelector": {}}))
    assert rejected(made, pod("r", affinity=everywhere))["a1"] == [REPEL]


def test_selected_namespaces_follow_their_labels() -> None:
    made = engine(NODES, [pod("db", labels={"app": "db"}, nodeName="a1", namespace="data")], kinds=KINDS)
    chosen = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
    candidate = pod("p", affinity=required("podAntiAffinity", term(app="db", namespaces=chosen)))
    assert rejected(made, candidate)["a1"] == []
    data = msgspec.convert({"metadata": {"name": "data", "labels": {"team": "x"}}}, Namespace)
    made.on_object(ObjectEvent(NAMESPACES, Action.ADD, Key("", "data"), None, data), 0.0)
    assert rejected(made, candidate)["a1"] == [REPEL]


def test_preferences_pull_and_push() -> None:
    made = engine(NODES, [DB], kinds=KINDS)
    toward = totals(made, pod("p", affinity=preferred("podAffinity", 50, term(app="db"))))
    assert toward == {"a1": 200, "a2": 200, "b1": 0, "bare": 0}
    away = totals(made, pod("q", affinity=preferred("podAntiAffinity", 50, term(app="db"))))
    assert away == {"a1": 0, "a2": 0, "b1": 200, "bare": 200}


def test_placed_pods_that_need_company_draw_it() -> None:
    friend = pod("friend", labels={"app": "x"}, nodeName="b1", affinity=required("podAffinity", term(app="web")))
    assert totals(engine(NODES, [friend], kinds=KINDS), pod("p", labels={"app": "web"})) == {
        "a1": 0,
        "a2": 0,
        "b1": 200,
        "bare": 0,
    }
