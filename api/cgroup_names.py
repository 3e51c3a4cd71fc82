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


class DisplayNames:
    """The names of `display_names` as cgroups come and go: each change and each name is one step, whatever came before.

    `came`, `went` and `forgot` follow one cgroup; of two that had one path the newer counts.
    """

    def __init__(self) -> None:
        self._living: dict[str, CgroupInfo] = {}
        self._past: dict[str, CgroupInfo] = {}
        self._now: Counter[str] = Counter()
        self._then: Counter[str] = Counter()

    def came(self, info: CgroupInfo) -> None:
        """Take a cgroup that lives, or what is now said of it."""
        self._replace(self._living, self._now, info.path, info)
        self._replace(self._past, self._then, info.path, None)

    def went(self, info: CgroupInfo) -> None:
        """Take a cgroup that is gone; its path may be another one's by now."""
        living = self._living.get(info.path)
        if living is not None and living.id != info.id:
            return
        self._replace(self._living, self._now, info.path, None)
        self._replace(self._past, self._then, info.path, info)

    def forgot(self, info: CgroupInfo) -> None:
        """Drop a cgroup that is gone."""
        past = self._past.get(info.path)
        if past is not None and past.id == info.id:
            self._replace(self._past, self._then, info.path, None)

    def at(self, path: str) -> CgroupInfo | None:
        """Return the cgroup at a path that lives, or was there last."""
        return self._living.get(path) or self._past.get(path)

    def name_of(self, path: str) -> str:
        """Return the name of the cgroup at a path; the path itself where none was."""
        info = self._living.get(path)
        is_past = info is None
        if info is None:
            info = self._past.get(path)
        if info is None:
            return path
        others = self._now[info.name] - 1
        if is_past or info.kind not in _PODS:
            others += self._then[info.name]
        return info.name if others == 0 else _told_apart(info)

    @staticmethod
    def _replace(infos: dict[str, CgroupInfo], counts: Counter[str], path: str, info: CgroupInfo | None) -> None:
        before = infos.pop(path, None)
        if before is not None:
            counts[before.name] -= 1
            if not counts[before.name]:
                del counts[before.name]
        if info is not None:
            infos[path] = info
            counts[info.name] += 1


def printable(text: str) -> str:
    """Escape a hostile name for terminals and labels: control and undecodable characters become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def owner_of(info: CgroupInfo) -> str:
    """Return `Kind name` of the owner of a cgroup's pod; empty outside pods and for a pod without owner."""
    kind, _, rest = info.workload.partition("/")
    name = rest.partition("/")[2]
    return f"{kind} {name}" if info.pod and name else ""


def _told_apart(info: CgroupInfo) -> str:
    return f"{info.name} [{info.container_id[:12]}]" if info.container_id and info.pod else info.path
