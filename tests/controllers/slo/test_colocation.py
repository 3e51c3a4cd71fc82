"""The colocation strategy of a node: ConfigMap, then its annotation, then its labels."""

import json

import pytest

from controllers.slo.colocation import ANNOTATION_COLOCATION_STRATEGY, of_node

CPU = "node.koordinator.sh/cpu-reclaim-ratio"


def test_annotation_and_labels_override_in_this_order() -> None:
    annotations = {ANNOTATION_COLOCATION_STRATEGY: json.dumps({"cpuReclaimThresholdPercent": 70, "enable": True})}
    strategy, refused = of_node({"memoryReclaimThresholdPercent": 50}, {}, annotations)
    assert (strategy.cpu_reclaim_threshold_percent, strategy.memory_reclaim_threshold_percent) == (70, 50)
    strategy, refused = of_node({}, {CPU: "0.8"}, annotations)
    assert strategy.cpu_reclaim_threshold_percent == 80
    assert not refused


@pytest.mark.parametrize(
    ("value", "percent"),
    [("0.299", 29), ("1.5", 150), ("0", 0), ("-1", 60), ("x", 60), ("inf", 60), ("nan", 60), ("0.29", 29)],
)
def test_a_ratio_is_truncated_to_percent_and_nonsense_is_ignored(value: str, percent: int) -> None:
    assert of_node({}, {CPU: value}, {})[0].cpu_reclaim_threshold_percent == percent


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"enable":"yes"}', '{"midUnallocatedPercent":101}', pytest.param("[" * 5000, id="deep")],
)
def test_an_annotation_that_breaks_the_rules_is_refused_and_said(text: str) -> None:
    strategy, refused = of_node({"enable": True}, {}, {ANNOTATION_COLOCATION_STRATEGY: text})
    assert strategy.enable
    assert len(refused) == 1
