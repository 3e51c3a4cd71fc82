"""One tree of quotas: requests add up from the pods to the root, runtimes are divided from the root down.

Requests and usage move by deltas along one path; runtimes are divided when they are read, and only below
parents where something changed. Changing a division always redoes all siblings, so none reads a stale share.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from scheduler.quota.fairness import Minimum, QuotaShare, fair_runtimes, scaled_minimums

Amounts = Mapping[str, int]
"""Resource name to integer amount: CPU in millicores, everything else in its base unit."""

ROOT = "koordinator-root-quota"
DEFAULT = "koordinator-default-quota"
SYSTEM = "koordinator-system-quota"
UNSHARED = frozenset({DEFAULT, SYSTEM})
"""Quotas outside the fair division: their runtime is their maximum, and what they use shrinks the total."""


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """A quota as configured. Only the keys of `maximum` count; a key missing in `minimum` means zero."""

    name: str
    minimum: Amounts
    maximum: Amounts
    parent: str = ROOT
    weight: Amounts = field(default_factory=dict)
    """Shared weight; a missing key weighs as much as the maximum."""
    lends: bool = True
    scales: bool = True
    is_parent: bool = False
    tree: str = ""
    namespace: str = ""
    namespaces: tuple[str, ...] = ()
    total: Amounts | None = None
    """Set on the root of a separate tree: what that tree divides."""
    apart: bool = False
    """The default tree does not share what this separate tree divides."""


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod as its quota sees it."""

    request: Amounts
    assigned: bool = False
    """True from when the scheduler assumes the pod on a node."""
    preemptible: bool = True


@dataclass(slots=True)
class Quota:
    """A quota's live figures. `request` and `used` include the whole subtree."""

    spec: QuotaSpec
    children: dict[str, "Quota"] = field(default_factory=dict)
    parent: "Quota | None" = None
    pods: dict[str, PodUse] = field(default_factory=dict)
    self_request: dict[str, int] = field(default_factory=dict)
    child_request: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    self_used: dict[str, int] = field(default_factory=dict)
    firm_used: dict[str, int] = field(default_factory=dict)
    """Used by pods that must not be preempted."""
    scaled_minimum: dict[str, int] = field(default_factory=dict)
    runtime: dict[str, int] = field(default_factory=dict)
    stale: bool = True
    """The children's runtimes have to be divided again."""

    @property
    def request(self) -> dict[str, int]:
        """Sum of the requests of pods and children; at least the minimum where nothing is lent."""
        asked = added(self.self_request, self.child_request)
        if not self.spec.lends:
            for key, floor in self.spec.minimum.items():
                asked[key] = max(asked.get(key, 0), floor)
        return asked

    def limited_request(self, key: str) -> int:
        """The request for one resource, as the parent sees it: capped by the maximum."""
        asked = self.self_request.get(key, 0) + self.child_request.get(key, 0)
        if not self.spec.lends:
            asked = max(asked, self.spec.minimum.get(key, 0))
        return min(asked, self.spec.maximum.get(key, asked))

    def ancestors(self) -> Iterator["Quota"]:
        """Parent, grandparent, ... without the root."""
        above = self.parent
        while above is not None and above.parent is not None:
            yield above
            above = above.parent


class QuotaTree:
    """Quotas of one tree and the pods in them. Unknown parents hang below the root until they appear."""

    def __init__(self, total: Amounts, *, scale_minimums: bool = True, guarantee_usage: bool = False) -> None:
        self._total = dict(total)
        self._scale_minimums = scale_minimums
        self._guarantee_usage = guarantee_usage
        self._specs: dict[str, QuotaSpec] = {}
        self._pods: dict[str, tuple[str, PodUse]] = {}
        self._quotas: dict[str, Quota] = {}
        self._outdated = True

    def pod(self, key: str) -> tuple[str, PodUse] | None:
        """The quota that a pod is counted in, and what of it; None for an unknown pod."""
        return self._pods.get(key)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def names(self) -> list[str]:
        """All quotas of the tree except the root, sorted."""
        return sorted(self._specs)

    def set_total(self, total: Amounts) -> None:
        """Set what the whole tree may divide; usually the sum of the nodes' allocatable."""
        if dict(total) != self._total:
            self._total = dict(total)
            self._mark_root_stale()

    def apply(self, spec: QuotaSpec) -> None:
        """Add a quota or change it; the same spec twice changes nothing."""
        if self._guarantee_usage:
            spec = replace(spec, lends=False)
        if self._specs.get(spec.name) != spec:
            self._specs[spec.name] = spec
            self._outdated = True

    def remove(self, name: str) -> None:
        """Forget a quota; its pods stay known and count again when it returns."""
        if self._specs.pop(name, None) is not None:
            self._outdated = True

    def put_pod(self, key: str, quota: str, use: PodUse) -> None:
        """Add a pod, or replace what is known of it; moving it to another quota is the same call."""
        known = self._pods.get(key)
        if known is not None and known[0] == quota and replace(known[1], assigned=use.assigned) == use:
            self.set_assigned(key, use.assigned)
            return
        self.drop_pod(key)
        self._pods[key] = (quota, use)
        if not self._outdated:
            self._count(self._quotas.get(quota), key, use, sign=1)

    def drop_pod(self, key: str) -> None:
        """Forget a pod; an unknown one is no error."""
        known = self._pods.pop(key, None)
        if known is not None and not self._outdated:
            self._count(self._quotas.get(known[0]), key, known[1], sign=-1)

    def set_assigned(self, key: str, assigned: bool) -> None:
        """Record that a pod took its place on a node, or gave it back. KeyError for an unknown pod."""
        name, use = self._pods[key]
        if use.assigned == assigned:
            return
        changed = replace(use, assigned=assigned)
        self._pods[key] = (name, changed)
        quota = None if self._outdated else self._quotas.get(name)
        if quota is not None:
            quota.pods[key] = changed
            self._count_used(quota, use, sign=1 if assigned else -1)

    def quota(self, name: str) -> Quota:
        """The quota with every figure, its runtime included, up to date. KeyError for an unknown name."""
        if self._outdated:
            self._rebuild()
        found = self._quotas[name]
        path = [found, *found.ancestors()]
        for above in [self._quotas[ROOT], *reversed(path[1:])]:
            if above.stale:
                self._divide(above)
        return found

    def _rebuild(self) -> None:
        """Hang every quota below its parent and count every pod again, so no error outlives a change."""
        root = Quota(QuotaSpec(ROOT, {}, {}, is_parent=True))
        self._quotas = {ROOT: root}
        for name in sorted(self._specs):
            if name != ROOT:
                self._quotas[name] = Quota(self._specs[name])
        for name, quota in self._quotas.items():
            if name != ROOT:
                quota.parent = self._parent_of(quota, root)
                quota.parent.children[name] = quota
        self._outdated = False
        self._seed_requests(root)
        for key, (name, use) in self._pods.items():
            self._count(self._quotas.get(name), key, use, sign=1)

    def _parent_of(self, quota: Quota, root: Quota) -> Quota:
        """The named parent; the root when it is unknown or when following parents comes back to the quota."""
        parent = self._quotas.get(quota.spec.parent, root)
        seen, above = {quota.spec.name}, parent.spec
        while above.name != ROOT:
            if above.name in seen:
                return root
            seen.add(above.name)
            above = self._specs.get(above.parent, root.spec)
        return parent

    def _seed_requests(self, quota: Quota) -> None:
        """Pass up what quotas ask for without any pod: the minimum of those that do not lend."""
        for child in quota.children.values():
            self._seed_requests(child)
            for key in child.spec.maximum:
                quota.child_request[key] = quota.child_request.get(key, 0) + child.limited_request(key)

    def _count(self, quota: Quota | None, key: str, use: PodUse, *, sign: int) -> None:
        if quota is None:
            return
        if sign > 0:
            quota.pods[key] = use
        else:
            quota.pods.pop(key, None)
        for name, amount in use.request.items():
            if name in quota.spec.maximum:
                self._raise_request(quota, name, sign * amount)
        if use.assigned:
            self._count_used(quota, use, sign=sign)

    def _raise_request(self, quota: Quota, key: str, delta: int) -> None:
        """Change a quota's own request and pass up what remains of the change after each cap."""
        before = quota.limited_request(key)
        quota.self_request[key] = quota.self_request.get(key, 0) + delta
        at: Quota = quota
        while at.parent is not None:
            change = at.limited_request(key) - before
            if change == 0:
                return
            above = at.parent
            above.stale = True
            before = above.limited_request(key)
            above.child_request[key] = above.child_request.get(key, 0) + change
            at = above

    def _count_used(self, quota: Quota, use: PodUse, *, sign: int) -> None:
        amounts = {name: sign * amount for name, amount in use.request.items() if name in quota.spec.maximum}
        _add_to(quota.self_used, amounts)
        for at in [quota, *quota.ancestors()]:
            _add_to(at.used, amounts)
            if not use.preemptible:
                _add_to(at.firm_used, amounts)
            if self._guarantee_usage and at.parent is not None:
                at.parent.stale = True
        if quota.spec.name in UNSHARED:
            self._mark_root_stale()

    def _mark_root_stale(self) -> None:
        if not self._outdated:
            self._quotas[ROOT].stale = True

    def _divide(self, parent: Quota) -> None:
        """Give every child its runtime out of the parent's."""
        total = self._shared_total() if parent.parent is None else parent.runtime
        shared = {name: q for name, q in parent.children.items() if name not in UNSHARED}
        runtimes: dict[str, dict[str, int]] = {name: {} for name in parent.children}
        for key in {key for quota in shared.values() for key in quota.spec.maximum}:
            contenders = [quota for quota in shared.values() if key in quota.spec.maximum]
            for name, amount in self._divide_key(contenders, key, total.get(key, 0)).items():
                runtimes[name][key] = amount
        for name, child in parent.children.items():
            runtime = dict(child.spec.maximum) if name in UNSHARED else runtimes[name]
            if runtime != child.runtime:
                child.runtime, child.stale = runtime, True
        parent.stale = False

    def _divide_key(self, contenders: list[Quota], key: str, total: int) -> dict[str, int]:
        minimums = [
            Minimum(q.spec.name, q.spec.minimum.get(key, 0), scales=self._scale_minimums and q.spec.scales)
            for q in contenders
        ]
        scaled = scaled_minimums(total, minimums)
        for quota in contenders:
            quota.scaled_minimum[key] = scaled[quota.spec.name]
        return fair_runtimes(total, [self._claim(q, key, scaled[q.spec.name]) for q in contenders])

    def _claim(self, quota: Quota, key: str, minimum: int) -> QuotaShare:
        floor = max(minimum, self.guaranteed(quota, key)) if self._guarantee_usage else minimum
        weight = quota.spec.weight.get(key, quota.spec.maximum[key])
        return QuotaShare(quota.spec.name, quota.limited_request(key), floor, weight, lends=quota.spec.lends)

    def allocated(self, quota: Quota, key: str) -> int:
        """Amount in use below: a leaf's usage, or the sum of its children's guaranteed."""
        if not quota.children:
            return quota.used.get(key, 0)
        below = sum(self.guaranteed(child, key) for child in quota.children.values())
        return below + quota.self_used.get(key, 0)

    def guaranteed(self, quota: Quota, key: str) -> int:
        """The larger of allocated and minimum: never lent away."""
        return max(self.allocated(quota, key), quota.spec.minimum.get(key, 0))

    def _shared_total(self) -> dict[str, int]:
        total = dict(self._total)
        for name in UNSHARED:
            unshared = self._quotas.get(name)
            for key, amount in (unshared.used if unshared else {}).items():
                total[key] = max(total.get(key, 0) - amount, 0)
        return total


def added(left: Amounts, right: Amounts) -> dict[str, int]:
    """Sum per key; a missing key counts zero."""
    result = dict(left)
    _add_to(result, right)
    return result


def _add_to(target: dict[str, int], amounts: Amounts) -> None:
    for key, amount in amounts.items():
        target[key] = target.get(key, 0) + amount
