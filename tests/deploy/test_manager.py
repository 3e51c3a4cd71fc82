"""The manager in the chart: its rights against its controllers, and a pod without privileges."""

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

import controllers.plans
from api.plugin import discover
from api.settings import convert
from cluster import Resource
from controllers.__main__ import GROUP
from controllers.runtime.controller import Controller
from controllers.runtime.loop import kinds_of
from controllers.runtime.settings import ManagerSettings, build
from tests.deploy.charts import documents

ON = {"manager": {"enabled": True}}


def objects(kind: str) -> list[dict[str, Any]]:
    return [each for each in documents(ON) if each["kind"] == kind and each["metadata"]["name"] == "koord-manager"]


def granted() -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for role in (*objects("ClusterRole"), *objects("Role")):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                found.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return found


def watched() -> dict[tuple[str, str], Resource[Any]]:
    found = discover(controllers.plans, Controller, GROUP)  # type: ignore[type-abstract]
    asked = {"controllers": {name: {"enabled": True} for name in found}}
    built = build(convert(asked, ManagerSettings, "all"), found, "all")
    return {(kind.group, kind.plural): kind for each in built.values() for kind in kinds_of(each)}


def test_nothing_of_it_is_installed_unless_asked_for() -> None:
    assert not [each for each in documents() if each["metadata"]["name"] == "koord-manager"]


def test_every_kind_that_a_controller_watches_is_granted() -> None:
    rights = granted()
    for key in watched():
        assert {"list", "watch"} <= rights.get(key, set()), f"{key} in deploy/chart/templates/manager-rbac.yaml"


def test_what_is_granted_is_watched_or_written_and_nothing_is_granted_whole() -> None:
    beside = {("events.k8s.io", "events"), ("coordination.k8s.io", "leases"), ("", "nodes/status")}
    beside.add(("interference.koordinator.sh", "workloadprofiles/status"))
    beside.add(("analysis.koordinator.sh", "recommendations/status"))
    for (group, resource), verbs in granted().items():
        assert (group, resource) in watched() or (group, resource) in beside
        assert "*" not in {group, resource, *verbs}
        assert resource != "secrets"


def test_its_pod_needs_no_privilege() -> None:
    (deployment,) = objects("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not {"hostNetwork", "hostPID"} & spec.keys()


@pytest.mark.parametrize(
    "text", [pytest.param("", id="default"), pytest.param("[webhook]\nenabled = true", id="webhooks")]
)
def test_its_settings_are_settings_of_the_program(text: str) -> None:
    values: Mapping[str, Any] = {"manager": {"enabled": True, **({"settings": text} if text else {})}}
    (found,) = (
        each
        for each in documents(values)
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "koord-manager"
    )
    settings = convert(tomllib.loads(found["data"]["manager.toml"]), ManagerSettings, "manager.toml")
    assert settings.config_namespace == found["metadata"]["namespace"]
    assert msgspec.to_builtins(settings)


def test_pods_are_resized_only_with_a_right_of_its_own() -> None:
    assert ("", "pods/resize") not in granted()
    (role,) = (
        each
        for each in documents({"manager": {"enabled": True, "resize": True}})
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == "koord-manager"
    )
    assert [rule["verbs"] for rule in role["rules"] if rule["resources"] == ["pods/resize"]] == [["patch"]]
