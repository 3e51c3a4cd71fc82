"""Use of GPUs by pod and container: processes to cgroups to pods."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from api.kube.device_use import DeviceSample, DeviceUse
from koordlet.devices.inventory import GPU_TYPE
from koordlet.devices.nvml import GpuUse, Nvml, ProcessUse
from koordlet.host.files import HostError, HostTree
from koordlet.identity.cgroup_names import KUBEPODS, name_cgroup

_CLIMB = re.compile(r"^(?:/\.\.)+")


@dataclass(frozen=True, slots=True)
class Owner:
    """Pod and container of a process."""

    pod_uid: str
    """Uid in the kubelet's cgroup names."""
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class GpuShare:
    """Use of one GPU by one pod or container."""

    minor: int
    core_percent: float
    memory_bytes: int

    @classmethod
    def of(cls, gpu: GpuUse) -> "GpuShare":
        """Return the use of a whole GPU as the share of the node."""
        return cls(gpu.minor, gpu.core_percent, gpu.memory_bytes)


Shares = Mapping[str, tuple[GpuShare, ...]]
"""Uid of a pod, or id of a container, to its use of each GPU by minor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """Use of the node's GPUs at one moment; what no pod uses is the difference to the whole."""

    gpus: tuple[GpuUse, ...] = ()
    pods: Shares = field(default_factory=dict)
    containers: Shares = field(default_factory=dict)


def read_usage(nvml: Nvml, tree: HostTree, kubepods: Collection[str] = KUBEPODS) -> GpuUsage:
    """Return the use at present; needs the host's pids, as a pod with hostPID has them.

    `kubepods` are the kubelet's directories above all pods.
    """
    return usage_of(nvml.use(), nvml.processes(), lambda pid: owner_of(tree, pid, kubepods))


def usage_of(
    gpus: Iterable[GpuUse], processes: Iterable[ProcessUse], owner_of_pid: Callable[[int], Owner | None]
) -> GpuUsage:
    """Return the use of each pod and container: the sum over its processes."""
    pods: dict[str, dict[int, GpuShare]] = {}
    containers: dict[str, dict[int, GpuShare]] = {}
    for process in processes:
        owner = owner_of_pid(process.pid)
        if owner is not None:
            _add(pods.setdefault(owner.pod_uid, {}), process)
            if owner.container_id:
                _add(containers.setdefault(owner.container_id, {}), process)
    return GpuUsage(gpus=tuple(gpus), pods=_sorted(pods), containers=_sorted(containers))


def device_use(usage: GpuUsage) -> DeviceUse:
    """Return the use as reports take it: by uid of the pod, and under the empty uid that of the node."""
    if not usage.gpus:
        return {}
    found = {"": _samples(map(GpuShare.of, usage.gpus), usage.gpus)}
    return found | {uid: _samples(shares, usage.gpus) for uid, shares in usage.pods.items()}


def _samples(shares: Iterable[GpuShare], gpus: Iterable[GpuUse]) -> list[DeviceSample]:
    by_minor = {gpu.minor: gpu for gpu in gpus}
    return [
        DeviceSample(GPU_TYPE, gpu.uuid, gpu.minor, share.core_percent, share.memory_bytes, gpu.total_bytes)
        for share in shares
        if (gpu := by_minor.get(share.minor))
    ]


def owner_of(tree: HostTree, pid: int, kubepods: Collection[str] = KUBEPODS) -> Owner | None:
    """Return the pod of a process by its cgroups; None outside pods and where the process is gone.

    A reader in a cgroup namespace of its own sees paths that climb to the root first: `/../../kubepods`.
    """
    try:
        text = tree.text(f"/proc/{pid}/cgroup") or ""
    except HostError:
        return None
    for line in text.splitlines():
        path = _CLIMB.sub("", line.split(":", 2)[-1]) or "/"
        name = name_cgroup(path, kubepods=kubepods)
        if name.pod_uid:
            return Owner(name.pod_uid, name.container_id)
    return None


def _add(shares: dict[int, GpuShare], process: ProcessUse) -> None:
    before = shares.get(process.minor, GpuShare(process.minor, 0.0, 0))
    shares[process.minor] = GpuShare(
        process.minor, before.core_percent + process.core_percent, before.memory_bytes + process.memory_bytes
    )


def _sorted(found: Mapping[str, Mapping[int, GpuShare]]) -> Shares:
    return {owner: tuple(shares[minor] for minor in sorted(shares)) for owner, shares in found.items()}
