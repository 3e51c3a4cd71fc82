"""The node's Device object at a real API server: it says what device files say, and stays without the agent."""

import json
from pathlib import Path

import pytest

from api.crds import DEVICE, definition_document
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from cluster import CUSTOM_RESOURCE_DEFINITIONS, Document, Key, custom
from tests.cluster_e2e.agent import agent_running
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import install
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

SETTINGS = """
[devices]
report = true
gpus = false
rdma = false
fpgas = false
interval_seconds = 1.0
xpu_directory = "{folder}"
"""
COUNT = 8


def write_devices(folder: Path, ill: frozenset[int] = frozenset()) -> None:
    """Write the file of a vendor's tool: eight accelerators of 8 GiB on two NUMA nodes."""
    infos = [
        {
            "vendor": "acme",
            "model": "A1",
            "uuid": f"XPU-{minor}",
            "minor": str(minor),
            "resources": {"gpu-core": "100", "gpu-memory": "8Gi", "koordinator.sh/gpu-memory-ratio": "100"},
            "topology": {
                "socketID": str(minor // 4),
                "nodeID": str(minor // 4),
                "pcieID": f"pci0000:{minor // 2:02x}",
                "busID": f"0000:{minor:02x}:00.0",
            },
            "status": {"healthy": minor not in ill, "errCode": "E7" if minor in ill else ""},
        }
        for minor in range(COUNT)
    ]
    partial = folder / ".acme.json"
    partial.write_text(json.dumps(infos))
    partial.rename(folder / "acme.json")


def devices_of(node: Node) -> list[Document]:
    """The devices in the node's object, by minor; empty before there is one."""
    found = node.client.find(custom(DEVICE).of(dict), Key("", node.name)) or {}
    return sorted(found.get("spec", {}).get("devices", []), key=lambda each: int(each.get("minor", 0)))


def test_accelerators_are_told_to_the_scheduler_and_so_is_their_health(node: Node, tmp_path: Path) -> None:
    document = definition_document(DEVICE)
    if node.client.find(CUSTOM_RESOURCE_DEFINITIONS, Key("", document["metadata"]["name"])) is None:
        node.client.create(CUSTOM_RESOURCE_DEFINITIONS, document)
    install(node.client, node.name)
    files = tmp_path / "xpu"
    files.mkdir()
    write_devices(files)
    with agent_running(node, tmp_path, more=SETTINGS.format(folder=files)) as agent:
        found = wait_for(lambda: devices_of(node), 120, check=agent.check, interval_seconds=0.5)
        assert [(each["type"], each["id"], each["health"]) for each in found] == [
            ("gpu", f"XPU-{minor}", True) for minor in range(COUNT)
        ]
        for minor, each in enumerate(found):
            assert each["resources"] == {GPU_CORE: "100", GPU_MEMORY: "8Gi", GPU_MEMORY_RATIO: "100"}
            assert each["topology"]["nodeID"] == minor // 4
        write_devices(files, ill=frozenset((3,)))
        wait_for(lambda: ill_of(node) == ["XPU-3"], 60, check=agent.check, interval_seconds=0.5)
    assert len(devices_of(node)) == COUNT


def ill_of(node: Node) -> list[str]:
    """Ids of the devices that are told to be ill."""
    return [each["id"] for each in devices_of(node) if not each["health"]]
