"""Display names of cgroups, different for each of them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

from api.frame import CgroupInfo, CgroupKind

_PODS = (CgroupKind.POD, CgroupKind.CONTAINER)


def display_names(living: Iterable[CgroupInfo], earlier: Iterable[CgroupInfo] = ()) -> Mapping[str, str]:
    """Return names by path: the path itself where two cgroups share the name, or a container's with its id.

    A pod or container that lives keeps its name where one of the `earlier` ones, which are gone, had it.
    """
    present = {info.path: info for info in living}
    past = {info.path: info for info in earlier if info.path not in present}
    now, then = (Counter(info.name for info in infos.values()) for infos in (present, past))
    names = {}
    for infos, is_past in ((past, True), (present, False)):
        for path, info in infos.items():
            others = now[info.name] + then[info.name] - 1
            if not is_past and info.kind in _PODS:
                others -= then[info.name]
            names[path] = info.name if others == 0 else _told_apart(info)
    return names


def owner_of(info: CgroupInfo) -> str:
    """Return `Kind name` of the owner of a cgroup's pod; empty outside pods and for a pod without owner."""
    kind, _, rest = info.workload.partition("/")
    name = rest.partition("/")[2]
    return f"{kind} {name}" if info.pod and name else ""


def _told_apart(info: CgroupInfo) -> str:
    return f"{info.name} [{info.container_id[:12]}]" if info.container_id and info.pod else info.path
