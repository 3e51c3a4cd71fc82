"""ElasticQuotas: defaults, amounts, and the constraints of their tree."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from api.crds import ElasticQuota
from controllers.webhooks.rules.quota_object import Quota, parsed
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import Document, Outcome, review

PREFIX = "quota.scheduling.koordinator.sh/"
RESOURCE = ("scheduling.sigs.k8s.io", "elasticquotas")
MUTATE = "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
VALIDATE = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"


def quota(
    name: str,
    parent: str = "",
    *,
    least: Mapping[str, str | int] | None = None,
    most: Mapping[str, str | int] | None = None,
    used: Mapping[str, str | int] | None = None,
    annotations: Mapping[str, str] | None = None,
    **labels: str,
) -> Document:
    """Return a quota; `labels` are named without their prefix, with underscores."""
    marks = {PREFIX + label.replace("_", "-"): value for label, value in labels.items()}
    if parent:
        marks[PREFIX + "parent"] = parent
    stated = {PREFIX + key: value for key, value in (annotations or {}).items()}
    return {
        "metadata": {"name": name, "namespace": "quotas", "labels": marks, "annotations": stated},
        "spec": {"min": dict(least or {"cpu": 10}), "max": dict(most or {"cpu": 100})},
        "status": {"used": dict(used or {})},
    }


def view_of(*quotas: Document, **known: Any) -> ClusterView:
    found = [parsed(msgspec.convert(item, ElasticQuota)) for item in quotas]
    return ClusterView(quotas={item.name: item for item in found}, **known)


def validated(view: ClusterView, new: Document | None, old: Document | None = None, **given: Any) -> Outcome:
    return review(VALIDATE, view, obj=new, old=old, resource=RESOURCE, **{"namespace": "quotas", **given})


ROOT = quota("team", least={"cpu": 40}, most={"cpu": 40}, is_parent="true")
TEN, TWENTY = quota("ten", "team", most={"cpu": 40}), quota("twenty", "team", least={"cpu": 20}, most={"cpu": 40})
TREE = view_of(ROOT, TEN, TWENTY)


def test_the_published_tree_is_admitted() -> None:
    parent = quota(
        "parentA",
        least={"cpu": 100, "memory": "200Gi"},
        most={"cpu": 100, "memory": "200Gi"},
        is_parent="true",
        allow_lent_resource="true",
    )
    child = quota(
        "childA1",
        "parentA",
        least={"cpu": 20, "memory": "40Gi"},
        most={"cpu": 40, "memory": "100Gi"},
        is_parent="false",
        allow_lent_resource="true",
    )
    assert validated(view_of(), parent).allowed
    assert validated(view_of(parent), child).allowed


@pytest.mark.parametrize(
    ("amount", "allowed"), [pytest.param(10, True, id="fits"), pytest.param(11, False, id="above")]
)
def test_minima_of_children_stay_within_their_parents(amount: int, allowed: bool) -> None:
    done = validated(TREE, quota("third", "team", least={"cpu": amount}, most={"cpu": 40}))
    assert done.allowed == allowed
    assert allowed or "sums to 41000 cpu, above its own 40000" in done.message


def test_a_parent_does_not_fall_below_its_children() -> None:
    shrunk = quota("team", least={"cpu": 29}, most={"cpu": 40}, is_parent="true")
    assert "sums to 30000" in validated(TREE, shrunk, ROOT).message
    forced = quota("team", least={"cpu": 29}, most={"cpu": 40}, is_parent="true", allow_force_update="true")
    assert validated(TREE, forced, ROOT).allowed


def test_a_childs_maximum_may_exceed_its_parents() -> None:
    assert validated(TREE, quota("third", "team", least={"cpu": 1}, most={"cpu": 4000})).allowed


@pytest.mark.parametrize("parent", ["ten", "nobody"])
def test_only_parents_have_children(parent: str) -> None:
    done = validated(TREE, quota("third", parent, least={"cpu": 1}, most={"cpu": 40}))
    assert ("only parents have children" if parent == "ten" else "does not exist") in done.message


def test_a_quota_never_turns_into_a_parent_or_out_of_one() -> None:
    for old, new in (
        (TEN, quota("ten", "team", most={"cpu": 40}, is_parent="true")),
        (ROOT, quota("team", least={"cpu": 40})),
    ):
        assert "is-parent cannot be changed" in validated(TREE, new, old).message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(quota("q", least={"cpu": 11}, most={"cpu": 10}), "above its max", id="min-above-max"),
        pytest.param(quota("q", least={"gpu": 1}), "which max lacks", id="min-without-max"),
        pytest.param(quota("q", least={"cpu": -1}), "below 0", id="negative"),
        pytest.param(quota("q", annotations={"shared-weight": '{"cpu":-1}'}), "shared weight of cpu", id="weight"),
        pytest.param(quota("q", annotations={"shared-weight": "["}), "no JSON map", id="weight-no-json"),
        pytest.param(quota("q", annotations={"namespaces": "a,b"}), "no JSON list", id="namespaces-no-json"),
        pytest.param(quota("q", most={"cpu": "many"}), "not a quantity", id="no-quantity"),
        pytest.param(
            quota("q", "team", least={"cpu": 1}, most={"cpu": 1, "memory": 1}), "different resources", id="keys"
        ),
        pytest.param(
            quota("q", most={"cpu": 10}, used={"cpu": 11}, annotations={"max-strict-check-resource-keys": '["cpu"]'}),
            "below what is used",
            id="strict",
        ),
        pytest.param(quota("q", "team", most={"cpu": 40}, tree_id="t"), "is of tree ''", id="tree-of-parent"),
        pytest.param(quota("koordinator-root-quota"), "reserved", id="root"),
        pytest.param(quota("q", "q", is_parent="true"), "does not exist", id="own-parent"),
    ],
)
def test_what_no_quota_may_be(wrong: Document, message: str) -> None:
    done = validated(TREE, wrong)
    assert not done.allowed
    assert message in done.message


def test_a_tree_has_no_loops_and_keeps_its_id() -> None:
    upper = quota("upper", least={"cpu": 10}, is_parent="true")
    lower = quota("lower", "upper", least={"cpu": 5}, is_parent="true")
    looped = quota("upper", "lower", least={"cpu": 5}, is_parent="true")
    assert "is below it" in validated(view_of(upper, lower), looped, upper).message
    moved = quota("ten", "team", most={"cpu": 40}, tree_id="other")
    assert "tree-id cannot be changed" in validated(TREE, moved, TEN).message


def test_a_namespace_belongs_to_one_quota_and_a_name_to_one_namespace() -> None:
    first = quota("first", annotations={"namespaces": '["shop"]'})
    assert (
        "belongs to quota first"
        in validated(view_of(first), quota("second", annotations={"namespaces": '["shop"]'})).message
    )
    assert "unique in the cluster" in validated(view_of(first), quota("first"), namespace="elsewhere").message


def test_usage_is_written_whatever_the_tree_looks_like() -> None:
    broken = view_of(quota("orphan", "gone"))
    old, new = quota("orphan", "gone"), quota("orphan", "gone", used={"cpu": 3}, annotations={"runtime": "{}"})
    assert validated(broken, new, old).allowed
    assert not validated(broken, quota("orphan", "gone", least={"cpu": 3}), old).allowed
    leaving = quota("orphan", "gone", least={"cpu": 3})
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert validated(broken, leaving, old).allowed


@pytest.mark.parametrize(
    ("deleted", "has_pods", "message"),
    [
        pytest.param(ROOT, False, "has children: ten, twenty", id="children"),
        pytest.param(TEN, True, "has pods", id="pods"),
        pytest.param(quota("koordinator-default-quota"), False, "is reserved", id="reserved"),
        pytest.param(TEN, False, "", id="leaf"),
    ],
)
def test_deletion(deleted: Document, has_pods: bool, message: str) -> None:
    done = validated(view_of(ROOT, TEN, TWENTY, quota_has_pods=lambda *_: has_pods), None, deleted)
    assert done.allowed == (not message)
    assert message in done.message


def test_schedulers_create_and_change_the_reserved_quotas() -> None:
    view = ClusterView(may_bind=lambda *_: True)
    assert validated(view, quota("koordinator-root-quota", is_parent="true")).allowed
    known = ClusterView(
        quotas={"koordinator-root-quota": Quota("koordinator-root-quota", "quotas")}, may_bind=view.may_bind
    )
    old, new = quota("koordinator-root-quota"), quota("koordinator-root-quota", most={"cpu": 70})
    assert validated(known, new, old).allowed
    assert "is reserved" in validated(view_of(old), new, old).message


def test_defaults_of_a_created_quota() -> None:
    view = view_of(quota("team", most={"cpu": 1}, is_parent="true", tree_id="t"))
    given = quota("q", "team", most={"cpu": 40, "memory": "1Gi"}, annotations={"shared-weight": '{"cpu":7,"gpu":1}'})
    done = review(MUTATE, view, obj=given, resource=RESOURCE)
    assert done.object is not None
    metadata = done.object["metadata"]
    assert metadata["labels"][PREFIX + "tree-id"] == "t"
    assert msgspec.json.decode(metadata["annotations"][PREFIX + "shared-weight"]) == {"cpu": 7, "memory": "1Gi"}
    assert review(MUTATE, view, obj=done.object, resource=RESOURCE).patch == []
    alone = review(MUTATE, view, obj=quota("alone"), resource=RESOURCE).object
    assert alone is not None
    assert alone["metadata"]["labels"][PREFIX + "parent"] == "koordinator-root-quota"
    assert msgspec.json.decode(alone["metadata"]["annotations"][PREFIX + "shared-weight"]) == {"cpu": 100}
