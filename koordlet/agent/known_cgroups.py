"""The living cgroups and what each is: found by the walk, described by path, owner and the table of pods."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from api.cgroup_names import DisplayNames, owner_of, printable
from api.cgroup_path import is_within
from api.frame import UNKNOWN_UID, CgroupInfo
from koordlet.host.cgroups.walk import CgroupChange, CgroupWalk
from koordlet.host.containers import container_facts
from koordlet.host.files import HostTree
from koordlet.identity.describe import Sources, describe
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import PodTable, PodTableOf
from koordlet.identity.workloads import generalise

REMEMBERED_SECONDS = 300.0
"""Time for which a cgroup that is gone is known at least: in that its last counters, verdicts and actions are told."""
_REMEMBERED_REMOVED = 4096
WORKLOADS_OF_OWNER = 64
"""Workloads below the first directory of another user, since the start, that are told apart: each has baselines."""
_ASK_AFTER_TICKS = frozenset((0, 1, 2, 4, 8, 16, 32))
"""Ticks after which the source of pods is asked again about a cgroup that no table has, then no more."""


class KnownCgroups:
    """Cgroups of the newest tick with their descriptions. Call `update` once a tick.

    A cgroup is described when it comes, when a directory on the way to it changes its owner, and when the table of pods
    says something else of its pod. What a table once said of a cgroup stays where a later one lacks the pod: the
    directory outlives the pod's object for some moments.
    """

    def __init__(
        self,
        walk: CgroupWalk,
        tree: HostTree,
        sources: Sources,
        pods: PodTableOf,
        *,
        ignore: Sequence[str] = (),
        on_unknown_pods: Callable[[], None] | None = None,
        history_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_unknown_pods` is called when the kubelet's tree has a pod or container that the table lacks.

        What is gone is known for `history_seconds` too, in which frames tell of it.
        """
        self.cgroups: tuple[CgroupInfo, ...] = ()
        self.ids: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._walk = walk
        self._tree = tree
        self._sources = sources.with_pods(pods())
        self._pods_of = pods
        self._ignore = tuple(ignore)
        self._on_unknown_pods = on_unknown_pods
        self._infos: dict[int, CgroupInfo] = {}
        self._removed: OrderedDict[int, tuple[CgroupInfo, float]] = OrderedDict()
        """Cgroups that are gone and when they were missed, the oldest first."""
        self._remembered_seconds = max(REMEMBERED_SECONDS, history_seconds)
        self._clock = clock
        self._awaited: dict[int, int] = {}
        """Cgroups that the table of pods lacks, and the ticks since they came."""
        self._names = DisplayNames()
        self._workloads: dict[str, set[str]] = {}
        """Workloads with baselines of their own, by the first directory of another user."""

    @property
    def gone(self) -> list[CgroupInfo]:
        """Cgroups that are gone and still remembered, the oldest first."""
        return [info for info, _when in self._removed.values()]

    @property
    def pods(self) -> PodTable:
        """The table that the descriptions follow."""
        return self._sources.pods

    def update(self, *, everything: bool = False) -> list[CgroupInfo]:
        """Follow the walk and the table of pods; return the cgroups that are gone."""
        changed = self._follow_pods()
        removed = self._follow(self._walk.scan(everything=everything), has_changed=changed)
        if self._awaited:
            self._ask()
        return removed

    def relist(self) -> list[CgroupInfo]:
        """Find those that came in the place of others since the update; return the cgroups that are gone."""
        removed = self._follow(self._walk.relist(), has_changed=False)
        if self._awaited:
            self._ask()
        return removed

    def _follow(self, change: CgroupChange, *, has_changed: bool) -> list[CgroupInfo]:
        """Take what came, went and was chowned; return what went."""
        for identity, path in change.added.items():
            if not any(fnmatchcase(path, pattern) for pattern in self._ignore):
                self._describe(identity, path, change.owners.get(identity, UNKNOWN_UID))
        chowned = [identity for identity in change.owners.keys() - change.added.keys() if identity in self._infos]
        for identity in chowned:
            self._infos[identity] = replace(self._infos[identity], owner_uid=change.owners[identity])
            self._names.came(self._infos[identity])
            self._describe_below(self._infos[identity].path)
        removed = [self._infos.pop(identity) for identity in change.removed if identity in self._infos]
        for info in removed:
            self._awaited.pop(info.id, None)
            self._workloads.pop(info.path, None)
            if info.id in self._removed:  # a file system may give an id again
                self._names.forgot(self._removed.pop(info.id)[0])
            self._removed[info.id] = (info, self._clock())
            self._names.went(info)
        self._forget_removed()
        if has_changed or removed or change.added or chowned:
            self.cgroups = tuple(self._infos.values())
            self.ids = np.array([info.id for info in self.cgroups], dtype=np.uint64)
        return removed

    def _forget_removed(self) -> None:
        """Let go of what has been gone for long; under churn of pods it would be most of what is known."""
        before_seconds = self._clock() - self._remembered_seconds
        while self._removed:
            identity, (info, gone_seconds) = next(iter(self._removed.items()))
            if gone_seconds >= before_seconds and len(self._removed) <= _REMEMBERED_REMOVED:
                return
            del self._removed[identity]
            self._names.forgot(info)

    def _follow_pods(self) -> bool:
        """Describe the cgroups of pods that the table says something new of; return whether any changed."""
        before, pods = self._sources, self._pods_of()
        if pods is before.pods or pods.generation == before.pods.generation:
            return False
        self._sources = before.with_pods(pods)
        is_first = not before.pods.generation or before.kubepods != self._sources.kubepods
        uids = _changed(before.pods, pods)
        affected = [
            info for info in self._infos.values() if is_first or info.pod_uid in uids or info.id in self._awaited
        ]
        changes = [self._describe(info.id, info.path, info.owner_uid) for info in affected]
        return any(changes)

    def follow_applications(self, applications: Mapping[str, HostApplicationGroup]) -> None:
        """Describe the cgroups of host applications anew that came, went or changed, with all below them."""
        before = self._sources.applications
        changed = {path for path in applications.keys() | before.keys() if applications.get(path) != before.get(path)}
        if not changed:
            return
        self._sources = replace(self._sources, applications=dict(applications))
        affected = [info for info in self._infos.values() if any(is_within(info.path, path) for path in changed)]
        changes = [self._describe(info.id, info.path, info.owner_uid) for info in affected]
        if any(changes):
            self.cgroups = tuple(self._infos.values())

    def _describe_below(self, path: str) -> None:
        for info in [each for each in self._infos.values() if is_within(each.path, path) or path == "/"]:
            self._describe(info.id, info.path, info.owner_uid)

    def _describe(self, identity: int, path: str, owner_uid: int) -> bool:
        """Describe one cgroup; return whether that says something new."""
        described = describe(
            identity,
            path,
            self._sources,
            lambda container_id: container_facts(self._tree, container_id),
            owner_uid=owner_uid,
            delegated=self._walk.is_delegated(path),
        )
        info = self._within_share(described.info)
        if described.is_awaited:
            self._awaited.setdefault(identity, 0)
        else:
            self._awaited.pop(identity, None)
        if self._infos.get(identity) == info:
            return False
        self._infos[identity] = info
        self._names.came(info)
        return True

    def _within_share(self, info: CgroupInfo) -> CgroupInfo:
        """Give a cgroup of another user the workload of his first directory where he has made up many already."""
        boundary = self._walk.boundary_of(info.path)
        if not info.workload or not self._walk.is_delegated(boundary):
            return info
        workloads = self._workloads.setdefault(boundary, set())
        if info.workload not in workloads and len(workloads) >= WORKLOADS_OF_OWNER:
            return replace(info, workload=printable(generalise(boundary)))
        workloads.add(info.workload)
        return info

    def _ask(self) -> None:
        """Ask the source of pods for what is missing, less often the longer it has none to tell."""
        if self._on_unknown_pods is not None and not _ASK_AFTER_TICKS.isdisjoint(self._awaited.values()):
            self._on_unknown_pods()
        self._awaited = {identity: ticks + 1 for identity, ticks in self._awaited.items()}

    def info_of(self, identity: int) -> CgroupInfo | None:
        """Description of a living or recently removed cgroup."""
        info = self._infos.get(identity)
        if info is None and identity in self._removed:
            info = self._removed[identity][0]
        return info

    def path_of(self, identity: int) -> str | None:
        """Path of a living or recently removed cgroup."""
        info = self.info_of(identity)
        return info.path if info else None

    def name_of(self, path: str) -> str:
        """Name of the cgroup at a path, different for each: the path itself where two share one.

        A container that lives keeps its name where an earlier one had it; the earlier one's id is added to its own.
        """
        return self._names.name_of(path)

    def title_of(self, path: str) -> str:
        """Name of the cgroup at a path, and the owner of its pod in brackets."""
        info = self._names.at(path)
        owner, name = owner_of(info) if info else "", self.name_of(path)
        return f"{name} ({owner})" if owner else name


def _changed(before: PodTable, after: PodTable) -> frozenset[str]:
    """Uids of the pods that are new or told of otherwise."""
    changed = (pod for pod in after.pods if pod is not (old := before.of_uid(pod.uid)) and pod != old)
    return frozenset(uid for pod in changed for uid in (pod.uid, pod.cgroup_uid) if uid)
