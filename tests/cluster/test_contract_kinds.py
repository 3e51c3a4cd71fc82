"""Custom kinds from their manifests, the same against every server."""

from pathlib import Path

import msgspec
import pytest
import yaml

from api.crds import NODE_METRIC, POD_GROUP, WORKLOAD_PROFILE, WorkloadProfile, WorkloadProfileSpec, WorkloadReference
from api.crds import WorkloadProfileStatus as ProfileStatus
from api.kube.meta import ObjectMeta
from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    Invalid,
    Key,
    Query,
    custom,
    merge_patch,
    strategic_patch,
)
from tests.cluster.conftest import Site
from tests.waiting import wait_for

MANIFESTS = Path(__file__).parents[2] / "deploy" / "crds"


@pytest.fixture
def kinds(site: Site) -> Site:
    for definition in (WORKLOAD_PROFILE, NODE_METRIC):
        manifest = yaml.safe_load((MANIFESTS / f"{definition.name}.yaml").read_text())
        if site.client.find(CUSTOM_RESOURCE_DEFINITIONS, Key("", definition.name)) is None:
            created = site.client.create(CUSTOM_RESOURCE_DEFINITIONS, manifest)
            # Not an empty list: the conditions come with a later write of a controller.
            assert created["status"]["conditions"] is None

        def established(name: str = definition.name) -> bool:
            stored = site.client.get(CUSTOM_RESOURCE_DEFINITIONS, Key("", name))
            conditions = stored.get("status", {}).get("conditions") or ()
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        wait_for(established)
    return site


def test_custom_kinds_are_served_from_their_manifests(kinds: Site) -> None:
    client, profiles = kinds.client, custom(WORKLOAD_PROFILE)
    spec = WorkloadProfileSpec(workload=WorkloadReference(kind="Deployment", name="web"), container="c")
    wanted = WorkloadProfile(metadata=ObjectMeta(name="web-c", namespace=kinds.namespace), spec=spec)
    created = client.create(profiles, wanted)
    assert (created.spec, created.status) == (spec, ProfileStatus())
    learned = msgspec.structs.replace(created, status=ProfileStatus(samples=3, replicas=1))
    client.update(profiles, learned, subresource="status")
    assert client.get(profiles, kinds.key("web-c")).status.samples == 3
    patch = merge_patch({"spec": {"nodeType": "large", "unknown": 1}, "status": {"samples": 9}})
    document = client.patch(profiles.of(dict), kinds.key("web-c"), patch)
    assert document["spec"]["nodeType"] == "large"
    # The schema prunes what it does not know, and the main resource does not write status.
    assert "unknown" not in document["spec"]
    assert document["status"]["samples"] == 3
    assert document["metadata"]["generation"] == 2


def test_custom_kinds_take_no_strategic_patch_and_select_by_name_only(kinds: Site) -> None:
    metrics, name = custom(NODE_METRIC), f"{kinds.namespace}-node"
    kinds.client.create(metrics, {"metadata": {"name": name}, "spec": {}})
    try:
        with pytest.raises(Invalid):
            kinds.client.patch(metrics, Key("", name), strategic_patch({"spec": {}}))
        listing = kinds.client.list(metrics, Query(fields=f"metadata.name={name}"))
        assert [item.identity.name for item in listing.items] == [name]
        with pytest.raises(Invalid):
            kinds.client.list(metrics, Query(fields="spec.x=1"))
    finally:
        kinds.client.delete(metrics, Key("", name))


def test_a_kind_of_a_protected_group_needs_its_approval(site: Site) -> None:
    manifest = yaml.safe_load((MANIFESTS / f"{POD_GROUP.name}.yaml").read_text())
    del manifest["metadata"]["annotations"]
    with pytest.raises(Invalid):
        site.client.create(CUSTOM_RESOURCE_DEFINITIONS, manifest)
