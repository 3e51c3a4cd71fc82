"""Normalization by CPU model and amplification."""

import json
from typing import Any

import msgspec
import pytest

from api.kube.meta import ObjectMeta
from api.kube.numa import NodeResourceTopology
from controllers.kinds import CONFIG_MAP, NODE, NODE_RESOURCE_TOPOLOGY, ConfigMap
from controllers.plans.node_ratios import NodeRatios
from tests.capacity import a_node
from tests.managed import CONFIG, built, view_of

NORMALIZATION = "node.koordinator.sh/cpu-normalization-ratio"
AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
LABEL = "node.koordinator.sh/cpu-normalization-enabled"
RATIOS = {
    "baseRatio": 1.5,
    "hyperThreadEnabledRatio": 1.0,
    "turboEnabledRatio": 1.8,
    "hyperThreadTurboEnabledRatio": 1.2,
}


def plan(
    *,
    normalization: dict[str, Any] | None = None,
    amplification: dict[str, Any] | None = None,
    model: str | None = "XYZ",
    threads: bool = False,
    turbo: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    data = {"cpu-normalization-config": json.dumps(normalization or {})}
    data["resource-amplification-config"] = json.dumps(amplification or {})
    maps = ConfigMap(metadata=ObjectMeta(name=CONFIG.name, namespace=CONFIG.namespace), data=data)
    node = a_node(labels=labels or {}, annotations=annotations or {})
    info = {"cpuModel": model, "hyperThreadEnabled": threads, "turboEnabled": turbo}
    meta = {"name": "n1", "annotations": {"node.koordinator.sh/cpu-basic-info": json.dumps(info)} if model else {}}
    topology = msgspec.convert({"metadata": meta}, NodeResourceTopology)
    controller = built(NodeRatios)
    objects = {CONFIG_MAP: [maps], NODE: [node], NODE_RESOURCE_TOPOLOGY: [topology]}
    writes = controller.plan(view_of(controller, objects), 0.0)
    found = {name: text for each in writes.writes for name, text in each.body["metadata"]["annotations"].items()}
    return found, [event.note for event in writes.warnings]


ON = {"enable": True, "ratioModel": {"XYZ": RATIOS}}


@pytest.mark.parametrize(
    ("threads", "turbo", "ratio"),
    [(False, False, "1.50"), (True, False, None), (False, True, "1.80"), (True, True, "1.20")],
)
def test_the_ratio_is_that_of_the_model_as_it_runs(threads: bool, turbo: bool, ratio: str | None) -> None:
    found, problems = plan(normalization=ON, threads=threads, turbo=turbo)
    assert found.get(NORMALIZATION) == ratio
    assert not problems


def test_an_unknown_model_has_the_default_ratio_or_stays() -> None:
    assert plan(normalization={**ON, "defaultRatio": 1.1}, model="other")[0][NORMALIZATION] == "1.10"
    found, problems = plan(normalization=ON, model="other", annotations={NORMALIZATION: "1.30"})
    assert NORMALIZATION not in found
    assert "no CPU normalization ratio" in problems[0]


def test_a_node_that_did_not_report_its_model_stays() -> None:
    found, problems = plan(normalization=ON, model=None, annotations={NORMALIZATION: "1.30"})
    assert NORMALIZATION not in found
    assert "did not report" in problems[0]


def test_the_nodes_label_decides_before_the_strategy() -> None:
    assert plan(normalization={**ON, "enable": False}, labels={LABEL: "true"})[0][NORMALIZATION] == "1.50"
    found, _ = plan(normalization=ON, labels={LABEL: "false"}, annotations={NORMALIZATION: "1.50"})
    assert found[NORMALIZATION] == "1.00"


def test_differences_up_to_a_hundredth_are_none() -> None:
    assert not plan(normalization=ON, annotations={NORMALIZATION: "1.49", AMPLIFICATION: '{"cpu":1.50}'})[0]


def test_amplification_multiplies_with_normalization_and_keeps_only_what_is_above_1() -> None:
    found, _ = plan(
        normalization=ON, amplification={"enable": True, "resourceAmplificationRatio": {"cpu": 2, "memory": 1.2}}
    )
    assert found[AMPLIFICATION] == '{"cpu":3.00,"memory":1.20}'
    found, _ = plan(amplification={"enable": True, "resourceAmplificationRatio": {"cpu": 1}})
    assert AMPLIFICATION not in found
    found, _ = plan(annotations={AMPLIFICATION: '{"cpu":2.00}'})
    assert found[AMPLIFICATION] is None
