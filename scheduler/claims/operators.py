"""Operators, functions and methods of expressions, on values of any type. All raise EvaluationError."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from scheduler.claims.selectable import EvaluationError, Quantity, Selectable, Version, quantity, version
from scheduler.claims.tokens import INT64

MAX_TEXT = 10 * 1024
"""Characters of a text that is put together."""


class _Domains(dict[str, Mapping[str, Any]]):
    """Attributes or capacity by domain; a domain that the device does not have is empty, as upstream."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


def fail(problem: str) -> NoReturn:
    """Raise EvaluationError, also amid an expression."""
    raise EvaluationError(problem)


def boolean(value: Any) -> bool:
    """Return a bool as it is."""
    return value if isinstance(value, bool) else fail("a bool was expected")


def index(value: Any, key: Any) -> Any:
    """Return `value[key]` of a map or a list."""
    if isinstance(value, Mapping):
        known = isinstance(key, str) and (key in value or isinstance(value, _Domains))
        return value[key] if known else fail(f"no such key: {key}")
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(value):
        return value[key]
    return fail("no such element")


def field(found: Any, name: str) -> Any:
    """Return `found.name`."""
    if isinstance(found, Selectable):
        if name == "allowMultipleAllocations":
            return found.shareable
        if name not in ("driver", "attributes", "capacity"):
            fail(f"device has no {name}")
        return found.driver if name == "driver" else _Domains(getattr(found, name))
    return index(found, name)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


def _compared(left: Any, right: Any) -> int:
    """-1, 0 or 1; values of one kind only."""
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return (left.value > right.value) - (left.value < right.value)
    if isinstance(left, Version) and isinstance(right, Version):
        return (left.order > right.order) - (left.order < right.order)
    fail("quantities or versions were expected")


def _ordered(left: Any, right: Any) -> int:
    for kinds in ((int, float), (str,)):
        if all(isinstance(value, kinds) and not isinstance(value, bool) for value in (left, right)):
            return int(left > right) - int(left < right)
    fail("these values have no order")


def _contained(left: Any, right: Any) -> bool:
    if isinstance(right, list):
        return any(_equal(left, item) for item in right)
    if isinstance(right, Mapping):
        return isinstance(left, str) and left in right
    fail("in needs a list or a map")


def _int64(value: int) -> int:
    return value if value in INT64 else fail("integer overflow")


def product(left: Any, right: Any) -> Any:
    """Return the product of two numbers of one kind."""
    left, right = _numbers(left, right)
    return _int64(left * right) if isinstance(left, int) else left * right


def _numbers(left: Any, right: Any) -> tuple[Any, Any]:
    if isinstance(right, float) and isinstance(left, int) and not isinstance(left, bool) and left in (1, -1):
        left = float(left)  # a sign
    same = type(left) is type(right) and isinstance(left, (int, float)) and not isinstance(left, bool)
    return (left, right) if same else fail("two numbers of one kind were expected")


def _sum_of(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right if len(left) + len(right) <= MAX_TEXT else fail("text too long")
    left, right = _numbers(left, right)
    return _int64(left + right) if isinstance(left, int) else left + right


def _difference(left: Any, right: Any) -> Any:
    left, right = _numbers(left, right)
    return _int64(left - right) if isinstance(left, int) else left - right


def _divided(left: Any, right: Any) -> Any:
    left, right = _numbers(left, right)
    if right == 0:
        fail("division by zero")
    if isinstance(left, float):
        return left / right
    return _int64(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))


def _remainder(left: Any, right: Any) -> Any:
    left, right = _numbers(left, right)
    if isinstance(left, float) or right == 0:
        fail("no remainder")
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _texts(function: Callable[[str, str], Any]) -> Callable[[Any, Any], Any]:
    def call(left: Any, right: Any) -> Any:
        return function(left, right) if isinstance(left, str) and isinstance(right, str) else fail("no text")

    return call


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | Mapping) else fail("no size")


def _of_text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if isinstance(value, str) else fail("a text was expected")


def _part(place: int) -> Callable[[Any], int]:
    return lambda value: value.numbers[place] if isinstance(value, Version) else fail("a version was expected")


RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": lambda left, right: _ordered(left, right) < 0,
    "<=": lambda left, right: _ordered(left, right) <= 0,
    ">": lambda left, right: _ordered(left, right) > 0,
    ">=": lambda left, right: _ordered(left, right) >= 0,
    "in": _contained,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": _sum_of,
    "-": _difference,
    "*": product,
    "/": _divided,
    "%": _remainder,
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "quantity": _of_text(quantity),
    "semver": _of_text(version),
    "size": _size,
}
METHODS: dict[tuple[str, int], Callable[..., Any]] = {
    ("compareTo", 1): _compared,
    ("isGreaterThan", 1): lambda left, right: _compared(left, right) > 0,
    ("isLessThan", 1): lambda left, right: _compared(left, right) < 0,
    ("startsWith", 1): _texts(lambda left, right: left.startswith(right)),
    ("endsWith", 1): _texts(lambda left, right: left.endswith(right)),
    ("contains", 1): _texts(lambda left, right: right in left),
    ("lowerAscii", 0): _of_text(str.lower),
    ("upperAscii", 0): _of_text(str.upper),
    ("size", 0): _size,
    ("major", 0): _part(0),
    ("minor", 0): _part(1),
    ("patch", 0): _part(2),
}
