"""The external metrics in the chart: Service and APIService fit the settings' defaults, rights are the least."""

import tomllib
from typing import Any

import pytest

from api.settings import convert
from controllers.external_metrics.answers import GROUP_VERSION
from controllers.external_metrics.front_proxy import AUTHENTICATION
from controllers.external_metrics.settings import ExternalMetricsSettings
from controllers.runtime.settings import ManagerSettings
from tests.deploy.charts import documents

ON = {"manager": {"enabled": True}, "externalMetrics": {"enabled": True, "settings": "lead_seconds = 60"}}
DEFAULTS = ExternalMetricsSettings()


def objects(kind: str) -> list[dict[str, Any]]:
    return [each for each in documents(ON) if each["kind"] == kind]


def test_nothing_of_it_is_installed_unless_asked_for() -> None:
    found = documents({"manager": {"enabled": True}})
    assert not [each for each in found if each["kind"] == "APIService"]
    assert not [each for each in found if "metrics" in each["metadata"]["name"]]


def test_nothing_of_it_is_installed_without_the_manager_that_serves_it() -> None:
    # An APIService that does not answer keeps namespaces from being deleted.
    assert documents({"externalMetrics": {"enabled": True}}) == documents()


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({part: change}, id=f"{part}-{name}")
        for part in ("externalMetrics", "webhooks")
        for name, change in {
            "enabled": {"enabled": True},
            "port": {"port": 9999},
            "settings": {"settings": "x = 1"},
        }.items()
    ],
)
def test_what_changes_the_settings_restarts_the_manager(values: dict[str, Any]) -> None:
    def annotations(more: dict[str, Any]) -> Any:
        found = documents({"manager": {"enabled": True}, **more})
        (manager,) = [each for each in found if each["kind"] == "Deployment"]
        return manager["spec"]["template"]["metadata"]["annotations"]

    assert annotations(values) != annotations({})


def test_the_api_server_calls_the_service_that_the_certificate_is_for() -> None:
    (registered,) = objects("APIService")
    (service,) = [each for each in objects("Service") if each["metadata"]["name"] == DEFAULTS.service]
    spec = registered["spec"]
    assert registered["metadata"]["name"] == DEFAULTS.api_service
    assert f"{spec['group']}/{spec['version']}" == GROUP_VERSION
    assert spec["service"]["name"] == service["metadata"]["name"]
    assert "insecureSkipTLSVerify" not in spec
    (port,) = service["spec"]["ports"]
    assert port["port"] == spec["service"]["port"]
    assert port["targetPort"] == DEFAULTS.port


def test_the_settings_are_settings_of_the_program() -> None:
    (found,) = [
        each
        for each in objects("ConfigMap")
        if each["metadata"]["name"] == "koord-manager" and "manager.toml" in each["data"]
    ]
    settings = convert(tomllib.loads(found["data"]["manager.toml"]), ManagerSettings, "manager.toml")
    own = settings.external_metrics
    assert (own.enabled, own.lead_seconds, own.namespace) == (True, 60.0, found["metadata"]["namespace"])


def test_it_may_read_how_the_api_server_shows_itself_and_keep_one_secret_and_one_trust() -> None:
    roles = [
        each for each in (*objects("Role"), *objects("ClusterRole")) if "external-metrics" in each["metadata"]["name"]
    ]
    rules = [rule for role in roles for rule in role["rules"]]
    named = {(rule["resources"][0], *rule["verbs"]): rule.get("resourceNames") for rule in rules}
    assert named == {
        ("apiservices", "get", "patch"): [DEFAULTS.api_service],
        ("secrets", "create"): None,
        ("secrets", "get", "update"): [DEFAULTS.secret],
    }
    (reading,) = [each for each in objects("RoleBinding") if each["metadata"]["namespace"] == AUTHENTICATION.namespace]
    assert reading["roleRef"]["name"] == "extension-apiserver-authentication-reader"
