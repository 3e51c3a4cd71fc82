"""Names of cgroups by the layouts of systemd, docker, containerd, cri-o, podman and the kubelet. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from api.frame import CgroupKind
from api.qos import QoSClass

_RUNTIME_SCOPE = re.compile(
    r"^(?P<runtime>docker|cri-containerd|crio|libpod|nerdctl|pouch)-(?P<id>[0-9a-f]{12,64})\.scope$"
)
_HEX_ID = re.compile(r"^[0-9a-f]{64}$")
_POD = re.compile(r"pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})")
_QOS_PARENTS = ("/kubepods/burstable", "/kubepods/besteffort")
_UNIT_SUFFIXES = (".service", ".scope", ".slice", ".socket", ".mount")


@dataclass(frozen=True, slots=True)
class CgroupName:
    """Kind, name and pod of a cgroup by its path."""

    kind: CgroupKind
    name: str
    pod_uid: str = ""
    container_id: str = ""
    kube_qos: str = ""
    """Kubernetes QoS class that the path implies: Guaranteed, Burstable, BestEffort or empty."""


@dataclass(frozen=True, slots=True)
class QoSRule:
    """A settings rule: cgroup paths or names that match a glob belong to a class."""

    match: str
    qos: QoSClass


def name_cgroup(path: str) -> CgroupName:
    """Recognise a path under the cpu hierarchy; unknown layouts are `plain` with their last component."""
    if path == "/":
        return CgroupName(CgroupKind.ROOT, "/")
    last = path.rpartition("/")[2]
    pod = _POD.search(path) if "kubepods" in path else None
    uid = pod.group("uid").replace("_", "-") if pod else ""
    kube_qos = _kube_qos(path) if "kubepods" in path else ""
    container = _container(path, last, in_pod=bool(pod))
    if container:
        return CgroupName(
            CgroupKind.CONTAINER, f"{uid[:8]}/{container[:12]}" if uid else container[:12], uid, container, kube_qos
        )
    if pod and _POD.search(last):
        return CgroupName(CgroupKind.POD, f"pod {uid[:8]}", uid, "", kube_qos)
    if "kubepods" in last:
        return CgroupName(CgroupKind.KUBEPODS, last.removesuffix(".slice"), kube_qos=kube_qos if "-" in last else "")
    if path.endswith(_QOS_PARENTS):
        return CgroupName(CgroupKind.KUBEPODS, f"kubepods-{last}", kube_qos=kube_qos)
    if last.endswith(_UNIT_SUFFIXES):
        return CgroupName(CgroupKind.UNIT, unescape_unit(last))
    return CgroupName(CgroupKind.PLAIN, last, uid)


def kind_at(path: str, known: Mapping[str, CgroupKind]) -> CgroupKind:
    """Return the kind of a cgroup: as known, or by its path where it came after the newest frame."""
    return known.get(path) or name_cgroup(path).kind


def _container(path: str, last: str, *, in_pod: bool) -> str:
    scope = _RUNTIME_SCOPE.match(last)
    if scope:
        return scope.group("id")
    if _HEX_ID.match(last) and (in_pod or re.search(r"/(docker|libpod_parent|containerd|default|k8s\.io)/", path)):
        return last
    if last.startswith("libpod-") and _HEX_ID.match(last.removeprefix("libpod-")):
        return last.removeprefix("libpod-")
    return ""


def _kube_qos(path: str) -> str:
    if "besteffort" in path:
        return "BestEffort"
    if "burstable" in path:
        return "Burstable"
    return "Guaranteed"


def unescape_unit(unit: str) -> str:
    """Undo systemd's `\\xNN` escapes in a unit name; a broken escape is left as it is."""
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda match: chr(int(match.group(1), 16)), unit)


def qos_of(path: str, name: CgroupName, rules: tuple[QoSRule, ...]) -> QoSClass:
    """Return the class of a cgroup: that of the first rule for its path or name, else what the layout implies.

    Without a label a Guaranteed pod counts as LSR, a Burstable one as LS, a BestEffort one as BE (Koordinator's
    defaults).
    """
    for rule in rules:
        if fnmatchcase(path, rule.match) or fnmatchcase(name.name, rule.match):
            return rule.qos
    return {"Guaranteed": QoSClass.LSR, "Burstable": QoSClass.LS, "BestEffort": QoSClass.BE}.get(
        name.kube_qos, QoSClass.NONE
    )


def printable(text: str) -> str:
    """Escape a hostile name for terminals and labels: control and undecodable characters become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
