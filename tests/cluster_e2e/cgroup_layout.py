"""Where the kubelet's cgroups are: both cgroup drivers, both versions.

The driver is `KOORD_CGROUP_DRIVER`: `cgroupfs`, or `systemd` where systemd is the first process.
"""

import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
DRIVER = os.environ.get("KOORD_CGROUP_DRIVER", "cgroupfs")
IS_SYSTEMD = DRIVER == "systemd"
TOP = "kubepods.slice" if IS_SYSTEMD else "kubepods"
BEST_EFFORT = f"/{TOP}/kubepods-besteffort.slice" if IS_SYSTEMD else f"/{TOP}/besteffort"


def pod_path(uid: str, qos_class: str) -> str:
    """Return the path of a pod's cgroup; `qos_class` is as in a pod's status."""
    directory = "" if qos_class == "Guaranteed" else qos_class.lower()
    if not IS_SYSTEMD:
        return "/".join(("/kubepods", *filter(None, (directory,)), f"pod{uid}"))
    parent = f"kubepods-{directory}" if directory else "kubepods"
    above = f"/{parent}.slice" if directory else ""
    return f"/kubepods.slice{above}/{parent}-pod{uid.replace('-', '_')}.slice"


def cgroup_parent(path: str) -> str:
    """Return what a runtime with this driver is told for the cgroup of a pod: by systemd the name of a slice."""
    return f"{path.strip('/').replace('/', '-')}.slice" if IS_SYSTEMD else path


def container_name(identifier: str) -> str:
    """Return the name of a container's cgroup."""
    return f"cri-containerd-{identifier}.scope" if IS_SYSTEMD else identifier


def pod_part(uid: str) -> str:
    """Return what the paths of a pod's cgroups, and no others, contain."""
    return f"pod{uid.replace('-', '_')}" if IS_SYSTEMD else f"pod{uid}"


def tops() -> list[Path]:
    """Return the kubelet's top directory, in every hierarchy."""
    return [path for path in (ROOT / TOP, *(each / TOP for each in ROOT.iterdir())) if path.is_dir()]


def processes_of(container: str) -> list[int]:
    """Return the processes of a container."""
    for top in tops():
        for found in top.rglob(f"{container_name(container)}/cgroup.procs"):
            return [int(pid) for pid in found.read_text().split()]
    return []
