"""Names of cgroups by the layouts of systemd, docker, containerd, cri-o, podman and the kubelet. Pure.

A directory's name says what its maker chose. The layouts of the kubelet and of the runtimes are believed at the places
where these make their cgroups, and only where no other user owns a directory on the way (`delegated`).
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from api.cgroup_path import ancestors
from api.frame import CgroupKind
from api.qos import QoSClass

_RUNTIME_SCOPE = re.compile(
    r"^(?P<runtime>docker|cri-containerd|crio|libpod|nerdctl|pouch)-(?P<id>[0-9a-f]{12,64})(?:\.scope)?$"
)
_HEX_ID = re.compile(r"^[0-9a-f]{64}$")
_RUNTIME_DIRECTORY = re.compile(r"^/(?:docker|libpod_parent|containerd|default|k8s\.io)/[^/]+$")
_UID = r"pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_POD = re.compile(_UID)
_KUBE_QOS = {"burstable": "Burstable", "besteffort": "BestEffort"}
_UNIT_SUFFIXES = (".service", ".scope", ".slice", ".socket", ".mount")
_SLICE = ".slice"

KUBEPODS = ("/kubepods", "/kubepods.slice")
"""The kubelet's directories where its `cgroupRoot` is not set, by its drivers cgroupfs and systemd."""


@dataclass(frozen=True, slots=True)
class CgroupName:
    """Kind, name and pod of a cgroup by its path."""

    kind: CgroupKind
    name: str
    pod_uid: str = ""
    container_id: str = ""
    """Of a container, or of the one that the cgroup lies in."""
    kube_qos: str = ""
    """Kubernetes QoS class that the path implies: Guaranteed, Burstable, BestEffort or empty."""
    inside: str = ""
    """Path below the container (or the pod) that a plain cgroup lies in."""


@dataclass(frozen=True, slots=True)
class QoSRule:
    """A settings rule: cgroup paths or names that match a glob belong to a class."""

    match: str
    qos: QoSClass


def name_cgroup(path: str, *, kubepods: Collection[str] = KUBEPODS, delegated: bool = False) -> CgroupName:
    """Recognise a path under the cpu hierarchy; unknown layouts are `plain` with their last component.

    `kubepods` are the kubelet's directories above all pods. A `delegated` cgroup, which a user made, is no pod and no
    container, whatever its name says.
    """
    if path == "/":
        return CgroupName(CgroupKind.ROOT, "/")
    last = path.rpartition("/")[2]
    if not delegated:
        found = _in_kubepods(path, kubepods) or _container(path, last)
        if found is not None:
            return found
    if last.endswith(_UNIT_SUFFIXES):
        return CgroupName(CgroupKind.UNIT, unescape_unit(last))
    return CgroupName(CgroupKind.PLAIN, last)


def kind_at(path: str, known: Mapping[str, CgroupKind]) -> CgroupKind:
    """Return the kind of a cgroup: as known, or by its path where it came after the newest frame."""
    return known.get(path) or name_cgroup(path).kind


def kubepods_of(pod_path: str) -> str:
    """Return the kubelet's directory above all pods, from the path of one of its pods; empty where it has none."""
    for above in ancestors(pod_path):
        last = above.rpartition("/")[2].removesuffix(_SLICE)
        if last == "kubepods" or last.endswith("-kubepods"):
            return above
    return ""


def kube_qos_at(pod_path: str) -> str:
    """Return the Kubernetes class that the directory of a pod lies in; empty outside the kubelet's directories."""
    directory = kubepods_of(pod_path)
    return _class_of(directory, pod_path[len(directory) + 1 :].split("/")[0])[1] if directory else ""


def _class_of(directory: str, name: str) -> tuple[str, str]:
    """Return the word for a class in the kubelet's names, none for a pod beside the directories of classes, and the
    class."""
    for word, kube_qos in _KUBE_QOS.items():
        if name == (f"{_stem(directory)}-{word}{_SLICE}" if directory.endswith(_SLICE) else word):
            return word, kube_qos
    return "", "Guaranteed"


def _in_kubepods(path: str, kubepods: Collection[str]) -> CgroupName | None:
    for directory in kubepods:
        if path == directory:
            return CgroupName(CgroupKind.KUBEPODS, _stem(directory))
        if path.startswith(f"{directory}/"):
            return _below_kubepods(directory, path[len(directory) + 1 :].split("/"))
    return None


def _below_kubepods(directory: str, names: list[str]) -> CgroupName:
    """Recognise the directories of a class, of a pod, of a container and those inside, each by its exact name."""
    is_systemd = directory.endswith(_SLICE)
    base, last = _stem(directory), names[-1]
    plain = CgroupName(CgroupKind.PLAIN, last)
    word, kube_qos = _class_of(directory, names[0])
    if word:
        base, names = f"{base}-{word}", names[1:]
    if not names:
        return CgroupName(CgroupKind.KUBEPODS, base, kube_qos=kube_qos)
    own = names[0].removeprefix(f"{base}-").removesuffix(_SLICE) if is_systemd else names[0]
    pod = _POD.fullmatch(own)
    if pod is None or (is_systemd and names[0] != f"{base}-{own}{_SLICE}"):
        return plain
    uid = pod.group("uid").replace("_", "-")
    if len(names) == 1:
        return CgroupName(CgroupKind.POD, f"pod {uid[:8]}", uid, kube_qos=kube_qos)
    container = _container_id(names[1])
    if container and len(names) == 2:
        return CgroupName(CgroupKind.CONTAINER, f"{uid[:8]}/{container[:12]}", uid, container, kube_qos)
    inside = names[2:] if container else names[1:]
    return CgroupName(CgroupKind.PLAIN, last, uid, container, kube_qos, "/".join(inside))


def _container(path: str, last: str) -> CgroupName | None:
    """Recognise a container outside pods: a runtime's scope, or a runtime's directory below the root."""
    scope = _RUNTIME_SCOPE.match(last)
    is_scope = scope is not None and (last.endswith(".scope") or scope.group("runtime") == "libpod")
    container = _container_id(last) if is_scope or _RUNTIME_DIRECTORY.match(path) else ""
    return CgroupName(CgroupKind.CONTAINER, container[:12], container_id=container) if container else None


def _container_id(name: str) -> str:
    scope = _RUNTIME_SCOPE.match(name)
    if scope:
        return scope.group("id")
    return name if _HEX_ID.match(name) else ""


def _stem(directory: str) -> str:
    return directory.rpartition("/")[2].removesuffix(_SLICE)


def unescape_unit(unit: str) -> str:
    """Undo systemd's `\\xNN` escapes in a unit name, which a path's text form doubles; a broken one stays as it is."""
    return re.sub(r"\\\\x([0-9a-fA-F]{2})", lambda match: chr(int(match.group(1), 16)), unit)
