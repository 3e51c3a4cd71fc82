"""What expressions see of a device: attributes, amounts and versions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.kube.resources import QuantityError, parse_quantity

_SEMVER = re.compile(
    r"(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})(?:-([0-9A-Za-z.-]{1,128}))?(?:\+[0-9A-Za-z.-]{1,128})?"
)


class EvaluationError(Exception):
    """A value that an expression asked for is not there, or is of another type."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount, in thousandths."""

    value: int


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version; a pre-release comes before its release."""

    numbers: tuple[int, int, int]
    pre: tuple[tuple[int, int, str], ...] = ()

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts as semantic versions do."""
        return (self.numbers, not self.pre, self.pre)


@dataclass(frozen=True, slots=True)
class Selectable:
    """A device as an expression sees it: attributes and capacity by domain and name."""

    driver: str
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Quantity]]
    shareable: bool = False
    """Several claims may use it at a time."""


def version(text: str) -> Version:
    """Return a semantic version. Raises EvaluationError."""
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise EvaluationError(f"no semantic version: {text[:80]}")
    major, minor, patch, pre = found.groups()
    parts = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".")) if pre else ()
    return Version((int(major), int(minor), int(patch)), parts)


def quantity(text: str) -> Quantity:
    """Return an amount. Raises EvaluationError."""
    try:
        return Quantity(parse_quantity(text, 1000))
    except QuantityError as error:
        raise EvaluationError(f"no quantity: {text[:80]}") from error
