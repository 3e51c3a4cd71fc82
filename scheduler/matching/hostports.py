"""Host ports of pods, and which of them exclude each other."""

from dataclasses import dataclass

from api.kube.objects import Pod

ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container binds."""

    address: str
    protocol: str
    port: int

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether both cannot be bound on one node."""
        same = self.port == other.port and self.protocol == other.protocol
        return same and (self.address == other.address or ANY_ADDRESS in (self.address, other.address))


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of a pod's containers and sidecars."""
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    return tuple(
        HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )
