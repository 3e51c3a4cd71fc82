"""Observation of one tick for the response: verdicts, losses, use of resources, capabilities of the host."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from api.cgroup_names import display_names
from api.cgroup_path import ancestors, lineage
from api.frame import CgroupInfo, CgroupKind
from api.loss import LOSS_CAUSES, lost_to_others_ns
from api.qos import PROTECTED_RANK, QoSClass, protection_rank
from api.tree_classes import TreeClasses
from api.verdicts import HYPERVISOR, Verdict, is_self_inflicted
from api.window import Delta, Window
from detector.blame import Blame, blame_between
from detector.entitlement import Shares, claimable, entitled_cores
from detector.subtrees import Subtrees
from koordlet.response.host_capabilities import HostCapabilities

PERIOD_US = 100_000
"""Period of a CPU quota, unless a host has another."""

Floats = NDArray[np.float64]

_BEST_EFFORT = frozenset({QoSClass.BE})


def no_blame(_resource: str) -> Blame | None:
    """Return None: nothing tells culprits apart."""
    return None


@dataclass(frozen=True)
class Observation:
    """One tick; each array has a row for each of `cgroups`."""

    now_seconds: float
    """Monotonic clock."""
    cgroups: tuple[CgroupInfo, ...]
    verdicts: tuple[Verdict, ...]
    """Open verdicts."""
    lost: Mapping[str, Floats]
    """Seconds lost per second to others, by resource."""
    throttled: Floats
    """Seconds per second in which a cgroup's own quota kept threads from running."""
    cpu_cores: Floats
    """Of a cgroup's own threads where the kernel side measures them, else of all below it too."""
    memory_bytes: Floats
    """NaN where it is not measured."""
    io_bytes_per_second: Floats
    turnaround_seconds: Floats
    """99th percentile of the requests that ended; NaN where none is seen."""
    capabilities: HostCapabilities = field(default_factory=HostCapabilities)
    io_service: Floats | None = None
    """Seconds per second that disks worked for a cgroup, without what others cost it; None where it is not measured."""
    ios: Floats | None = None
    """IOs per second that ended; None where it is not measured."""
    io_disks: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Cgroup id to the disks that it read or wrote, as major:minor."""
    blame_of: Callable[[str], Blame | None] = no_blame
    """Seconds lost per second by victim and culprit of a resource; None where the kernel side does not tell them
    apart."""
    slowdown: Floats | None = None
    """Mean turnaround of the tick's requests over the longest that is usual at this load, less one; NaN where that is
    not known. None where no cgroup's requests are seen."""
    held_cores: Floats | None = None
    """As `cpu_cores`, by the clock: with what a hypervisor stole and interrupts took of it, which no neighbour has.
    None where that is not measured."""
    cpu_waits: Floats | None = None
    """Seconds per second in which a cgroup's own threads were runnable and did not run, for whatever reason; None
    where that is not measured."""
    held_up: Floats | None = None
    """Of these the ones by other cgroups and by the quotas of ancestors: what a setting on others or above can cost."""
    throttled_above: Floats | None = None
    """Of these the ones by the quotas of ancestors; None where that is not measured."""
    weights: Floats | None = None
    """cpu.weight; NaN where it was not read. None where none was."""
    request_cores: Floats | None = None
    """CPU request of a pod or container; NaN where there is none or it is not known."""
    request_bytes: Floats | None = None
    """Memory request, likewise."""

    def with_amounts(
        self,
        capabilities: HostCapabilities,
        *,
        weights: Floats | None,
        request_cores: Floats | None,
        request_bytes: Floats | None,
    ) -> "Observation":
        """Return this tick with what was read for it besides the columns."""
        made = replace(
            self,
            capabilities=capabilities,
            weights=weights,
            request_cores=request_cores,
            request_bytes=request_bytes,
        )
        return _sharing(made, self)

    @cached_property
    def subtrees(self) -> Subtrees:
        """The cgroups as a tree."""
        return Subtrees(self.cgroups)

    @cached_property
    def wanted_cores(self) -> Floats:
        """CPU time that each cgroup's threads held or waited for."""
        held = self.cpu_cores if self.held_cores is None else self.held_cores
        return held if self.cpu_waits is None else held + self.cpu_waits

    def up_to_pod(self, path: str) -> list[str]:
        """Return a cgroup and those above it that belong to its pod alone, nearest first."""
        row = self.rows.get(path)
        uid = "" if row is None else self.cgroups[row].pod_uid
        above = (each for each in ancestors(path) if each in self.rows)
        return [path, *(each for each in above if uid and self.cgroups[self.rows[each]].pod_uid == uid)]

    def used_by(self, path: str) -> float:
        """Return the cores that a cgroup uses, with all that lives in it."""
        return self._total(self.cpu_cores, path)

    def held_by(self, path: str) -> float:
        """Return the cores that a cgroup holds by the clock, with all that lives in it."""
        return self._total(self.cpu_cores if self.held_cores is None else self.held_cores, path)

    def wanted_by(self, path: str) -> float:
        """Return the cores that a cgroup holds or waits for, with all that lives in it."""
        return self._total(self.wanted_cores, path)

    def _total(self, column: Floats, path: str) -> float:
        if self.cpu_waits is None:  # the controller's clock counts what is below, too
            row = self.rows.get(path)
            return 0.0 if row is None else float(column[row])
        return float(np.nansum(column[self.subtrees.rows(path)]))

    def entitled(self, path: str, *, of_limits: bool = False) -> float:
        """Return the cores that a cgroup is entitled to (see entitlement.py); infinite where its wishes are not
        measured."""
        if self.cpu_waits is None or not self.capabilities.cpus:
            return np.inf
        return min(self.share(path, of_limits=of_limits), self.wanted_by(path))

    def share(self, path: str, *, of_limits: bool = False) -> float:
        """Return the cores that a cgroup is entitled to if its threads want as many; infinite where wishes are not
        measured.

        Best-effort work beside a cgroup of another class counts with the least weight, as the kubelet gives to its
        BestEffort class, whatever its file says: it is to yield. A limit takes time that no other work may want, so
        what is entitled `of_limits` goes by the weights as they are.
        """
        if self.cpu_waits is None or not self.capabilities.cpus:
            return np.inf
        key = (path, of_limits)
        if key not in self._shares:
            self._shares[key] = self._share(path, of_limits=of_limits)
        return self._shares[key]

    @cached_property
    def _shares(self) -> dict[tuple[str, bool], float]:
        return {}

    def _share(self, path: str, *, of_limits: bool) -> float:
        yields = not of_limits and self.qos_of(path) is not QoSClass.BE
        share = self._by_weight.of(path, yields=yields)
        quotas = [self.capabilities.cgroup_quota_us.get(each) for each in lineage(path)]
        return entitled_cores(
            share,
            request=self._number(self.request_cores, path),
            limit=min((quota / PERIOD_US for quota in quotas if quota is not None), default=np.nan),
        )

    @cached_property
    def _by_weight(self) -> Shares:
        classes = self._classes  # not self: a cycle would keep the tick's columns until the next full collection
        return Shares(
            self.cgroups,
            self.subtrees,
            self.wanted_cores,
            self.weights,
            cpus=len(self.capabilities.cpus),
            is_best_effort=lambda path: classes.within(path) == _BEST_EFFORT,
        )

    def _number(self, column: Floats | None, path: str) -> float:
        row = self.rows.get(path)
        return np.nan if column is None or row is None else float(column[row])

    def claim(self, victim: str, resource: str, *, of_limits: bool = False) -> float:
        """Return the part of a victim's loss that it may hold against others: what it waits below its own share.

        Of CPU time by its entitlement; of block IO nothing while it moves its part of the bytes itself; of memory
        nothing while it uses more than it requests. Other resources have no shares.
        """
        lost = self.lost_by(victim, resource)
        if resource == "cpu":
            entitled = self.entitled(victim, of_limits=of_limits)
            return claimable(lost, entitled=entitled, used=self.held_by(victim))
        if resource == "blockio" and self._moves_its_part(victim):
            return 0.0
        if resource == "memory" and self._number(self.memory_bytes, victim) > self._number(self.request_bytes, victim):
            return 0.0
        return lost

    def claim_on(self, victim: str, culprit: str, resource: str, *, of_limits: bool = False) -> float:
        """Return the part of what a culprit costs a victim that the victim may hold against it, or answer by limits."""
        lost = self.lost_by(victim, resource)
        if not lost > 0:
            return 0.0
        return self.lost_to(victim, culprit, resource) * self.claim(victim, resource, of_limits=of_limits) / lost

    def entitled_part(self, verdict: Verdict) -> float | None:
        """Return the part of a verdict's loss, in seconds per second, that lies below its victim's own share.

        None where no share is known, where no cgroup holds the resource (a hypervisor), and for what is the victim's
        own doing.
        """
        victim, resource = verdict.victim, verdict.resource
        is_own = is_self_inflicted(verdict) or any(culprit.path == HYPERVISOR for culprit in verdict.culprits)
        if is_own or not self._is_share_known(victim, resource):
            return None
        lost = self.lost_by(victim, resource)
        if not lost > 0:
            return 0.0
        return verdict.lost_seconds_per_second * min(self.claim(victim, resource) / lost, 1.0)

    def _is_share_known(self, path: str, resource: str) -> bool:
        row = self.rows.get(path)
        if row is None:
            return False
        if resource == "cpu":
            return bool(np.isfinite(self.entitled(path)))
        if resource == "memory":
            return bool(np.isfinite(self._number(self.request_bytes, path)))
        return resource == "blockio" and self.cgroups[row].id in self.io_disks

    def _moves_its_part(self, path: str) -> bool:
        """Return whether a cgroup moves as many bytes as any fair division of its disks would let it."""
        row = self.rows.get(path)
        if row is None or not self.io_disks:
            return False
        disks = self.io_disks.get(self.cgroups[row].id, frozenset())
        if disks not in self._disk_loads:
            self._disk_loads[disks] = self._disk_load(disks)
        total, busy = self._disk_loads[disks]
        return busy > 1 and float(self.io_bytes_per_second[row]) * busy >= total

    @cached_property
    def _disk_loads(self) -> dict[frozenset[str], tuple[float, int]]:
        return {}

    def _disk_load(self, disks: frozenset[str]) -> tuple[float, int]:
        """Return the bytes per second of all cgroups that use one of these disks, and how many move a part of them."""
        sharing = [
            float(self.io_bytes_per_second[each])
            for each, info in enumerate(self.cgroups)
            if not disks.isdisjoint(self.io_disks.get(info.id, ()))
        ]
        total = sum(sharing)
        return total, sum(moved > 0.01 * total for moved in sharing)

    believes_kubernetes: bool = True
    """Whether a BestEffort pod without a label counts as BE; not where no source tells of pods: any may be critical."""

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Path to row."""
        return {info.path: row for row, info in enumerate(self.cgroups)}

    def io_seconds(self, path: str) -> float:
        """Return the seconds per second that disks work for a cgroup, without what others cost it; NaN where that is
        not measured."""
        return self._number(self.io_service, path)

    def io_seconds_behind_one(self, victim: str, culprit: str) -> float:
        """Return the seconds per second that a victim's IO waits if the disk first ends one IO of the culprit's for
        each; NaN where that is not measured.

        A disk that works for the culprit all the time ends one in the time between two, however many it has begun.
        """
        if self.ios is None or self.io_service is None:
            return np.nan
        rows = self.subtrees.rows(culprit)
        ended, worked = float(self.ios[rows].sum()), float(self.io_service[rows].sum())
        return self._number(self.ios, victim) * min(worked, 1.0) / ended if ended > 0 else 0.0

    def name_of(self, path: str) -> str:
        """Return the name to show: `namespace/pod/container`, a unit, or the path."""
        return self._names.get(path, path)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return display_names(self.cgroups)

    def qos_of(self, path: str) -> QoSClass:
        """Return the class of a cgroup, or that of its nearest ancestor with one.

        The kubelet's directories pass none on: a pod that no source knows yet may be critical to the node.
        """
        return self._classes.of(path)

    def boundary_of(self, path: str) -> str:
        """Return the first directory from the root down that belongs to another user than root, or the path itself.

        Its owner makes and fills the directories below it, and writes their files: what they do is the boundary's.
        """
        return self._classes.boundary_of(path)

    def rank(self, path: str) -> int:
        """Return the rank of a cgroup by its QoS class; a cgroup within a protected one is protected."""
        own = protection_rank(self.qos_of(path))
        above = max((protection_rank(self.qos_of(each)) for each in ancestors(path)), default=own)
        return max(own, above) if above >= PROTECTED_RANK else own

    def highest_rank(self, path: str) -> int:
        """Return the highest rank of a cgroup and its descendants: an action on it hits them all."""
        return max([self.rank(path), *(protection_rank(qos) for qos in self.classes_within(path))])

    def classes_within(self, path: str) -> frozenset[QoSClass]:
        """Return the classes of a cgroup and its descendants: an action on it hits them all.

        A directory without a class counts by what lives in it.
        """
        return self._classes.within(path)

    @cached_property
    def _classes(self) -> TreeClasses:
        return TreeClasses({info.path: info for info in self.cgroups}, self.believes_kubernetes)

    def is_kubelets(self, path: str) -> bool:
        """Return whether a cgroup is one of the kubelet's directories, whose weight the kubelet writes."""
        row = self.rows.get(path)
        return row is not None and self.cgroups[row].kind is CgroupKind.KUBEPODS

    def same_pod(self, path: str, other: str) -> bool:
        """Return whether two cgroups belong to one pod."""
        uids = [self.cgroups[row].pod_uid for each in (path, other) if (row := self.rows.get(each)) is not None]
        return len(uids) == 2 and uids[0] == uids[1] != ""

    def disks_between(self, culprit: str, victim: str) -> tuple[str, ...]:
        """Return the disks that both used; all disks of the host where none is known."""
        ids = [self.cgroups[row].id for path in (culprit, victim) if (row := self.rows.get(path)) is not None]
        shared = frozenset.intersection(*(self.io_disks.get(id_, frozenset()) for id_ in ids)) if ids else frozenset()
        return tuple(disk for disk in self.capabilities.disks if disk in shared) or self.capabilities.disks

    def lost_to(self, victim: str, culprit: str, resource: str) -> float:
        """Return what a culprit, with all that lives in it, costs a victim now; of a resource whose losses are not
        told apart by culprit, all that the victim loses."""
        blame, row = self.blame_of(resource), self.rows.get(victim)
        if blame is None or row is None:
            return self.lost_by(victim, resource)
        start, end = blame.span(np.array([self.cgroups[row].id], dtype=np.uint64))
        of_victim = slice(int(start[0]), int(end[0]))
        guilty = np.isin(blame.culprits[of_victim], self.subtrees.ids(culprit))
        return float(blame.amounts[of_victim][guilty].sum())

    def waits_for(self, path: str, other: str, resource: str) -> float | None:
        """Return what a cgroup waits for another one, each with all that lives in it, in seconds per second; None where
        losses are not told apart by culprit."""
        blame = self.blame_of(resource)
        if blame is None:
            return None
        others, waited = self.subtrees.ids(other), 0.0
        starts, ends = blame.span(self.subtrees.ids(path))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if start < end:
                waited += float(blame.amounts[start:end][np.isin(blame.culprits[start:end], others)].sum())
        return waited

    def unexplained(self, victim: str, resource: str) -> float:
        """Return the part of a victim's loss that the kernel side charges to no cgroup; 0 where it tells none apart."""
        blame, row = self.blame_of(resource), self.rows.get(victim)
        if blame is None or row is None:
            return 0.0
        charged = float(blame.sums(np.array([self.cgroups[row].id], dtype=np.uint64))[0])
        return max(self.lost_by(victim, resource) - charged, 0.0)

    def lost_by(self, victim: str, resource: str) -> float:
        """Return the victim's current loss to others, from the ledger or else from its verdict; 0 if it is gone."""
        row, column = self.rows.get(victim), self.lost.get(resource)
        if row is None:
            return 0.0
        if column is not None:
            return float(column[row])
        said = [v.lost_seconds_per_second for v in self.verdicts if (v.victim, v.resource) == (victim, resource)]
        return max(said, default=0.0)


def observe(
    window: Window,
    delta: Delta,
    verdicts: tuple[Verdict, ...],
    capabilities: HostCapabilities,
    slowdown: Floats | None = None,
    *,
    earlier: Observation | None = None,
    believes_kubernetes: bool = True,
) -> Observation:
    """Return the observation of the newest frames; `delta` is the window's own, `slowdown` has its rows.

    What depends on the cgroups alone is taken over from an `earlier` observation of the same ones.
    """
    lost: dict[str, Floats] = {}
    for name, lost_ns in lost_to_others_ns(delta.table.columns).items():
        resource, rate = _RESOURCE_OF[name], lost_ns / 1e9 / delta.seconds
        lost[resource] = lost[resource] + rate if resource in lost else rate
    device, excess = _rate(delta, "blockio.device_ns"), _rate(delta, "blockio.excess_ns")
    count = len(window.cgroups)
    nothing, unknown = np.zeros(count), np.full(count, np.nan)
    usage = _first(_rate(delta, "cpu.oncpu_ns"), _rate(delta, "cpustat.usage_ns"), nothing) / 1e9
    traffic = _first(_rate(delta, "blockio.read_bytes"), nothing) + _first(_rate(delta, "blockio.write_bytes"), nothing)
    columns = delta.table.columns
    requests = "turnaround.hist" in columns
    waits, above = _rate(delta, "cpu.wait_ns"), _rate(delta, "cpu.wait_ancestor_quota_ns")
    is_own, held = "cpu.oncpu_ns" in columns and waits is not None, _rate(delta, "cpu.held_ns")
    observation = Observation(
        now_seconds=window.last.monotonic_ns / 1e9,
        cgroups=window.cgroups,
        verdicts=verdicts,
        lost=lost,
        throttled=_first(_rate(delta, "cpu.wait_own_quota_ns"), nothing) / 1e9,
        cpu_cores=usage,
        held_cores=None if held is None else held / 1e9,
        memory_bytes=np.asarray(columns.get("memstat.usage_bytes", unknown), dtype=np.float64),
        io_bytes_per_second=traffic,
        turnaround_seconds=delta.percentile_ns("turnaround.hist", 0.99) / 1e9 if requests else unknown,
        capabilities=capabilities,
        io_service=np.maximum(device - excess, 0.0) / 1e9 if device is not None and excess is not None else None,
        ios=_rate(delta, "blockio.ios"),
        io_disks=_disks(window),
        blame_of=cache(partial(_blame, window)),
        slowdown=slowdown,
        believes_kubernetes=believes_kubernetes,
        cpu_waits=waits / 1e9 if waits is not None and is_own else None,
        throttled_above=None if above is None else above / 1e9,
        held_up=None if "cpu" not in lost else lost["cpu"] + _first(above, nothing) / 1e9,
    )
    return observation if earlier is None else _sharing(observation, earlier)


def _sharing(observation: Observation, earlier: Observation) -> Observation:
    """Take over what was found out before and depends on the cgroups alone."""
    if earlier.cgroups == observation.cgroups:
        known, names = vars(earlier), ["subtrees", "rows"]
        names += ["_classes"] if earlier.believes_kubernetes == observation.believes_kubernetes else []
        vars(observation).update({name: known[name] for name in names if name in known})
    return observation


_BY_DISK = "blockio.device"
_BLAME = {"cpu": "cpu.blame", "memory": "memory.blame", "blockio": "blockio.blame", "network": "net.blame"}
"""Resource to the table of its victims and culprits."""
_MINOR_BITS = 20
"""Minor bits of a device number, as the kernel and the probe pack it."""
_SPELLED_OUT = {"net": "network"}
_RESOURCE_OF = {cause.name: _SPELLED_OUT.get(cause.resource, cause.resource) for cause in LOSS_CAUSES}
"""Cause of the ledger to its resource as verdicts name it."""


def _rate(delta: Delta, column: str) -> Floats | None:
    return np.nan_to_num(delta.rate(column)) if column in delta.table.columns else None


def _blame(window: Window, resource: str) -> Blame | None:
    table = _BLAME.get(resource)
    if table is None or len(window.frames) < 2:
        return None
    older, newer = window.frames[-2:]
    return blame_between(older, newer, table) if table in older.tables and table in newer.tables else None


def _disks(window: Window) -> Mapping[int, frozenset[str]]:
    try:
        delta = window.delta(_BY_DISK)
    except (KeyError, ValueError):  # no probe measures it, or only since this tick
        return {}
    table = delta.table
    if not {"blockio.read_bytes", "blockio.write_bytes"} <= table.columns.keys():
        return {}
    read, written = (table.columns[f"blockio.{name}_bytes"].astype(np.float64) for name in ("read", "write"))
    found: dict[int, set[str]] = {}
    moves = (read + written).tolist()
    for cgroup, disk, moved in zip(table.keys["cgroup"].tolist(), table.keys["device"].tolist(), moves, strict=True):
        if moved > 0:
            found.setdefault(cgroup, set()).add(f"{disk >> _MINOR_BITS}:{disk & (1 << _MINOR_BITS) - 1}")
    return {cgroup: frozenset(names) for cgroup, names in found.items()}


def _first(*candidates: Floats | None) -> Floats:
    return next(each for each in candidates if each is not None)
