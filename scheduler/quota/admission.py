"""Admission to a quota: its usage with the pod against its runtime, minimum and ancestors."""

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.quota.tree import Amounts, PodUse, Quota, QuotaTree, added


@dataclass(frozen=True, slots=True)
class Denial:
    """Denial of a pod by a quota, with every figure behind it."""

    quota: str
    resource: str
    used: int
    asked: int
    limit: int
    bound: str
    """The limit that was hit: `runtime`, `max` or `min`."""

    def sentence(self) -> str:
        """One sentence for the pod's condition and event."""
        what = "non-preemptible used" if self.bound == "min" else "used"
        return (
            f"quota {self.quota} has no room: {self.resource} {what} {_shown(self.resource, self.used)}"
            f" + requested {_shown(self.resource, self.asked)}"
            f" > {self.bound} {_shown(self.resource, self.limit)}"
        )


def admit(
    tree: QuotaTree, name: str, use: PodUse, *, by_runtime: bool = True, check_parents: bool = False
) -> Denial | None:
    """The first limit that placing the pod would exceed; None when it may be placed.

    Keys that the pod does not request are compared as well: a quota over-used in one resource takes no pod.
    """
    quota = tree.quota(name)
    request = _masked(use.request, quota.spec.maximum)
    denial = _against_limit(quota, request, by_runtime=by_runtime)
    if denial is None and not use.preemptible:
        denial = _exceeded(quota.spec.name, quota.firm_used, request, quota.spec.minimum, bound="min")
    if denial is None and check_parents:
        for above in quota.ancestors():
            above_request = _masked(request, above.spec.maximum)
            denial = denial or _against_limit(above, above_request, by_runtime=by_runtime)
    return denial


def _against_limit(quota: Quota, request: Amounts, *, by_runtime: bool) -> Denial | None:
    limit: Amounts = quota.runtime if by_runtime else quota.spec.maximum
    return _exceeded(quota.spec.name, quota.used, request, limit, bound="runtime" if by_runtime else "max")


def _exceeded(name: str, used: Amounts, request: Amounts, limit: Amounts, *, bound: str) -> Denial | None:
    for key, amount in added(used, request).items():
        if key in limit and amount > limit[key]:
            return Denial(name, key, used.get(key, 0), request.get(key, 0), limit[key], bound)
    return None


def _masked(request: Amounts, keys: Mapping[str, int]) -> dict[str, int]:
    return {key: amount for key, amount in request.items() if key in keys}


def _shown(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount}m"
    if resource.endswith("memory"):
        return f"{amount / (1 << 20):g}Mi"
    return str(amount)
