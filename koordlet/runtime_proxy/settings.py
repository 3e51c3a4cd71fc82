"""Settings of koord-runtime-proxy, each a flag of the command, and of the agent as its hook server."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

DEFAULT_SOCKET = "/var/run/koord-runtimeproxy/runtimeproxy.sock"
DEFAULT_HOOK_DIRECTORY = "/etc/runtime/hookserver.d"
BACKENDS = {"Containerd": "/var/run/containerd/containerd.sock", "Docker": "/var/run/cri-dockerd.sock"}
"""Default sockets by backend mode; Docker is cri-dockerd."""


class ProxySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sockets, hook servers and time limits."""

    socket: str = DEFAULT_SOCKET
    """Socket on which the kubelet calls."""
    backend: str = BACKENDS["Containerd"]
    """Socket of the runtime."""
    image_backend: str = ""
    """Socket of the image service; that of the runtime where it is empty."""
    hook_directory: str = DEFAULT_HOOK_DIRECTORY
    """Directory of registration files."""
    hook_timeout_seconds: Annotated[float, Meta(gt=0, le=120)] = 2.0
    """Time that a hook server has for an answer, and at most half of the caller's own deadline."""
    drain_seconds: Annotated[float, Meta(ge=0, le=600)] = 15.0
    """Time that calls in flight have to end once the proxy is told to stop."""
    skip_label: str = "runtimeproxy.koordinator.sh/skip-hookserver"
    """Label of pods that are never put before hook servers."""
    skip_value: str = "true"
    """Value of that label."""


class HookServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[runtime_proxy]: the agent as hook server of koord-runtime-proxy (docs/runtime-proxy.md). Needs the `grpc` extra.

    An alternative to `[nri]`, for runtimes without NRI: a container is put before one of them, not both.
    """

    enabled: bool = False
    """Whether hooks are answered. Containers are changed only with `[enforcer] enabled`."""
    socket: str = "/var/run/koordlet/koordlet.sock"
    """Socket on which the proxy asks, below `root`."""
    registered_socket: str = ""
    """The same socket as the proxy sees it, where the agent runs in a container; empty is the same path."""
    directory: str = DEFAULT_HOOK_DIRECTORY
    """Directory below `root` that the registration file is written to; empty registers nothing."""
    failure_policy: Literal["Ignore", "Fail"] = "Ignore"
    """What the proxy does when the agent does not answer: `Ignore` goes on as the kubelet asked, `Fail` fails the call.
    """


def socket_of(endpoint: str) -> str:
    """Return the path of an endpoint, which may be written as the kubelet's `unix:///path`."""
    return endpoint.removeprefix("unix://").removeprefix("unix:")
