"""The slo-controller ConfigMap: ranges, entries, and what is left alone."""

from typing import Any

import msgspec
import pytest

from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import Document, Outcome, review

NODES = {"a": {"pool": "x", "zone": "1"}, "b": {"pool": "x"}, "c": {"zone": "1"}}
VIEW = ClusterView(node_labels=lambda: NODES)
TYPE = {"koordinator.sh/configmap-type": "slo-controller-config"}


def config_map(labels: Document | None = None, **data: Any) -> Document:
    texts = {
        key.replace("_", "-"): value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in data.items()
    }
    return {"metadata": {"name": "settings", "labels": TYPE if labels is None else labels}, "data": texts}


def validated(document: Document, old: Document | None = None, name: str = "") -> Outcome:
    return review(
        "/validate-configmap",
        VIEW,
        obj=document,
        old=old,
        resource=("", "configmaps"),
        namespace="koord-system",
        name=name,
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"colocation_config": {"enable": True}}, id="shipped"),
        pytest.param(
            {"colocation_config": {"cpuReclaimThresholdPercent": 150, "midReclaimMode": "static"}}, id="above-100"
        ),
        pytest.param(
            {"resource_threshold_config": {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65}}},
            id="threshold",
        ),
        pytest.param(
            {"resource_qos_config": {"clusterStrategy": {"beClass": {"cpuQOS": {"groupIdentity": -1}}}}}, id="qos"
        ),
        pytest.param(
            {"cpu_burst_config": {"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 1000}}}, id="burst"
        ),
        pytest.param({"system_config": {"clusterStrategy": {"totalNetworkBandwidth": "10G"}}}, id="system"),
        pytest.param({"host_application_config": {"applications": [{"name": "nginx", "qos": "LS"}]}}, id="host"),
        pytest.param(
            {"cpu_normalization_config": {"enable": True, "ratioModel": {"m": {"baseRatio": 1.2}}}}, id="normal"
        ),
        pytest.param({"resource_amplification_config": {"resourceAmplificationRatio": {"cpu": 1.5}}}, id="amplify"),
        pytest.param({"colocation_config": {"degradeTimeMinutes": None}}, id="null-is-absent"),
        pytest.param({"colocation_config": ""}, id="empty"),
        pytest.param({"something_else": "{"}, id="other-keys"),
    ],
)
def test_settings_within_their_ranges_are_admitted(data: dict[str, Any]) -> None:
    done = validated(config_map(**data))
    assert done.allowed, done.message
    assert not done.warnings


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param({"colocation_config": "{"}, "colocation-config: not JSON", id="no-json"),
        pytest.param({"colocation_config": "[]"}, "must be of type object", id="list"),
        pytest.param({"colocation_config": {"enable": "yes"}}, "enable must be of type boolean", id="type"),
        pytest.param({"colocation_config": {"degradeTimeMinutes": 0}}, "must be at least 1", id="zero"),
        pytest.param({"colocation_config": {"cpuReclaimThresholdPercent": -1}}, "must be at least 0", id="negative"),
        pytest.param({"colocation_config": {"resourceDiffThreshold": 0}}, "must be above 0", id="difference"),
        pytest.param({"colocation_config": {"midUnallocatedPercent": 101}}, "must be at most 100", id="mid"),
        pytest.param({"colocation_config": {"cpuCalculatePolicy": "guess"}}, "must be one of", id="policy"),
        pytest.param(
            {
                "resource_threshold_config": {
                    "nodeStrategies": [
                        {"nodeSelector": {"matchLabels": {"a": "b"}}, "cpuSuppressThresholdPercent": 101}
                    ]
                }
            },
            "nodeStrategies[0].cpuSuppressThresholdPercent must be at most 100",
            id="entry",
        ),
        pytest.param({"cpu_normalization_config": {"defaultRatio": 5.5}}, "must be at most 5", id="normalization"),
        pytest.param(
            {"resource_amplification_config": {"resourceAmplificationRatio": {"cpu": 0.9}}},
            "at least 1",
            id="amplification",
        ),
    ],
)
def test_settings_out_of_range_name_their_field(data: dict[str, Any], message: str) -> None:
    done = validated(config_map(**data))
    assert not done.allowed
    assert message in done.message


def entry(name: str, **labels: str) -> Document:
    return {"name": name, "nodeSelector": {"matchLabels": labels}, "cpuReclaimThresholdPercent": 70}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param([entry("one", pool="x"), entry("two", zone="1")], "entries one, two all select a", id="overlap"),
        pytest.param(
            [entry("one", pool="x"), entry("one", pool="y")], "another entry has the name one", id="name-twice"
        ),
        pytest.param([{"name": "one"}], "must not be empty", id="no-selector"),
        pytest.param([{"nodeSelector": {"matchLabels": {"a": 1}}}], "nodeSelector: Expected `str`", id="no-label"),
        pytest.param(
            [{"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Inn"}]}}],
            "unknown operator",
            id="operator",
        ),
        pytest.param([entry("one", pool="x"), entry("two", pool="y")], "", id="apart"),
    ],
)
def test_entries_do_not_contradict_each_other(entries: list[Document], message: str) -> None:
    done = validated(config_map(colocation_config={"nodeConfigs": entries}))
    assert done.allowed == (not message)
    assert message in done.message


def test_a_key_that_did_not_change_holds_nothing_up() -> None:
    old = config_map(colocation_config="{")
    assert validated(config_map(colocation_config="{", system_config={}), old).allowed


def test_other_config_maps_are_not_looked_at() -> None:
    assert validated(config_map({}, colocation_config="{")).allowed
    assert not validated(config_map({}, colocation_config="{"), name="slo-controller-config").allowed


def test_a_field_that_nothing_reads_is_a_warning() -> None:
    done = validated(config_map(colocation_config={"cpuReclaimTresholdPercent": 60}))
    assert done.allowed
    assert "colocation-config.cpuReclaimTresholdPercent" in done.warnings[0]
