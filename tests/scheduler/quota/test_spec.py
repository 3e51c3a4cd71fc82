"""ElasticQuota objects as numbers."""

from typing import Any

import msgspec
import pytest

from api.crds import ElasticQuota
from scheduler.quota.spec import QUOTA, quota_spec
from scheduler.quota.tree import ROOT, QuotaSpec


def quota(labels: dict[str, str], annotations: dict[str, str]) -> Any:
    document = {
        "metadata": {
            "name": "team",
            "namespace": "ns",
            "labels": {QUOTA + key: value for key, value in labels.items()},
            "annotations": {QUOTA + key: value for key, value in annotations.items()},
        },
        "spec": {"min": {"cpu": "2", "memory": "1Gi"}, "max": {"cpu": "4", "memory": "2Gi"}},
    }
    return msgspec.convert(document, ElasticQuota)


MINIMUM = {"cpu": 2000, "memory": 1 << 30}
MAXIMUM = {"cpu": 4000, "memory": 2 << 30}


def expected(**changes: Any) -> QuotaSpec:
    return QuotaSpec(**{"name": "team", "minimum": MINIMUM, "maximum": MAXIMUM, "namespace": "ns", **changes})


@pytest.mark.parametrize(
    ("labels", "annotations", "spec"),
    [
        pytest.param({}, {}, expected(parent=ROOT, lends=True), id="defaults"),
        pytest.param({"parent": "org", "is-parent": "true"}, {}, expected(parent="org", is_parent=True), id="place"),
        pytest.param({"allow-lent-resource": "false"}, {}, expected(lends=False), id="keeps"),
        pytest.param({"allow-lent-resource": "no"}, {}, expected(lends=True), id="only false keeps"),
        pytest.param({}, {"shared-weight": '{"cpu":"1"}'}, expected(weight={"cpu": 1000}), id="weight"),
        pytest.param({}, {"shared-weight": '{"cpu":0}'}, expected(weight={}), id="zero weight is the maximum"),
        pytest.param({}, {"shared-weight": "heavy"}, expected(weight={}), id="unreadable weight"),
        pytest.param({}, {"namespaces": '["a","b"]'}, expected(namespaces=("a", "b")), id="namespaces"),
        pytest.param(
            {"is-root": "true", "tree-id": "t", "ignore-default-tree": "true"},
            {"total-resource": '{"cpu":"9"}'},
            expected(tree="t", total={"cpu": 9000}, apart=True),
            id="root of a tree",
        ),
        pytest.param({}, {"total-resource": '{"cpu":"9"}'}, expected(total=None), id="no root, no total"),
    ],
)
def test_quota_spec(labels: dict[str, str], annotations: dict[str, str], spec: QuotaSpec) -> None:
    assert quota_spec(quota(labels, annotations)) == spec
