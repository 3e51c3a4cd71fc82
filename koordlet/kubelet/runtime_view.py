"""What the container runtime says of the node: its sandboxes and containers, and where their cgroups are. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from koordlet.kubelet.cgroup_paths import path_of_spec


@dataclass(frozen=True, slots=True)
class RuntimeSandbox:
    """Sandbox of a pod."""

    id: str
    uid: str
    """Uid of the pod at the kubelet: the config hash of a static one."""
    namespace: str
    pod: str
    attempt: int = 0
    ready: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """Instance of a container."""

    id: str
    sandbox_id: str
    name: str
    attempt: int = 0
    running: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeView:
    """Answers of the runtime at one moment."""

    runtime: str
    """Its name: `containerd`, `cri-o`, `docker`."""
    sandboxes: tuple[RuntimeSandbox, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()


class _Linux(msgspec.Struct, frozen=True, rename="camel"):
    cgroups_path: str = ""


class _Spec(msgspec.Struct, frozen=True):
    linux: _Linux | None = None


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    runtime_spec: _Spec | None = None


_INFOS = msgspec.json.Decoder(_Info)


def cgroup_path_of_info(info: Mapping[str, str]) -> str:
    """Return the cgroup that a verbose status names in its runtime spec; empty where it has none.

    containerd and CRI-O answer one key, `info`, with JSON; its layout is not part of the interface.
    """
    try:
        spec = _INFOS.decode(info.get("info", "")).runtime_spec
    except (ValueError, RecursionError):
        return ""
    return path_of_spec(spec.linux.cgroups_path) if spec and spec.linux else ""
