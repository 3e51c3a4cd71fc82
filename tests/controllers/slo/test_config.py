"""The slo-controller ConfigMap: merge rules, checks, and the previous state where a part cannot be read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.slo.config import COLOCATION, DEFAULT, EXTENSIONS, PARTS, THRESHOLD, parse_config
from controllers.slo.layers import overlay

LAYERED = {
    "clusterStrategy": {"cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"},
    "nodeStrategies": [
        {"name": "a", "nodeSelector": {"matchLabels": {"pool": "x"}}, "cpuSuppressThresholdPercent": 70},
        {"name": "b", "nodeSelector": {"matchLabels": {"zone": "1"}}, "cpuSuppressThresholdPercent": 80},
    ],
}


def threshold(document: Any) -> Any:
    config = parse_config({THRESHOLD: json.dumps(document)})
    assert not config.faults
    return config.layers(THRESHOLD)


@pytest.mark.parametrize(
    ("labels", "percent"),
    [
        pytest.param({"pool": "x", "zone": "1"}, 70, id="first-entry-wins"),
        pytest.param({"zone": "1"}, 80, id="second-entry"),
        pytest.param({}, 65, id="cluster"),
    ],
)
def test_the_first_entry_that_matches_is_laid_over_the_cluster(labels: dict[str, str], percent: int) -> None:
    layers = threshold(LAYERED)
    strategy = layers.strategy(layers.entry_for(labels))
    assert strategy["cpuSuppressThresholdPercent"] == percent
    assert strategy["cpuSuppressPolicy"] == "cfsQuota"
    assert strategy["memoryEvictThresholdPercent"] == 70, "built in"


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    layers = threshold({"nodeStrategies": [{"cpuSuppressThresholdPercent": 1}]})
    assert layers.entry_for({"a": "b"}) == -1
    layers = threshold({"nodeStrategies": [{"nodeSelector": {}, "cpuSuppressThresholdPercent": 1}]})
    assert layers.entry_for({}) == 0


@pytest.mark.parametrize(
    ("part", "document", "problem"),
    [
        pytest.param(THRESHOLD, {"clusterStrategy": {"cpuSuppressThresholdPercent": 101}}, "more than 100", id="range"),
        pytest.param(THRESHOLD, {"clusterStrategy": {"cpuSuppressPolicy": "x"}}, "none of", id="enumeration"),
        pytest.param(THRESHOLD, {"clusterStrategy": {"enable": "yes"}}, "Expected `bool", id="type"),
        pytest.param(
            THRESHOLD,
            {"clusterStrategy": {"memoryEvictLowerPercent": 70}},
            "not less than memoryEvictThresholdPercent",
            id="order",
        ),
        pytest.param(THRESHOLD, {"nodeStrategies": {}}, "a list", id="entries"),
        pytest.param(THRESHOLD, {"nodeStrategies": [1]}, "no object", id="entry"),
        pytest.param(COLOCATION, {"resourceDiffThreshold": 0}, "not more than 0", id="difference"),
        pytest.param(COLOCATION, {"cpuCalculatePolicy": "request"}, "none of", id="cpu-by-request"),
        pytest.param(COLOCATION, {"nodeConfigs": [{"enable": True}]}, "matchLabels", id="colocation-selector"),
        pytest.param(
            COLOCATION, {"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}}]}, "no field", id="no-field"
        ),
        pytest.param("cpu-normalization-config", {"defaultRatio": 6}, "more than 5", id="ratio"),
        pytest.param(
            "resource-amplification-config", {"resourceAmplificationRatio": {"cpu": 0.5}}, "less than 1", id="below-1"
        ),
    ],
)
def test_what_breaks_a_rule_spoils_its_part_and_no_other(part: str, document: Any, problem: str) -> None:
    before = parse_config({part: "{}"})
    config = parse_config({part: json.dumps(document)}, before)
    assert [fault.part for fault in config.faults] == [part]
    assert problem in config.faults[0].problem
    assert config.layers(part) == before.layers(part)
    assert parse_config({part: json.dumps(document)}).layers(part) is None


def test_a_key_that_is_absent_has_the_defaults_again() -> None:
    assert parse_config({}, parse_config({THRESHOLD: json.dumps(LAYERED)})).layers(THRESHOLD) == DEFAULT.layers(
        THRESHOLD
    )


def test_extensions_are_layered_by_name_and_not_checked() -> None:
    text = json.dumps({"evictionCooldown": {"clusterStrategy": {"enable": True, "seconds": 60}}})
    config = parse_config({EXTENSIONS: text})
    assert config.extensions is not None
    assert config.extensions["evictionCooldown"].cluster == {"enable": True, "seconds": 60}


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(lambda pools: {"clusterStrategy": pools}, id="cluster"),
        pytest.param(lambda pools: {"nodeStrategies": [{"name": "a", **pools}]}, id="entry"),
    ],
)
def test_names_of_pools_that_nodes_would_refuse_are_told(layer: Callable[[Any], Any]) -> None:
    def faults(name: Any) -> list[str]:
        text = json.dumps({"resourcePools": layer({"pools": [{"name": name}, 7]})})
        return [fault.problem for fault in parse_config({EXTENSIONS: text}).faults]

    assert faults("grade-a") == []
    for name in ("Odd/Name", "odd\n", ""):
        (problem,) = faults(name)
        assert problem.startswith(f"resourcePools: pools: {name!r}")


def test_null_leaves_the_lower_layer_and_lists_are_replaced() -> None:
    assert overlay({"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": None, "c": [2]}, "d": None}) == {
        "a": {"b": 1, "c": [2]},
        "d": 2,
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "clusterStrategy",
                    "nodeStrategies",
                    "nodeConfigs",
                    "nodeSelector",
                    "matchLabels",
                    "enable",
                    "applications",
                    "name",
                    "cpuSuppressThresholdPercent",
                    "lsClass",
                    "cpuQOS",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(PARTS), json_values | st.text(max_size=20))
def test_any_text_gives_a_configuration_or_a_fault_and_never_an_error(part: str, value: Any) -> None:
    config = parse_config({part: value if isinstance(value, str) else json.dumps(value)})
    layers = config.extensions if part == EXTENSIONS else config.layers(part)
    assert (layers is None) == bool(config.faults)
