"""Pods by the paths of their cgroups, their classes, and what an object of the API server says."""

import msgspec
import pytest

from api.kube.objects import Pod
from api.qos import PriorityBand, QoSClass
from koordlet.identity.pods import PodContainer, PodFacts, PodTable
from koordlet.kube.pods import (
    CONFIG_HASH,
    ApiPods,
    band_with_default,
    facts_of_pod,
    full_name,
    pod_key,
    pod_of,
    qos_with_default,
)
from tests.koordlet.kube.test_verdict_entries import BATCH, WEB, cgroup, pod


def test_a_static_pod_is_known_by_the_uid_of_its_cgroups() -> None:
    pods = ApiPods()
    mirror = pod("etcd-n1", "9" * 36, **{CONFIG_HASH: "ab" * 16})
    pods.change([(None, mirror)])
    assert pod_key(pods.table, f"/kubepods/pod{'ab' * 16}") == "shop/etcd-n1"
    assert pod_key(pods.table, f"/kubepods/pod{'ab' * 16}/{'c' * 64}/made/inside") == "shop/etcd-n1"
    assert (len(pods.table), pods.table.pods[0].qos) == (1, QoSClass.SYSTEM)
    pods.change([(mirror, None)])
    assert pod_of(pods.table, f"/kubepods/pod{'ab' * 16}/x") is None


def test_a_directory_that_claims_to_be_a_pods_is_not_where_its_place_is_known() -> None:
    place = cgroup(WEB).rpartition("/")[0]
    containers = (PodContainer("nginx", "a" * 64, cgroup_path=cgroup(WEB)),)
    table = PodTable([PodFacts("shop/web", uid=WEB, cgroup_path=place, containers=containers)], generation=1)
    assert full_name(table, cgroup(WEB)) == "shop/web/nginx"
    assert full_name(table, f"{cgroup(WEB)}/inside") == "shop/web/nginx"
    assert full_name(table, place) == "shop/web"
    liar = f"/user.slice/kubepods/pod{WEB}/x"
    assert full_name(table, liar) == liar
    assert pod_key(table, cgroup(BATCH)) == cgroup(BATCH)


@pytest.mark.parametrize(
    ("facts", "qos", "band"),
    [
        pytest.param(PodFacts("a/b", kube_qos="Guaranteed"), "LSR", "koord-prod", id="guaranteed"),
        pytest.param(PodFacts("a/b", kube_qos="Burstable"), "LS", "koord-prod", id="burstable"),
        pytest.param(PodFacts("a/b", kube_qos="BestEffort"), "BE", "koord-batch", id="best effort"),
        pytest.param(PodFacts("a/b"), "LS", "koord-prod", id="unknown"),
        pytest.param(PodFacts("a/b", QoSClass.BE, 7100), "BE", "koord-mid", id="by number"),
        pytest.param(PodFacts("a/b", QoSClass.BE, 8500), "BE", "koord-batch", id="between bands"),
        pytest.param(
            PodFacts("a/b", QoSClass.LS, 9500, {"koordinator.sh/priority-class": "koord-free"}),
            "LS",
            "koord-free",
            id="by label",
        ),
        pytest.param(
            PodFacts("a/b", QoSClass.LS, 5500, {"koordinator.sh/priority-class": "rubbish"}),
            "LS",
            "koord-prod",
            id="unknown label",
        ),
    ],
)
def test_classes_with_defaults(facts: PodFacts, qos: str, band: str) -> None:
    assert (qos_with_default(facts), band_with_default(facts)) == (QoSClass(qos), PriorityBand(band))


def test_facts_of_an_object() -> None:
    document = {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": WEB,
            "labels": {"koordinator.sh/qosClass": "LS"},
            "creationTimestamp": "1970-01-01T00:01:00Z",
        },
        "spec": {
            "priority": 9100,
            "containers": [
                {"name": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1"}}},
                {"name": "odd", "resources": {"requests": {"cpu": "lots"}}},
            ],
            "initContainers": [{"name": "first", "resources": {"requests": {"cpu": "2"}}}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"name": "app", "containerID": "containerd://abc"}],
        },
    }
    facts = facts_of_pod(msgspec.convert(document, Pod))
    assert (facts.name, facts.qos, facts.kube_qos, facts.created_seconds) == (
        "shop/web",
        QoSClass.LS,
        "Burstable",
        60.0,
    )
    assert facts.requests == {"cpu": 2000, "memory": 1 << 30}
    assert facts.limits == {"cpu": 1000}
    assert [(each.name, each.id) for each in facts.containers] == [("app", "abc"), ("odd", "")]
    odd = msgspec.convert(document | {"metadata": {"labels": {"koordinator.sh/qosClass": "best"}}}, Pod)
    assert facts_of_pod(odd).qos is QoSClass.NONE
