"""Capacity of devices that several claims may use: what a request consumes, and whether it is left.

Source: the consumable capacity of Kubernetes' `resource.k8s.io/v1`. Amounts are in thousandths of the capacity's unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.claims.selectable import EvaluationError, quantity


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity of a device, and what requests may consume of it."""

    value: int
    default: int | None = None
    """Consumed by a request that says nothing; None is all of it."""
    minimum: int | None = None
    step: int | None = None
    maximum: int | None = None
    values: tuple[int, ...] = ()
    """The only amounts that may be consumed, smallest first; empty are all."""

    def consumed(self, requested: int | None) -> int | None:
        """Return what a request consumes, rounded up as the policy says; None when it may not."""
        if requested is None:
            return self.value if self.default is None else self.default
        amount = self._rounded(requested)
        return amount if amount == self.default or self._valid(amount) else None

    def _rounded(self, requested: int) -> int:
        if self.minimum is not None:
            if requested <= self.minimum:
                return self.minimum
            return requested if not self.step else self.minimum - (self.minimum - requested) // self.step * self.step
        return next((value for value in self.values if requested <= value), requested)

    def _valid(self, amount: int) -> bool:
        if self.minimum is not None:
            return self.maximum is None or amount <= self.maximum
        return not self.values or amount in self.values


def amount(value: Any) -> int:
    """Return a quantity in thousandths. Raises ValueError."""
    try:
        return quantity(str(value)).value
    except EvaluationError as error:
        raise ValueError(str(error)) from error


def amount_text(thousandths: int) -> str:
    """Return the amount as a quantity."""
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)


def capacity_of(document: Mapping[str, Any]) -> Capacity:
    """Return the capacity that a slice states. Raises KeyError, TypeError, AttributeError, ValueError."""
    policy = document.get("requestPolicy") or {}
    reach = policy.get("validRange") or {}
    bounds = {name: amount(reach[name]) for name in ("min", "step", "max") if reach.get(name) is not None}
    return Capacity(
        amount(document["value"]),
        amount(policy["default"]) if policy.get("default") is not None else None,
        bounds.get("min"),
        bounds.get("step"),
        bounds.get("max"),
        tuple(amount(value) for value in policy.get("validValues") or ()),
    )


def consumption(
    capacities: Mapping[str, Capacity], requested: Mapping[str, int] | None, used: Mapping[str, int]
) -> dict[str, int] | None:
    """Return what a request consumes of each capacity beside what is used; None when it does not fit or may not be."""
    if requested and not requested.keys() <= capacities.keys():
        return None
    found: dict[str, int] = {}
    for name, capacity in capacities.items():
        share = capacity.consumed((requested or {}).get(name))
        if share is None or used.get(name, 0) + share > capacity.value:
            return None
        found[name] = share
    return found
