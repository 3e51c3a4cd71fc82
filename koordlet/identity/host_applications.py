"""Host applications of a NodeSLO: process groups on the node that are no pods, by the path of their cgroup. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.crds.node_slo import CgroupPath, HostApplication
from api.frame import CgroupInfo, CgroupKind
from api.qos import QoSClass

BASES = {"Kubepods": "Guaranteed", "KubepodsBurstable": "Burstable", "KubepodsBesteffort": "BestEffort"}
"""Base of a path to the Kubernetes class whose directory it is."""
_DEFAULT_PARENTS = {
    QoSClass.LSE: "host-latency-sensitive",
    QoSClass.LSR: "host-latency-sensitive",
    QoSClass.LS: "host-latency-sensitive",
    QoSClass.BE: "host-best-effort",
}


@dataclass(frozen=True, slots=True)
class HostApplicationGroup:
    """One application and the class that its cgroup gets."""

    name: str
    qos: QoSClass = QoSClass.NONE
    priority: str = ""
    """Name of its priority class."""


def kubepods_directories(cgroups: Iterable[CgroupInfo]) -> dict[str, str]:
    """Return the paths of the kubelet's directories by Kubernetes class; the one above the others is Guaranteed's."""
    found: dict[str, str] = {}
    for info in cgroups:
        if info.kind is CgroupKind.KUBEPODS:
            found.setdefault(info.kube_qos or "Guaranteed", info.path)
    return found


def host_application_paths(
    applications: Iterable[HostApplication], directories: Mapping[str, str]
) -> dict[str, HostApplicationGroup]:
    """Return the applications by the path of their cgroup.

    `directories` are those of `kubepods_directories`; an application below one that is absent has no path. A path that
    leaves its base, or is the base itself, is passed over: it would class cgroups that are not the application's.
    """
    found = {}
    for each in applications:
        qos = QoSClass(each.qos) if each.qos in set(QoSClass) else QoSClass.NONE
        path = _path(each, qos, directories)
        if path:
            found[path] = HostApplicationGroup(each.name, qos, each.priority)
    return found


def _path(application: HostApplication, qos: QoSClass, directories: Mapping[str, str]) -> str:
    place = application.cgroup_path
    if place is None:
        place = CgroupPath(parent_dir=_DEFAULT_PARENTS.get(qos, ""), relative_path=application.name)
    base = "" if place.base in (None, "CgroupRoot") else directories.get(BASES.get(place.base or "", ""), "")
    if place.base not in (None, "CgroupRoot") and not base:
        return ""
    parts = [part for text in (place.parent_dir, place.relative_path) for part in text.split("/") if part]
    if not parts or not {".", ".."}.isdisjoint(parts):
        return ""
    return "/".join((base.rstrip("/"), *parts))
