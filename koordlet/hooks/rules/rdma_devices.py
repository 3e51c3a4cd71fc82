"""RDMA device nodes for containers."""

from typing import ClassVar

from api.protocol import ANNOTATION_DEVICE_ALLOCATED, RDMA
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources, DeviceNode
from koordlet.hooks.rule import Rule, RuleProblem
from koordlet.hooks.scheduled import devices, requests_any
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts

_NAMES = frozenset((RDMA,))


class RdmaDevices(Rule):
    """The device nodes of the NICs or virtual functions that the pod was given, and of the connection manager.

    Applies: containers that request RDMA of pods with the annotation device-allocated; all of them where the spec is
        not known
    Knobs: devices
    Source: Koordinator RDMADeviceInject
    """

    features: ClassVar = {"RDMADeviceInject": False}

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the device nodes of one container. Only functions that the node has found can be named."""
        given = devices(pod, "rdma")
        if not given or container.role is ContainerRole.SANDBOX or not requests_any(pod, container, _NAMES):
            return NOTHING
        nodes: list[DeviceNode] = list(node.rdma_nodes.get("", ()))
        for device in given:
            functions = device.extension.get("vfs") or [{"busID": device.id}]
            for function in functions if isinstance(functions, list) else [functions]:
                address = function.get("busID") if isinstance(function, dict) else None
                found = node.rdma_nodes.get(address or "none") if isinstance(address, str) else None
                if not found:
                    raise RuleProblem(f"{ANNOTATION_DEVICE_ALLOCATED}: no RDMA device {str(address)[:32]!r} here")
                nodes += found
        return ContainerResources(devices=tuple(nodes))
