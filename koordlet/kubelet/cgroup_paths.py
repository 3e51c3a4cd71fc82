"""Paths of the cgroups that the kubelet and the runtime make, below the mount of any hierarchy. Pure.

The kubelet composes a name of parts: cgroup root, `kubepods`, QoS class, `pod<uid>`. With the cgroupfs driver each part
is a directory; with the systemd driver the parts make the name of a slice, whose prefixes are its parents. A runtime
puts a container directly into its pod's cgroup.
"""

import re

from koordlet.kubelet.configuration import KubeletConfig

KUBEPODS = "kubepods"
_UID = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,62}[0-9A-Za-z])?")
_ID = re.compile(r"[0-9a-f]{12,64}")
_QOS_PARTS = {"Guaranteed": (), "Burstable": ("burstable",), "BestEffort": ("besteffort",)}


def kubepods_path(config: KubeletConfig) -> str:
    """Return the path of the cgroup above all pods."""
    return _path(config, KUBEPODS)


def qos_path(config: KubeletConfig, kube_qos: str) -> str:
    """Return the path of the parent of pods of a Kubernetes QoS class; empty for an unknown class."""
    parts = _QOS_PARTS.get(kube_qos)
    return "" if parts is None else _path(config, KUBEPODS, *parts)


def pod_path(config: KubeletConfig, kube_qos: str, cgroup_uid: str) -> str:
    """Return the path of a pod's cgroup; empty where the class or the uid is no valid one, or pods have no cgroups."""
    parts = _QOS_PARTS.get(kube_qos)
    if parts is None or not config.cgroups_per_qos or not _UID.fullmatch(cgroup_uid):
        return ""
    return _path(config, KUBEPODS, *parts, f"pod{cgroup_uid}")


def container_path(pod: str, runtime: str, config: KubeletConfig, container_id: str) -> str:
    """Return the path that a runtime (`containerd`, `cri-o`, `docker`) gives a container below its pod's; empty for
    another runtime or id."""
    if not pod or not _ID.fullmatch(container_id):
        return ""
    if config.cgroup_driver == "systemd":
        prefix = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}.get(runtime)
        return f"{pod}/{prefix}-{container_id}.scope" if prefix else ""
    prefix = {"containerd": "", "cri-o": "crio-", "docker": ""}.get(runtime)
    return "" if prefix is None else f"{pod}/{prefix}{container_id}"


def path_of_spec(cgroups_path: str) -> str:
    """Return the path that `linux.cgroupsPath` of a runtime spec stands for: a plain path, or `slice:prefix:name` for
    systemd (runc's convention); empty where it is neither."""
    slice_name, colon, rest = cgroups_path.partition(":")
    if not colon:
        return cgroups_path if cgroups_path.startswith("/") and _is_plain(cgroups_path) else ""
    prefix, colon, name = rest.partition(":")
    parent = expanded_slice(slice_name) if slice_name else "/system.slice"
    if not colon or not parent or not name or "/" in name:
        return ""
    unit = name if name.endswith(".slice") else f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
    return f"{parent.rstrip('/')}/{unit}"


def expanded_slice(name: str) -> str:
    """Return the path of a slice: `a-b.slice` is `/a.slice/a-b.slice`; empty for what is no name of a slice."""
    if name == "-.slice":
        return "/"
    stem = name.removesuffix(".slice")
    parts = stem.split("-")
    if stem == name or "/" in name or not all(parts):
        return ""
    return "".join(f"/{'-'.join(parts[: end + 1])}.slice" for end in range(len(parts)))


def _path(config: KubeletConfig, *parts: str) -> str:
    names = [*filter(None, config.cgroup_root.split("/")), *parts]
    if config.cgroup_driver == "systemd":
        return expanded_slice("-".join(each.replace("-", "_") for each in names) + ".slice")
    return "/" + "/".join(names)


def _is_plain(path: str) -> bool:
    return not any(part in ("", ".", "..") for part in path.split("/")[1:])
