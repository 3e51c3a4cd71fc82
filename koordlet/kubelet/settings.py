"""Settings of [kubelet]: where pods, containers and the kubelet's configuration are read."""

from typing import Annotated, Literal

import msgspec

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class KubeletSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[kubelet]: sources of pods. Sockets and directories are those of the host, below `root`; tokens and certificates
    are files of the agent."""

    pods_from: Literal["auto", "kubelet", "apiserver"] = "auto"
    """`kubelet`, `apiserver` (a watch of this node's pods), or `auto`: the kubelet, and the API server while the
    kubelet cannot be asked."""
    endpoint: str = ""
    """Address of the kubelet; where empty, https://127.0.0.1:10250, then the node's InternalIP."""
    server_name: str = ""
    """Name that the kubelet's certificate must have; where empty, the node's name or the host of the endpoint."""
    token_file: str = f"{SERVICE_ACCOUNT}/token"
    """Bearer token, read for each request because it rotates; not used where the file is missing."""
    ca_file: str = ""
    """Authority of the kubelet's certificate; where empty, that of the service account, then those of the system."""
    client_certificate: str = ""
    """PEM file of a client certificate, in place of the token."""
    client_key: str = ""
    """PEM file of its key."""
    insecure_tls: bool = False
    """Accept any certificate of the kubelet: any process that holds the port then gets the token."""
    read_only_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """Port of the kubelet without TLS and authorization (10255 where it is enabled); 0 does not use it."""
    cri: bool = True
    """Ask the container runtime for containers and their cgroups."""
    cri_socket: str = ""
    """Socket of the container runtime; where empty, as the kubelet's configuration says, then the usual places."""
    pod_resources: bool = True
    """Ask the kubelet which CPUs, memory and devices containers have for themselves."""
    pod_resources_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    root_directory: str = "/var/lib/kubelet"
    """Directory of the kubelet, where its config.yaml is looked for."""
    relist_seconds: Annotated[float, msgspec.Meta(ge=1, le=600)] = 10.0
    """Time between two full reads; changes of containers are read at once."""
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 5.0
    """Longest wait for one answer."""
