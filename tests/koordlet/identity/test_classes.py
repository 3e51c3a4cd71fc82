"""QoS classes: settings before labels and priorities, these before Kubernetes' own classes."""

import pytest

from api.protocol import LABEL_PRIORITY_CLASS
from api.qos import PriorityBand, QoSClass, QoSSource
from koordlet.identity.cgroup_names import QoSRule
from koordlet.identity.classes import layout_class, pod_band, pod_class, rule_class
from koordlet.identity.pods import PodFacts

CRITICAL = 2_000_001_000


@pytest.mark.parametrize(
    ("pod", "qos", "source"),
    [
        pytest.param(PodFacts("a/b", QoSClass.LS, kube_qos="BestEffort"), "LS", "label", id="label"),
        pytest.param(PodFacts("a/b", QoSClass.BE, kube_qos="Guaranteed"), "BE", "label", id="label-below"),
        pytest.param(PodFacts("a/b", kube_qos="Guaranteed"), "LSR", "kubernetes", id="guaranteed"),
        pytest.param(PodFacts("a/b", kube_qos="Burstable"), "LS", "kubernetes", id="burstable"),
        pytest.param(PodFacts("a/b", kube_qos="BestEffort"), "BE", "kubernetes", id="best-effort"),
        pytest.param(PodFacts("a/b", priority=9100, kube_qos="Guaranteed"), "LSR", "kubernetes", id="prod"),
        pytest.param(PodFacts("a/b", priority=CRITICAL, kube_qos="BestEffort"), "SYSTEM", "priority", id="critical"),
        pytest.param(PodFacts("a/b", QoSClass.BE, CRITICAL), "SYSTEM", "priority", id="critical-with-label"),
        pytest.param(PodFacts("a/b", static=True, kube_qos="Burstable"), "SYSTEM", "priority", id="static"),
        pytest.param(PodFacts("a/b"), "LS", "kubernetes", id="by-the-path"),
    ],
)
def test_class_of_a_pod(pod: PodFacts, qos: str, source: str) -> None:
    found = pod_class(pod, "Burstable")
    assert (found.qos, found.source) == (qos, source)


@pytest.mark.parametrize(
    ("labels", "priority", "band"),
    [
        pytest.param({}, 9500, PriorityBand.PROD, id="by-number"),
        pytest.param({}, 4500, PriorityBand.NONE, id="in-a-gap"),
        pytest.param({}, None, PriorityBand.NONE, id="unknown"),
        pytest.param({LABEL_PRIORITY_CLASS: "koord-free"}, 9500, PriorityBand.FREE, id="by-label"),
        pytest.param({LABEL_PRIORITY_CLASS: "koord-typo"}, 9500, PriorityBand.NONE, id="unknown-label"),
    ],
)
def test_band_of_a_pod(labels: dict[str, str], priority: int | None, band: PriorityBand) -> None:
    assert pod_band(PodFacts("a/b", labels=labels, priority=priority)) is band


def test_the_first_rule_that_matches_wins() -> None:
    rules = (QoSRule("/batch/*", QoSClass.BE), QoSRule("nginx.service", QoSClass.LS), QoSRule("shop/*", QoSClass.LSR))
    assert rule_class("/batch/job-7", "job-7", rules).qos is QoSClass.BE
    assert rule_class("/system.slice/nginx.service", "nginx.service", rules).qos is QoSClass.LS
    assert rule_class("/x", "shop/web/app", rules).source is QoSSource.SETTINGS
    assert rule_class("/user.slice/nginx.service", "", rules).qos is QoSClass.NONE


def test_the_kubelets_root_directory_has_no_class() -> None:
    assert layout_class("").source is QoSSource.NONE


@pytest.mark.parametrize(
    ("labelled", "kube_qos", "expected"),
    [
        pytest.param("SYSTEM", "Burstable", "LS", id="system-takes-a-critical-priority"),
        pytest.param("SYSTEM", "BestEffort", "BE", id="system-best-effort"),
        pytest.param("LSE", "BestEffort", "BE", id="lse-takes-requests"),
        pytest.param("LSR", "BestEffort", "BE", id="lsr-takes-requests"),
        pytest.param("LSR", "Burstable", "LSR", id="lsr"),
        pytest.param("LS", "BestEffort", "LS", id="ls-is-free"),
        pytest.param("BE", "Guaranteed", "BE", id="less-is-free"),
    ],
)
def test_a_label_gives_no_more_than_its_author_may_give(labelled: str, kube_qos: str, expected: str) -> None:
    assert pod_class(PodFacts("shop/web", QoSClass(labelled)), kube_qos).qos == QoSClass(expected)
    critical = PodFacts("shop/web", QoSClass(labelled), 2_000_001_000)
    assert pod_class(critical, kube_qos).qos is QoSClass.SYSTEM
