"""RDMA device nodes for containers."""

import json
from typing import Any

import pytest

from api.protocol import ANNOTATION_DEVICE_ALLOCATED
from koordlet.hooks.decide import HookRules
from koordlet.hooks.resources import DeviceNode
from koordlet.hooks.rules.rdma_devices import RdmaDevices
from koordlet.identity.pods import PodFacts
from tests.koordlet.hooks.facts import node, pod

CM = DeviceNode("/dev/infiniband/rdma_cm", 10, 58)
PF = DeviceNode("/dev/infiniband/uverbs0", 231, 192)
VF = DeviceNode("/dev/infiniband/uverbs1", 231, 193)
FACTS = node(rdma_nodes={"": (CM,), "0000:81:00.0": (PF,), "0000:81:00.2": (VF,)})


def with_nics(*given: dict[str, Any]) -> PodFacts:
    return pod(annotations={ANNOTATION_DEVICE_ALLOCATED: json.dumps({"rdma": list(given)})})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"minor": 0, "id": "0000:81:00.0"}, (CM, PF), id="whole-nic"),
        pytest.param(
            {"minor": 0, "id": "0000:81:00.0", "extension": {"vfs": [{"minor": 2, "busID": "0000:81:00.2"}]}},
            (CM, VF),
            id="virtual-function",
        ),
    ],
)
def test_containers_get_the_nodes_of_what_was_given(given: dict[str, Any], expected: tuple[DeviceNode, ...]) -> None:
    of = with_nics(given)
    assert RdmaDevices().container(of, of.containers[0], FACTS).devices == expected


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"minor": 0, "id": "../../etc"}, id="path"),
        pytest.param({"minor": 0, "id": ""}, id="empty"),
        pytest.param({"minor": 0, "extension": {"vfs": "all"}}, id="no-list"),
        pytest.param({"minor": 0, "extension": {"vfs": [7]}}, id="no-object"),
    ],
)
def test_only_devices_of_the_node_can_be_named(given: dict[str, Any]) -> None:
    of = with_nics(given)
    decided = HookRules({"RDMADeviceInject": True}).container(of, of.containers[0], FACTS)
    assert decided.resources.devices == ()
    assert "no RDMA device" in decided.problems["default/web/main/rdma_devices"]
