"""Reading and writing objects, the same against every server: the twin and, where given, a real one."""

import os
import threading
from typing import Any

import pytest

from cluster import (
    CONFIG_MAPS,
    LEASES,
    AlreadyExists,
    Conflict,
    Document,
    Invalid,
    NotFound,
    Patch,
    PatchType,
    apply_patch,
    merge_patch,
)
from tests.cluster.conftest import REAL, Site, config_map, version


@pytest.mark.parametrize("variable", REAL)
def test_a_real_server_is_tested_too(variable: str) -> None:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: this contract is shown for the twin only")


def test_created_objects_are_read_back_with_an_identity(site: Site) -> None:
    created = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    assert site.client.get(CONFIG_MAPS, site.key("a")) == created
    assert created["metadata"]["uid"]
    assert created["metadata"]["creationTimestamp"]
    assert created["data"] == {"key": "1"}


def test_a_taken_name_and_a_missing_object_are_told_apart(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a"))
    with pytest.raises(AlreadyExists):
        site.client.create(CONFIG_MAPS, config_map(site, "a"))
    with pytest.raises(NotFound):
        site.client.get(CONFIG_MAPS, site.key("b"))
    assert site.client.find(CONFIG_MAPS, site.key("b")) is None
    assert not site.client.delete(CONFIG_MAPS, site.key("b"))


def test_generated_names_differ(site: Site) -> None:
    wanted = {"metadata": {"generateName": "g-", "namespace": site.namespace}}
    names = {site.client.create(CONFIG_MAPS, wanted)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("g-") for name in names)


def test_a_malformed_name_is_invalid(site: Site) -> None:
    with pytest.raises(Invalid):
        site.client.create(CONFIG_MAPS, config_map(site, "Not_A_Name"))


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"a": "no spaces"}, id="space-in-value"),
        pytest.param({"a": "x" * 64}, id="value-too-long"),
        pytest.param({"a": "-"}, id="value-of-a-dash"),
        pytest.param({"a": 1}, id="number-as-value"),
        pytest.param({"not a key": "x"}, id="space-in-key"),
    ],
)
def test_malformed_labels_are_invalid(site: Site, labels: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        site.client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": site.namespace, "labels": labels}})
    site.client.create(CONFIG_MAPS, config_map(site, "a"))
    with pytest.raises(Invalid):
        site.client.patch(CONFIG_MAPS, site.key("a"), merge_patch({"metadata": {"labels": labels}}))


def test_writing_over_a_newer_version_conflicts(site: Site) -> None:
    old = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    site.client.update(CONFIG_MAPS, {**old, "data": {"key": "2"}})
    with pytest.raises(Conflict):
        site.client.update(CONFIG_MAPS, {**old, "data": {"key": "3"}})
    assert site.client.get(CONFIG_MAPS, site.key("a"))["data"] == {"key": "2"}


def test_a_write_that_changes_nothing_makes_no_version(site: Site) -> None:
    first = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    assert version(site.client.update(CONFIG_MAPS, first)) == version(first)
    patched = site.client.patch(CONFIG_MAPS, site.key("a"), merge_patch({"data": {"key": "1"}}))
    assert version(patched) == version(first)


def test_leases_are_only_written_with_a_version(site: Site) -> None:
    lease: Document = {"metadata": {"name": "l", "namespace": site.namespace}, "spec": {"holderIdentity": "a"}}
    site.client.create(LEASES, lease)
    with pytest.raises(Invalid):
        site.client.update(LEASES, lease)


def test_merge_patch_merges_and_removes(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a", keep="1", drop="1"))
    body = {"data": {"drop": None, "add": "2"}}
    assert site.client.patch(CONFIG_MAPS, site.key("a"), merge_patch(body))["data"] == {"keep": "1", "add": "2"}


def test_json_patch_tests_before_it_writes(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    steps = [{"op": "test", "path": "/data/key", "value": "1"}, {"op": "replace", "path": "/data/key", "value": "2"}]
    patch = Patch(PatchType.JSON, steps)
    assert site.client.patch(CONFIG_MAPS, site.key("a"), patch)["data"] == {"key": "2"}
    with pytest.raises(Invalid):
        site.client.patch(CONFIG_MAPS, site.key("a"), patch)


def test_apply_owns_what_it_applied(site: Site) -> None:
    def apply(manager: str, force: bool = False, **data: str) -> Document:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
        return site.client.patch(CONFIG_MAPS, site.key("a"), apply_patch(body, field_manager=manager, force=force))

    assert apply("one", x="1", y="1")["data"] == {"x": "1", "y": "1"}
    assert apply("two", z="2")["data"] == {"x": "1", "y": "1", "z": "2"}
    assert apply("one", x="1")["data"] == {"x": "1", "z": "2"}
    with pytest.raises(Conflict) as refused:
        apply("two", x="2", z="2")
    assert [kind for kind, _ in refused.value.causes] == ["FieldManagerConflict"]
    assert apply("two", True, x="2", z="2")["data"] == {"x": "2", "z": "2"}
    # What was taken over is no longer removed by its first owner.
    assert apply("one", w="1")["data"] == {"x": "2", "z": "2", "w": "1"}


def test_modify_loses_no_writer(site: Site) -> None:
    site.client.create(CONFIG_MAPS, config_map(site, "a", count="0"))

    def increment(document: Document) -> Document:
        document["data"]["count"] = str(int(document["data"]["count"]) + 1)
        return document

    def work() -> None:
        for _ in range(5):
            site.client.modify(CONFIG_MAPS, site.key("a"), increment, attempts=50)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.client.get(CONFIG_MAPS, site.key("a"))["data"] == {"count": "20"}
