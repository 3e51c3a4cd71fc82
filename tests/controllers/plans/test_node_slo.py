"""NodeSLOs: parts by layer, what others wrote stays, a part that cannot be read stays as it is."""

import json
from typing import Any

import msgspec
import pytest

from api.crds import NodeSLO
from api.kube.meta import ObjectMeta
from cluster import CONFIG_MAPS, NODES, Key, merge_patch
from cluster.twin import Twin
from controllers.kinds import CONFIG_MAP, NODE, NODE_SLO, ConfigMap, Node, NodeMeta
from controllers.plans.node_slo import ANNOTATION_EXTENSIONS, ANNOTATION_NETWORK_BANDWIDTH, NodeSLOs
from controllers.runtime.writes import Verb
from tests.managed import CONFIG, built, running, view_of
from tests.waiting import wait_for

POOL = {"pool": "x"}


def a_node(name: str = "n1", labels: dict[str, str] | None = None, **annotations: str) -> Node:
    return Node(metadata=NodeMeta(name=name, labels=labels or {}, annotations=annotations))


def config(**parts: Any) -> ConfigMap:
    data = {
        name.replace("_", "-"): value if isinstance(value, str) else json.dumps(value) for name, value in parts.items()
    }
    return ConfigMap(metadata=ObjectMeta(name=CONFIG.name, namespace=CONFIG.namespace), data=data)


def a_slo(spec: dict[str, Any], **annotations: str) -> NodeSLO:
    meta = {"name": "n1", "resourceVersion": "3", "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": spec}, NodeSLO)


def spec_for(node: Node, *maps: ConfigMap) -> dict[str, Any]:
    controller = built(NodeSLOs)
    (write,) = controller.plan(view_of(controller, {CONFIG_MAP: list(maps), NODE: [node]}), 0.0).writes
    assert write.verb is Verb.CREATE
    spec: dict[str, Any] = write.body["spec"]
    return spec


def patches(slo: NodeSLO, *maps: ConfigMap, node: Node | None = None) -> list[Any]:
    controller = built(NodeSLOs)
    objects = {CONFIG_MAP: list(maps), NODE: [node or a_node()], NODE_SLO: [slo]}
    writes = controller.plan(view_of(controller, objects), 0.0).writes
    assert all(write.verb is Verb.PATCH and write.version == "3" for write in writes)
    return [write.body for write in writes]


def test_without_a_configuration_a_node_gets_koordinators_defaults() -> None:
    assert spec_for(a_node()) == {
        "resourceUsedThresholdWithBE": {
            "enable": False,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cpuset",
            "memoryEvictThresholdPercent": 70,
            "cpuEvictPolicy": "evictByRealLimit",
        },
        "resourceQOSStrategy": {},
        "cpuBurstStrategy": {
            "policy": "none",
            "cpuBurstPercent": 1000,
            "cfsQuotaBurstPercent": 300,
            "cfsQuotaBurstPeriodSeconds": -1,
            "sharePoolThresholdPercent": 50,
        },
        "systemStrategy": {"totalNetworkBandwidth": "0"},
    }


def test_the_entry_for_a_node_is_laid_over_the_cluster() -> None:
    document = {
        "clusterStrategy": {"enable": True, "beClass": None},
        "nodeStrategies": [{"nodeSelector": {"matchLabels": POOL}, "cpuSuppressThresholdPercent": 80}],
    }
    threshold = spec_for(a_node(labels=POOL), config(resource_threshold_config=document))["resourceUsedThresholdWithBE"]
    assert (threshold["enable"], threshold["cpuSuppressThresholdPercent"]) == (True, 80)


def test_classes_merge_field_by_field() -> None:
    document = {
        "clusterStrategy": {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}},
        "nodeStrategies": [{"nodeSelector": {"matchLabels": POOL}, "beClass": {"cpuQOS": {"schedIdle": 1}}}],
    }
    qos = spec_for(a_node(labels=POOL), config(resource_qos_config=document))["resourceQOSStrategy"]
    assert qos["beClass"]["cpuQOS"] == {"enable": True, "groupIdentity": -1, "schedIdle": 1}


@pytest.mark.parametrize(("text", "bandwidth"), [("10G", "10G"), ("lots", "0"), ("-1", "0")])
def test_the_nodes_bandwidth_replaces_the_configured_one(text: str, bandwidth: str) -> None:
    node = a_node(**{ANNOTATION_NETWORK_BANDWIDTH: text})
    assert spec_for(node)["systemStrategy"]["totalNetworkBandwidth"] == bandwidth


def test_host_applications_of_an_entry_replace_the_clusters() -> None:
    document = {
        "applications": [{"name": "nginx", "qos": "LS"}],
        "nodeConfigs": [{"nodeSelector": {"matchLabels": POOL}, "applications": [{"name": "yarn", "qos": "BE"}]}],
    }
    maps = config(host_application_config=document)
    assert [app["name"] for app in spec_for(a_node(), maps)["hostApplications"]] == ["nginx"]
    assert [app["name"] for app in spec_for(a_node(labels=POOL), maps)["hostApplications"]] == ["yarn"]


def test_extensions_of_others_stay_and_ours_come_and_go() -> None:
    maps = config(extensions_config={"evictionCooldown": {"clusterStrategy": {"enable": True}}})
    (body,) = patches(a_slo({**spec_for(a_node()), "extensions": {"theirs": {"a": 1}}}), maps)
    assert body["spec"] == {"extensions": {"evictionCooldown": {"enable": True}}}
    assert body["metadata"]["annotations"] == {ANNOTATION_EXTENSIONS: "evictionCooldown"}
    ours = {**spec_for(a_node()), "extensions": {"theirs": {"a": 1}, "evictionCooldown": {"enable": True}}}
    (body,) = patches(a_slo(ours, **{ANNOTATION_EXTENSIONS: "evictionCooldown"}))
    assert body["spec"] == {"extensions": {"evictionCooldown": None}}
    assert body["metadata"]["annotations"] == {ANNOTATION_EXTENSIONS: None}


def test_what_is_as_wanted_gives_no_write() -> None:
    assert not patches(a_slo(spec_for(a_node())))


def test_a_field_that_left_the_configuration_is_removed() -> None:
    spec = spec_for(a_node())
    spec["resourceUsedThresholdWithBE"]["cpuEvictTimeWindowSeconds"] = 60
    assert patches(a_slo(spec)) == [{"spec": {"resourceUsedThresholdWithBE": {"cpuEvictTimeWindowSeconds": None}}}]


def test_a_part_that_cannot_be_read_stays_as_it_is() -> None:
    spec = spec_for(a_node())
    spec["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] = 41
    assert not patches(a_slo(spec), config(resource_threshold_config="{"))


def test_it_says_where_each_part_comes_from() -> None:
    controller = built(NodeSLOs)
    lines = controller.explain(view_of(controller, {NODE: [a_node()]}), "nodes", Key("", "n1"), 0.0)
    assert any("cpuSuppressThresholdPercent" in line and "the cluster strategy" in line for line in lines)


def test_against_a_server_a_changed_configuration_reaches_every_node() -> None:
    with Twin() as twin, twin.client() as client:
        twin.serve(NODE_SLO)
        twin.load(NODES, [{"metadata": {"name": f"n{number}"}} for number in range(5)])

        def burst() -> set[str]:
            return {each["spec"]["cpuBurstStrategy"]["policy"] for each in twin.objects(NODE_SLO).values()}

        with running(twin, {"node_slo": built(NodeSLOs)}):
            wait_for(lambda: len(twin.objects(NODE_SLO)) == 5)
            data = {"cpu-burst-config": json.dumps({"clusterStrategy": {"policy": "auto"}})}
            meta = {"name": CONFIG.name, "namespace": CONFIG.namespace}
            client.create(CONFIG_MAPS, {"metadata": meta, "data": data})
            wait_for(lambda: burst() == {"auto"})
            client.patch(CONFIG_MAPS, CONFIG, merge_patch({"data": {"cpu-burst-config": "{"}}))
            client.delete(CONFIG_MAPS, CONFIG)
            wait_for(lambda: burst() == {"none"})
