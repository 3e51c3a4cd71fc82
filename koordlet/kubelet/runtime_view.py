"""What the container runtime says of the node: its sandboxes and containers, and where their cgroups are. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    ended: bool = False
    """It ran, and will not again: a restart makes another one."""


@dataclass(frozen=True, slots=True)
class RuntimeView:
    """Answers of the runtime at one moment."""

    runtime: str
    """Its name: `containerd`, `cri-o`, `docker`."""
    sandboxes: tuple[RuntimeSandbox, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """One pod as the runtime tells it with a change of one of its containers."""

    sandbox: RuntimeSandbox | None = None
    """None where the runtime tells the id of what changed alone."""
    containers: tuple[RuntimeContainer, ...] = ()
    """All containers of the pod that the runtime has."""
    deleted: str = ""
    """Id of the container or sandbox that the runtime has no more."""

    @property
    def tells(self) -> bool:
        """Whether it says more than that something changed."""
        return self.sandbox is not None or bool(self.deleted)


def follow(view: RuntimeView, event: RuntimeEvent) -> RuntimeView:
    """Return the view after an event; what the event does not speak of stays.

    What ended stays so: an event may come later than the list that is newer than it.
    """
    sandbox = event.sandbox
    ended = {each.id for each in view.containers if each.ended}
    told = {each.id for each in event.containers} - ended
    sandboxes = [each for each in view.sandboxes if each.id not in {event.deleted, sandbox.id if sandbox else ""}]
    gone = told | {event.deleted}
    containers = [each for each in view.containers if each.id not in gone and each.sandbox_id != event.deleted]
    if sandbox is not None and sandbox.id != event.deleted:
        sandboxes.append(sandbox)
        containers += (each for each in event.containers if each.id in told - {event.deleted})
    return replace(view, sandboxes=tuple(sandboxes), containers=tuple(containers))


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
