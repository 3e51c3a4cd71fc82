"""Paths, queries and patches."""

import pytest

from api.crds import NODE_METRIC
from cluster import LEASES, NODES, PODS, Key, Patch, PatchType, Query, Resource, custom, merge_patch


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        pytest.param(PODS, ("", "", ""), "/api/v1/pods", id="every-namespace"),
        pytest.param(PODS, ("ns", "", ""), "/api/v1/namespaces/ns/pods", id="one-namespace"),
        pytest.param(PODS, ("ns", "a", "binding"), "/api/v1/namespaces/ns/pods/a/binding", id="subresource"),
        pytest.param(NODES, ("", "n", "status"), "/api/v1/nodes/n/status", id="subresource-of-a-node"),
        pytest.param(NODES, ("ignored", "n", ""), "/api/v1/nodes/n", id="node-has-no-namespace"),
        pytest.param(LEASES, ("a", "b", ""), "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", id="named-group"),
        pytest.param(
            custom(NODE_METRIC), ("", "n", ""), "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n", id="custom-resource"
        ),
        pytest.param(PODS, ("a/b", "c?d", ""), "/api/v1/namespaces/a%2Fb/pods/c%3Fd", id="escaped"),
    ],
)
def test_paths(resource: Resource[object], arguments: tuple[str, str, str], path: str) -> None:
    assert resource.path(*arguments) == path


@pytest.mark.parametrize(
    ("resource", "key"),
    [
        pytest.param(PODS, Key("", "a"), id="pod-without-namespace"),
        pytest.param(PODS, Key("a", ""), id="pod-without-name"),
        pytest.param(NODES, Key("a", "n"), id="node-in-a-namespace"),
        pytest.param(NODES, Key("", ""), id="node-without-name"),
    ],
)
def test_a_key_of_the_wrong_scope_names_nothing(resource: Resource[object], key: Key) -> None:
    with pytest.raises(ValueError, match=resource.kind):
        resource.object_path(key)


def test_queries_name_only_what_they_select() -> None:
    assert Query("ns").parameters() == {}
    assert Query(labels="a=b", fields="c=d").parameters() == {"labelSelector": "a=b", "fieldSelector": "c=d"}


def test_only_json_patches_may_not_be_repeated() -> None:
    assert merge_patch({}).repeatable
    assert not Patch(PatchType.JSON, []).repeatable


def test_keys_read_like_kubectl() -> None:
    assert (str(Key("a", "b")), str(Key("", "n"))) == ("a/b", "n")
