"""Client of the kubelet's pod resources socket: CPUs, memory and devices that containers have for themselves."""

from collections.abc import Mapping
from pathlib import Path

import grpc

from api.plugin import Unsupported
from koordlet.identity.pods import Assigned
from koordlet.kubelet import pod_resources_pb2 as pb
from koordlet.kubelet.cri import open_channel

METHOD = "/v1.PodResourcesLister/List"


class PodResourcesUnavailable(Unsupported):
    """The socket does not answer; reason and remedy say why and what mends it."""


class PodResourcesClient:
    """Client of one kubelet."""

    def __init__(self, socket: Path, timeout_seconds: float) -> None:
        self.requests = 0
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._channel = open_channel(socket)
        self._list = self._channel.unary_unary(
            METHOD, pb.ListPodResourcesRequest.SerializeToString, pb.ListPodResourcesResponse.FromString
        )

    def assigned(self) -> Mapping[tuple[str, str], Assigned]:
        """Return what each container has, by `namespace/pod` and container. Raises PodResourcesUnavailable."""
        self.requests += 1
        try:
            answer = self._list(pb.ListPodResourcesRequest(), timeout=self._timeout_seconds)
        except (grpc.RpcError, ValueError) as error:
            words = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.RpcError) else str(error)
            raise PodResourcesUnavailable(
                f"pod resources at {self._socket}: {words}",
                "mount the kubelet's pod-resources directory, or set [kubelet] pod_resources_socket",
            ) from error
        found = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                if container.cpu_ids or container.memory or container.devices:
                    found[f"{pod.namespace}/{pod.name}", container.name] = _assigned(container)
        return found

    def close(self) -> None:
        """End the connection."""
        self._channel.close()


def _assigned(message: pb.ContainerResources) -> Assigned:
    devices: dict[str, tuple[str, ...]] = {}
    for each in message.devices:
        devices[each.resource_name] = (*devices.get(each.resource_name, ()), *each.device_ids)
    return Assigned(
        cpus=tuple(sorted(message.cpu_ids)),
        memory=tuple(
            (each.memory_type, each.size, tuple(node.ID for node in each.topology.nodes)) for each in message.memory
        ),
        devices=devices,
    )
