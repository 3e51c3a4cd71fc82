"""Warnings: levels of scheduler and node that do not fit, and batch-cpu in cores."""

import json
from typing import Any

import msgspec
import pytest

from api.crds import NodeSLO
from api.kube.meta import ObjectMeta
from api.kube.times import rfc3339
from cluster import Key
from controllers.kinds import CONFIG_MAP, NODE, NODE_SLO, POD, ConfigMap, Node
from controllers.plans.level_checks import LevelChecks, loadaware_memory_percent
from tests.capacity import NOW, a_node, a_pod
from tests.managed import CONFIG, built, view_of

BATCH = "kubernetes.io/batch-cpu"


def scheduler(args: Any) -> ConfigMap:
    plugin = {"name": "LoadAwareScheduling", "args": args}
    document = {"profiles": [{"schedulerName": "koord-scheduler", "pluginConfig": [{"name": "Other"}, plugin]}]}
    data = {"koord-scheduler-config": json.dumps(document)}
    return ConfigMap(metadata=ObjectMeta(name="koord-scheduler-config", namespace=CONFIG.namespace), data=data)


def slo(percent: int, *, enable: bool = True) -> NodeSLO:
    threshold = {"enable": enable, "memoryEvictThresholdPercent": percent}
    spec = {"resourceUsedThresholdWithBE": threshold}
    return msgspec.convert({"metadata": {"name": "n1"}, "spec": spec}, NodeSLO)


def notes(maps: list[ConfigMap], strategy: NodeSLO, **annotations: str) -> list[str]:
    controller = built(LevelChecks)
    objects = {CONFIG_MAP: maps, NODE: [a_node(annotations=annotations)], NODE_SLO: [strategy]}
    return [event.note for event in controller.plan(view_of(controller, objects), 0.0).warnings]


@pytest.mark.parametrize(
    ("args", "strategy", "warned"),
    [
        pytest.param({"usageThresholds": {"cpu": 65, "memory": 95}}, slo(70), True, id="above"),
        pytest.param({}, slo(70), True, id="default"),
        pytest.param({"usageThresholds": {"memory": 60}}, slo(70), False, id="below"),
        pytest.param({"usageThresholds": {"memory": 0}}, slo(70), False, id="off"),
        pytest.param({}, slo(70, enable=False), False, id="no-eviction"),
    ],
)
def test_placing_above_the_level_of_eviction_is_said(args: Any, strategy: NodeSLO, warned: bool) -> None:
    found = notes([scheduler(args)], strategy)
    assert bool(found) == warned
    assert all("95 %" in note and "70 %" in note for note in found)


def test_explain_says_both_levels() -> None:
    controller = built(LevelChecks)
    view = view_of(controller, {CONFIG_MAP: [scheduler({})], NODE: [a_node()], NODE_SLO: [slo(70)]})
    assert controller.explain(view, "nodes", Key("", "n1"), 0.0) == [
        "the scheduler places pods up to 95 % of its memory",
        "best-effort pods are evicted from 70 % of it",
    ]
    assert controller.explain(view, "pods", Key("", "n1"), 0.0) == ()


def test_the_nodes_own_threshold_decides() -> None:
    own = {"scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds":{"memory":50}}'}
    assert not notes([scheduler({})], slo(70), **own)


def test_without_a_known_configuration_nothing_is_said() -> None:
    assert not notes([], slo(70))


@pytest.mark.parametrize("text", ["", "[", "profiles: 3", "profiles: [3]", "profiles: [{pluginConfig: [3]}]"])
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert loadaware_memory_percent(text) is None


@pytest.mark.parametrize(
    ("amount", "warned"), [("8", True), ("49", True), ("50", False), ("8000", False), ("0", False)]
)
def test_batch_cpu_that_looks_like_cores_is_said(amount: str, warned: bool) -> None:
    controller = built(LevelChecks)
    pod = a_pod("spark", requests={BATCH: amount})
    warnings = controller.plan(view_of(controller, {POD: [pod]}), 0.0).warnings
    assert bool(warnings) == warned
    assert all(event.regarding.name == "spark" and event.reason == "BatchCpuInCores" for event in warnings)


@pytest.mark.parametrize(
    ("manager", "age_seconds", "field", "warned"),
    [
        pytest.param("koord-manager", 60.0, "f:kubernetes.io/batch-cpu", True, id="another-manager"),
        pytest.param("koord-manager", 60.0, "f:kubernetes.io/mid-memory", True, id="mid"),
        pytest.param("koord", 60.0, "f:kubernetes.io/batch-cpu", False, id="ours"),
        pytest.param("kubelet", 60.0, "f:kubernetes.io/batch-cpu", False, id="kubelet"),
        pytest.param("koord-manager", 3600.0, "f:kubernetes.io/batch-cpu", False, id="long-gone"),
        pytest.param("device-plugin", 60.0, "f:example.com/device", False, id="other-amounts"),
    ],
)
def test_another_program_that_writes_the_same_amounts_is_said(
    manager: str, age_seconds: float, field: str, warned: bool
) -> None:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": rfc3339(NOW - age_seconds),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:allocatable": {".": {}, "f:cpu": {}, field: {}}, "f:conditions": {".": {}}}},
        "subresource": "status",
    }
    document = msgspec.to_builtins(a_node())
    document["metadata"]["managedFields"] = [entry, {"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}]
    controller = built(LevelChecks)
    view = view_of(controller, {NODE: [msgspec.convert(document, Node)]})
    found = [event for event in controller.plan(view, NOW).warnings if event.reason == "ForeignManager"]
    assert bool(found) is warned
    assert all("koord-manager" in event.note for event in found)
