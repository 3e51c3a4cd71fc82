"""Pods by the paths of their cgroups, and their classes."""

import pytest

from api.qos import PriorityBand, QoSClass
from koordlet.identity.pod_lookup import (
    band_with_default,
    full_name,
    pod_key,
    pod_of,
    qos_with_default,
)
from koordlet.identity.pods import PodContainer, PodFacts, PodTable
from tests.koordlet.kube.test_verdict_entries import BATCH, WEB, cgroup


def test_a_static_pod_is_known_by_the_uid_of_its_cgroups() -> None:
    table = PodTable([PodFacts("shop/etcd-n1", uid="9" * 36, cgroup_uid="ab" * 16)], generation=1)
    assert pod_key(table, f"/kubepods/pod{'ab' * 16}") == "shop/etcd-n1"
    assert pod_key(table, f"/kubepods/pod{'ab' * 16}/{'c' * 64}/made/inside") == "shop/etcd-n1"
    assert pod_of(PodTable(generation=2), f"/kubepods/pod{'ab' * 16}/x") is None


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
