"""Root quotas of profiles: totals of the selected nodes, labels, tree ids."""

import json
from typing import Any

import msgspec
import pytest

from api.crds import ElasticQuota, ElasticQuotaProfile
from cluster import Key
from controllers.kinds import ELASTIC_QUOTA, ELASTIC_QUOTA_PROFILE, NODE, Node
from controllers.plans.quota_profiles import ANNOTATION_TOTAL, ANNOTATION_UNSCHEDULABLE, QuotaProfiles, fnv1a, tree_id
from controllers.runtime.writes import Verb, Write, Writes
from tests.managed import built, view_of

PREFIX = "quota.scheduling.koordinator.sh/"


def a_node(name: str, cpu: str = "10", *, ready: bool = True, pool: str = "a", **published: str) -> Node:
    document = {
        "metadata": {"name": name, "labels": {"pool": pool}},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "20Gi", **published},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return msgspec.convert(document, Node)


def a_profile(ratio: str | None = None, *, tree: str = "t1") -> ElasticQuotaProfile:
    labels = {f"{PREFIX}tree-id": tree} if tree else {}
    spec: dict[str, Any] = {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}}
    spec |= {"quotaLabels": {"team": "x"}, "resourceRatio": ratio}
    meta = {"name": "p", "namespace": "kube-system", "labels": labels, "resourceVersion": "2"}
    return msgspec.convert({"metadata": meta, "spec": spec}, ElasticQuotaProfile)


def plan(profile: ElasticQuotaProfile, *nodes: Node, quota: Any = None) -> Writes:
    controller = built(QuotaProfiles)
    quotas = [msgspec.convert(quota, ElasticQuota)] if quota else []
    return controller.plan(
        view_of(controller, {ELASTIC_QUOTA_PROFILE: [profile], NODE: nodes, ELASTIC_QUOTA: quotas}), 0.0
    )


def only(writes: Writes) -> Write:
    (write,) = writes.writes
    return write


NODES = (a_node("n1"), a_node("n2", ready=False), a_node("n3", pool="b"))


def test_the_root_quota_has_the_total_of_the_selected_nodes() -> None:
    write = only(plan(a_profile(), *NODES))
    assert (write.verb, write.key) == (Verb.CREATE, Key("kube-system", "root"))
    assert write.body["spec"]["min"] == {"cpu": "20", "memory": str(40 << 30)}
    assert write.body["spec"]["max"] == {"cpu": "4611686018427387", "memory": "4611686018427387"}
    labels = write.body["metadata"]["labels"]
    assert labels == {"team": "x", f"{PREFIX}profile": "p", f"{PREFIX}tree-id": "t1", f"{PREFIX}is-root": "true"}
    annotations = write.body["metadata"]["annotations"]
    assert json.loads(annotations[ANNOTATION_TOTAL]) == {"cpu": "20", "memory": str(40 << 30)}
    assert json.loads(annotations[ANNOTATION_UNSCHEDULABLE])["cpu"] == "10"


def test_a_ratio_scales_and_nonsense_counts_as_1() -> None:
    assert only(plan(a_profile("0.3333"), *NODES)).body["spec"]["min"]["cpu"] == "6666m"
    for text in ("0", "1.5", "-1", "x", "nan"):
        assert only(plan(a_profile(text), *NODES)).body["spec"]["min"]["cpu"] == "20"


def test_a_profile_without_tree_id_gets_the_hash_of_its_name() -> None:
    first, second = plan(a_profile(tree=""), *NODES).writes
    tree = tree_id(Key("kube-system", "p"))
    assert first.body == {"metadata": {"labels": {f"{PREFIX}tree-id": tree}}}
    assert second.body["metadata"]["labels"][f"{PREFIX}tree-id"] == tree


@pytest.mark.parametrize(
    ("text", "value"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)]
)
def test_the_hash_is_fnv_1a(text: str, value: int) -> None:
    assert fnv1a(text.encode()) == value


def test_what_is_as_wanted_gives_no_write_and_what_differs_only_that() -> None:
    quota = only(plan(a_profile(), *NODES)).body
    quota["metadata"]["resourceVersion"] = "9"
    assert not plan(a_profile(), *NODES, quota=quota).writes
    quota["spec"]["min"]["cpu"] = "19"
    write = only(plan(a_profile(), *NODES, quota=quota))
    assert write.body == {"spec": {"min": {"cpu": "20"}}}
    assert write.version == "9"


def test_batch_resources_are_stated_only_where_the_quota_counts_them() -> None:
    batch = {"kubernetes.io/batch-cpu": "5000"}
    quota = only(plan(a_profile(), a_node("n1", **batch))).body
    assert "batch" not in quota["metadata"]["annotations"][ANNOTATION_TOTAL]
    quota["metadata"]["annotations"][f"{PREFIX}resource-keys"] = '["cpu","kubernetes.io/batch-cpu"]'
    body = only(plan(a_profile(), a_node("n1", **batch), quota=quota)).body
    assert body["spec"]["min"] == {"kubernetes.io/batch-cpu": "5000", "memory": None}


def test_a_quota_of_another_profile_is_left_alone() -> None:
    quota = only(plan(a_profile(), *NODES)).body
    quota["metadata"]["labels"][f"{PREFIX}profile"] = "other"
    writes = plan(a_profile(), *NODES, quota=quota)
    assert not writes.writes
    assert writes.warnings[0].reason == "QuotaTaken"
