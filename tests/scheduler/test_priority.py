"""QoS class and priority band with their defaults."""

from typing import Any

import pytest

from api.qos import PriorityBand, QoSClass
from scheduler.priority import band_of, kube_qos, qos_of
from tests.schedobjects import pod

QOS = "koordinator.sh/qosClass"
CLASS = "koordinator.sh/priority-class"
EXACT = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
UNEQUAL = {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}


@pytest.mark.parametrize(
    ("fields", "kube", "qos"),
    [
        pytest.param({"container": EXACT}, "Guaranteed", QoSClass.LSR, id="guaranteed"),
        pytest.param({"container": UNEQUAL}, "Burstable", QoSClass.LS, id="request below limit"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", QoSClass.LS, id="only requests"),
        pytest.param({"requests": {"cpu": 0}}, "BestEffort", QoSClass.BE, id="zero is nothing"),
        pytest.param({"requests": {"nvidia.com/gpu": 1}}, "BestEffort", QoSClass.BE, id="devices do not count"),
        pytest.param({"labels": {QOS: "LSE"}}, "BestEffort", QoSClass.LSE, id="label"),
        pytest.param({"labels": {QOS: "lse"}}, "BestEffort", QoSClass.BE, id="labels are case-sensitive"),
        pytest.param({"status": {"qosClass": "Burstable"}}, "BestEffort", QoSClass.LS, id="status"),
    ],
)
def test_qos(fields: dict[str, Any], kube: str, qos: QoSClass) -> None:
    made = pod("p", **fields)
    assert kube_qos(made) == kube
    assert qos_of(made) is qos


@pytest.mark.parametrize(
    ("fields", "band"),
    [
        pytest.param({"labels": {CLASS: "koord-mid"}, "priority": 9500}, PriorityBand.MID, id="label first"),
        pytest.param({"labels": {CLASS: "x", QOS: "LS"}, "priority": 5500}, PriorityBand.PROD, id="unknown label"),
        pytest.param({"priority": 5500}, PriorityBand.BATCH, id="priority"),
        pytest.param({"priority": 4500, "requests": {"cpu": "1"}}, PriorityBand.PROD, id="in a gap, burstable"),
        pytest.param({}, PriorityBand.BATCH, id="best effort"),
        pytest.param({"labels": {QOS: "SYSTEM"}}, PriorityBand.PROD, id="system"),
    ],
)
def test_band(fields: dict[str, Any], band: PriorityBand) -> None:
    assert band_of(pod("p", **fields)) is band
