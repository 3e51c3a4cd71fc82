"""The schema of the chart's values: up to date, takes what the chart takes, and refuses what it would ignore."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.charts import renderer
from tests.deploy.test_chart import VARIANTS

SCHEMA: dict[str, Any] = json.loads((renderer.CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((renderer.CHART / "values.yaml").read_text())


def refusal(values: dict[str, Any]) -> str:
    """Return why Helm would refuse values over the defaults; empty where it takes them."""
    validator = jsonschema.Draft7Validator(SCHEMA)
    found = sorted(validator.iter_errors(renderer.merged(DEFAULTS, values)), key=str)
    return "; ".join(f"{'.'.join(map(str, error.path))}: {error.message}" for error in found)


def test_it_is_that_of_the_values() -> None:
    import runpy

    made = runpy.run_path(str(renderer.HERE / "values_schema.py"))
    assert made["schema"]() == SCHEMA, "run: make manifests"


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_what_the_chart_is_used_with_is_taken(variant: str) -> None:
    assert not refusal(VARIANTS[variant])


@pytest.mark.parametrize(
    "values",
    [
        {"koordlet": {"maxUnavailable": "10%"}},
        {"koordlet": {"nodeSelector": {"pool": "a"}, "tolerations": []}},
        {"manager": {"resources": {"limits": {"cpu": 2, "memory": "1.5Gi"}}}},
        {"global": {"anything": 1}},
        {"manager": {"enabled": True}, "webhooks": {"enabled": True}, "externalMetrics": {"enabled": True}},
    ],
    ids=["percentage", "selector", "amounts", "global", "served"],
)
def test_other_forms_are_taken(values: dict[str, Any]) -> None:
    assert not refusal(values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"koordlet": {"enforse": True}}, "koordlet: .*'enforse' was unexpected"),
        ({"koordlet": {"enforce": "yes"}}, "koordlet.enforce: 'yes' is not of type 'boolean'"),
        ({"koordlet": {"metricsPort": 70000}}, "koordlet.metricsPort"),
        ({"koordlet": {"maxUnavailable": "ten"}}, "koordlet.maxUnavailable"),
        ({"koordlet": {"runtimeDirectory": "run/containerd"}}, "koordlet.runtimeDirectory"),
        ({"koordlet": {"capabilities": {"observe": ["CAP BPF"]}}}, "koordlet.capabilities.observe"),
        ({"image": {"pullPolicy": "Sometimes"}}, "image.pullPolicy"),
        ({"manager": {"replicas": 0}}, "manager.replicas"),
        ({"manager": {"resources": {"limits": {"memory": "much"}}}}, "manager.resources.limits.memory"),
        ({"koordlet": {"settings": {"metrics": 1}}}, "koordlet.settings: .* is not of type 'string'"),
        ({"webhooks": {"enabled": True}}, "manager.enabled: True was expected"),
        ({"externalMetrics": {"enabled": True}}, "manager.enabled: True was expected"),
        ({"koordlet": {"evict": True}}, "koordlet.enforce: True was expected"),
        (
            {"koordlet": {"metricsClientCertificates": True}},
            "koordlet.metricsSecret: '' (is too short|should be non-empty)",
        ),
        ({"koordlet": {"metricsSecret": "Koord Metrics"}}, "koordlet.metricsSecret"),
    ],
    ids=[
        "typo",
        "text",
        "port",
        "number",
        "relative",
        "capability",
        "policy",
        "none",
        "amount",
        "table",
        "webhooks",
        "external-metrics",
        "evict",
        "client-certificates",
        "secret",
    ],
)
def test_what_the_chart_would_ignore_or_pass_on_broken_is_refused(values: dict[str, Any], said: str) -> None:
    import re

    assert re.search(said, refusal(values))


def test_every_key_has_a_comment_of_its_own_or_of_its_table() -> None:
    described = {name for name, each in SCHEMA["properties"].items() if "description" in str(each)}
    assert described >= {"koordlet", "manager", "policies", "descheduler", "scheduler", "webhooks", "uninstall"}
