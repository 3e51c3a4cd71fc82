"""Resources as adjustments of a container, in the runtime's words. Pure."""

from api.cpuset import format_cpuset
from koordlet.hooks.resources import UNLIMITED, ContainerResources, weight_of_shares
from koordlet.nri.nri_pb2 import (
    ContainerAdjustment,
    ContainerUpdate,
    KeyValue,
    LinuxCPU,
    LinuxDevice,
    LinuxMemory,
    LinuxResources,
    Mount,
    OptionalFileMode,
    OptionalInt,
    OptionalInt64,
    OptionalUInt64,
)
from koordlet.strategies.cpuquota import PERIOD_US

_READ_WRITE = 0o666


def adjustment(resources: ContainerResources, present: LinuxResources, *, v1: bool) -> ContainerAdjustment | None:
    """Return the adjustment of a container that is created; None where there is nothing to adjust.

    `present` is what the kubelet asked for: a limit that it did not ask for needs no removal.
    """
    adjust = ContainerAdjustment()
    linux = linux_resources(resources, present, v1=v1)
    if linux is not None:
        adjust.linux.resources.CopyFrom(linux)
    if resources.oom_score_adj is not None:
        adjust.linux.oom_score_adj.CopyFrom(OptionalInt(value=resources.oom_score_adj))
    if resources.resctrl_group:
        adjust.linux.rdt.clos_id.value = resources.resctrl_group
    for device in resources.devices:
        adjust.linux.devices.append(
            LinuxDevice(
                path=device.path,
                type="c",
                major=device.major,
                minor=device.minor,
                file_mode=OptionalFileMode(value=_READ_WRITE),
            )
        )
    for mount in resources.mounts:
        options = ["rbind", "ro" if mount.read_only else "rw"]
        adjust.mounts.append(Mount(destination=mount.destination, type="bind", source=mount.source, options=options))
    for key, value in resources.env.items():
        adjust.env.append(KeyValue(key=key, value=value))
    return adjust if adjust.ByteSize() else None


def update(
    container_id: str, resources: ContainerResources, present: LinuxResources, *, v1: bool
) -> ContainerUpdate | None:
    """Return the change of what the kubelet asks for a running container; None where it stays as asked for."""
    linux = linux_resources(resources, present, v1=v1)
    if linux is None:
        return None
    changed = ContainerUpdate(container_id=container_id, ignore_failure=True)
    changed.linux.resources.CopyFrom(linux)
    return changed


def linux_resources(resources: ContainerResources, present: LinuxResources, *, v1: bool) -> LinuxResources | None:
    """Return CPU and memory; None where nothing is decided."""
    cpu, memory, unified = LinuxCPU(), LinuxMemory(), {}
    if resources.cpu_shares is not None:
        cpu.shares.CopyFrom(OptionalUInt64(value=resources.cpu_shares))
        if not v1:
            unified["cpu.weight"] = str(weight_of_shares(resources.cpu_shares))
    quota = resources.cpu_quota_us
    if quota is not None and (quota != UNLIMITED or present.cpu.quota.value > 0):
        cpu.quota.CopyFrom(OptionalInt64(value=quota))
        cpu.period.CopyFrom(OptionalUInt64(value=PERIOD_US))
    if resources.cpuset_cpus:
        cpu.cpus = format_cpuset(resources.cpuset_cpus)
    limit = resources.memory_limit_bytes
    if limit is not None and (limit != UNLIMITED or present.memory.limit.value > 0):
        memory.limit.CopyFrom(OptionalInt64(value=limit))
    found = LinuxResources(unified=unified)
    if cpu.ByteSize():
        found.cpu.CopyFrom(cpu)
    if memory.ByteSize():
        found.memory.CopyFrom(memory)
    return found if found.ByteSize() else None
