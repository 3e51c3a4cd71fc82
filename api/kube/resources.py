"""Resource quantities: Kubernetes' text to whole numbers, and the arithmetic on lists of them.

A `Resources` value maps resource name to an integer: cpu in millicores, everything else in the resource's own
unit (bytes, cards, percent of a card, pods). A missing name means zero. As in Kubernetes,
a fraction of the unit counts as a whole one.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from math import copysign
from typing import TypeAlias

Resources: TypeAlias = dict[str, int]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
HUGEPAGES_PREFIX = "hugepages-"

_SUFFIXES: dict[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


MAX_QUANTITY = 2**63 - 1
"""Largest amount; more saturates, as in Kubernetes."""
MAX_TEXT = 64
"""Longest text of a quantity; Kubernetes writes none of more than 30 characters."""
MAX_EXPONENT = 36
"""Decimal exponents beyond this saturate or vanish at any unit, and cost time and memory to expand."""


class QuantityError(ValueError):
    """A text that is not a Kubernetes quantity; the message quotes it."""


def parse_quantity(text: object, scale: int = 1) -> int:
    """`text` (`100m`, `1.5`, `8Gi`, `1e3`) times `scale`, rounded away from zero to a whole number.

    `scale` 1000 gives millicores. Amounts beyond +-(2^63 - 1) saturate. Raises QuantityError, for what is neither text
    nor a number too.
    """
    plain = text.strip() if isinstance(text, str) else str(text)
    if len(plain) > MAX_TEXT:
        raise QuantityError(f"not a quantity: {plain[:MAX_TEXT]!r} and {len(plain) - MAX_TEXT} more characters")
    # Bytes in reports are hardly ever the same twice: they would fill what is remembered, and are quick to read.
    return min(int(plain) * scale, MAX_QUANTITY) if plain.isdecimal() else _parse(plain, scale)


@lru_cache(maxsize=8192)
def _parse(plain: str, scale: int) -> int:
    digits = plain.rstrip("numkKMGTPEi")
    suffix = plain[len(digits) :]
    try:
        value = Decimal(digits)
        unit = _SUFFIXES[suffix]
    except (ArithmeticError, KeyError, ValueError) as error:
        raise QuantityError(f"not a quantity: {plain!r}") from error
    if not value.is_finite():
        raise QuantityError(f"not a quantity: {plain!r}")
    if value and value.adjusted() > MAX_EXPONENT:
        whole = MAX_QUANTITY
    elif value and value.adjusted() < -MAX_EXPONENT:
        whole = 1
    else:
        whole = int(abs(value * unit * scale).to_integral_value(rounding=ROUND_CEILING))
    return int(copysign(1, value)) * min(whole, MAX_QUANTITY)


def parse_resources(quantities: Mapping[str, str | int | float]) -> Resources:
    """A Kubernetes ResourceList as numbers: cpu in millicores, all else in units. Raises QuantityError."""
    return {name: parse_quantity(text, 1000 if name == CPU else 1) for name, text in quantities.items()}


def format_resources(resources: Mapping[str, int]) -> dict[str, str]:
    """The inverse of `parse_resources`: millicores as `1500m`, the rest as digits."""
    return {
        name: (f"{amount}m" if amount % 1000 else str(amount // 1000)) if name == CPU else str(amount)
        for name, amount in resources.items()
    }


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Sum by name."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def subtract(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """`left` minus `right` by name; may go negative."""
    rest = dict(left)
    for name, amount in right.items():
        rest[name] = rest.get(name, 0) - amount
    return rest


def maximum(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """The larger amount by name."""
    peak = dict(left)
    for name, amount in right.items():
        peak[name] = max(peak.get(name, 0), amount)
    return peak


def total(lists: Iterable[Mapping[str, int]]) -> Resources:
    """Sum of many lists by name."""
    result: Resources = {}
    for resources in lists:
        for name, amount in resources.items():
            result[name] = result.get(name, 0) + amount
    return result


def fits(request: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """True when every requested amount above zero is available."""
    return all(amount <= available.get(name, 0) for name, amount in request.items() if amount > 0)


def is_extended(name: str) -> bool:
    """True for a resource with a domain prefix, such as `nvidia.com/gpu` or `kubernetes.io/batch-cpu`."""
    return "/" in name
