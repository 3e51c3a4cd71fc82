"""Expressions that select devices: a bounded part of CEL, compiled once and asked for each device.

There are literals, lists, `device.driver`, `device.allowMultipleAllocations`, `device.attributes[...]`,
`device.capacity[...]`, comparisons, `in`, `&&`, `||`, `!`, `?:`, arithmetic, `has`, `size`, `cel.bind`, quantities,
versions and the plain functions of strings. There are no loops (`all`, `exists`, `map`, ...) and no regular
expressions, and a list is compared where it is written: it is not bound to a name, chosen by `?:` or part of a list,
which could make it as large as a power of the expression's length. So an expression takes time in proportion to its
length. What is not there is refused by name when the expression is compiled. Sources: the CEL language definition;
Kubernetes' `resource.k8s.io/v1` CELDeviceSelector.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from api.kube.resources import QuantityError, parse_quantity

MAX_LENGTH = 10 * 1024
"""The API server's own bound."""
MAX_DEPTH = 64
INT64 = range(-(2**63), 2**63)

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?P<unsigned>[uU]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]]))""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
_SEMVER = re.compile(
    r"(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})\.(0|[1-9]\d{0,18})(?:-([0-9A-Za-z.-]{1,128}))?(?:\+[0-9A-Za-z.-]{1,128})?"
)
_LOOPS = ("all", "exists", "exists_one", "map", "filter", "matches", "find", "findAll", "sortBy")


class ExpressionError(ValueError):
    """An expression that cannot be compiled; the message says why."""


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


class _Domains(dict[str, Mapping[str, Any]]):
    """Attributes or capacity by domain; a domain that the device does not have is empty, as upstream."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]
Step = Callable[[Any, Scope], Any]
"""What is done with the value to its left."""


@dataclass(frozen=True, slots=True)
class _List:
    """A list as it is written; a Node."""

    items: list[Node]

    def __call__(self, scope: Scope) -> list[Any]:
        return [item(scope) for item in self.items]


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression."""

    text: str
    _root: Node

    def selects(self, device: Selectable) -> bool:
        """Return whether the device is meant. Raises EvaluationError, which the claim's author is told of."""
        try:
            value = self._root({"device": device})
        except RecursionError:
            _fail(f"too many levels: {self.text[:80]}")
        if not isinstance(value, bool):
            raise EvaluationError(f"the result is no bool: {self.text[:80]}")
        return value


def compiled(text: str) -> Expression:
    """Compile an expression. Raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters")
    parser = _Parser(_tokens(text))
    try:
        root = parser.ternary(0)
    except RecursionError as error:
        raise ExpressionError("too many levels") from error
    parser.end()
    return Expression(text, root)


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


def _tokens(text: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            raise ExpressionError(f"not understood at {text[at : at + 20]!r}")
        at = token.end()
        if token["number"]:
            found.append(("value", _number(token["number"])))
        elif token["text"]:
            found.append(("value", _text(token["text"][1:-1])))
        else:
            found.append(("name", token["name"]) if token["name"] else ("sign", token["sign"]))
    return found


def _number(text: str) -> int | float:
    if text.startswith("0x"):
        value: int | float = int(text, 16)
    else:
        value = float(text) if any(sign in text for sign in ".eE") else int(text)
    if isinstance(value, int) and value not in INT64:
        raise ExpressionError(f"number out of range: {text[:30]}")
    return value


def _text(raw: str) -> str:
    def read(found: re.Match[str]) -> str:
        sign = found[1]
        if sign not in _ESCAPES:
            raise ExpressionError(f"escape \\{sign} is not supported")
        return _ESCAPES[sign]

    return re.sub(r"\\(.)", read, raw)


class _Parser:
    """Recursive descent, bounded in depth."""

    def __init__(self, tokens: list[tuple[str, Any]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._bound: list[str] = []

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise ExpressionError(f"not understood: {self._tokens[self._at][1]!r}")

    def ternary(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"deeper than {MAX_DEPTH} levels")
        test = self._either(depth)
        if not self._take("?"):
            return test
        then = _no_list(self.ternary(depth + 1), "chosen by ?:")
        self._need(":")
        other = _no_list(self.ternary(depth + 1), "chosen by ?:")
        return lambda scope: then(scope) if _bool(test(scope)) else other(scope)

    def _either(self, depth: int) -> Node:
        parts = [self._both(depth)]
        while self._take("||"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else _joined(parts, decides=True)

    def _both(self, depth: int) -> Node:
        parts = [self._relation(depth)]
        while self._take("&&"):
            parts.append(self._relation(depth))
        return parts[0] if len(parts) == 1 else _joined(parts, decides=False)

    def _relation(self, depth: int) -> Node:
        left, steps = self._sum(depth), list[Step]()
        while (sign := self._one_of("==", "!=", "<=", ">=", "<", ">", "in")) is not None:
            steps.append(_with(_RELATIONS[sign], self._sum(depth)))
        return _chain(left, steps)

    def _sum(self, depth: int) -> Node:
        left, steps = self._product(depth), list[Step]()
        while (sign := self._one_of("+", "-")) is not None:
            steps.append(_with(_ARITHMETIC[sign], self._product(depth)))
        return _chain(left, steps)

    def _product(self, depth: int) -> Node:
        left, steps = self._unary(depth), list[Step]()
        while (sign := self._one_of("*", "/", "%")) is not None:
            steps.append(_with(_ARITHMETIC[sign], self._unary(depth)))
        return _chain(left, steps)

    def _unary(self, depth: int) -> Node:
        nots = minuses = 0
        while (sign := self._one_of("!", "-")) is not None:
            nots, minuses = nots + (sign == "!"), minuses + (sign == "-")
        if nots and minuses:
            raise ExpressionError("! and - on one value")
        inner = self._postfix(depth)
        if nots:
            return lambda scope: _bool(inner(scope)) is bool(nots % 2 == 0)
        if minuses:
            factor = -1 if minuses % 2 else 1
            return lambda scope: _product_of(factor, inner(scope))
        return inner

    def _postfix(self, depth: int) -> Node:
        value, steps = self._primary(depth), list[Step]()
        while len(steps) < MAX_DEPTH:
            if self._take("."):
                name = self._name()
                steps.append(_method(name, self._arguments(depth)) if self._take("(") else _field(name))
            elif self._take("["):
                steps.append(_with(_index, self.ternary(depth + 1)))
                self._need("]")
            else:
                return _chain(value, steps)
        raise ExpressionError(f"more than {MAX_DEPTH} steps from one value")

    def _primary(self, depth: int) -> Node:
        kind, token = self._next()
        if kind == "value":
            return lambda _: token
        if token == "(":
            inner = self.ternary(depth + 1)
            self._need(")")
            return inner
        if token == "[":
            return _List([_no_list(item, "inside a list") for item in self._arguments(depth, "]")])
        if kind != "name":
            raise ExpressionError(f"not understood: {token!r}")
        if token in ("true", "false"):
            return lambda _: token == "true"
        if token == "cel" and self._take("."):
            return self._binding(depth)
        if self._take("("):
            return self._call(token, depth)
        if token != "device" and token not in self._bound:
            raise ExpressionError(f"no variable {token}; there is device")
        return lambda scope: scope[token]

    def _binding(self, depth: int) -> Node:
        if self._name() != "bind" or not self._take("("):
            raise ExpressionError("of cel there is bind alone")
        name = self._name()
        self._need(",")
        value = _no_list(self.ternary(depth + 1), "bound to a name")
        self._need(",")
        self._bound.append(name)
        body = _no_list(self.ternary(depth + 1), "returned by cel.bind")
        self._bound.pop()
        self._need(")")
        return lambda scope: body({**scope, name: value(scope)})

    def _call(self, name: str, depth: int) -> Node:
        arguments = self._arguments(depth)
        if name == "has" and len(arguments) == 1:
            inner = arguments[0]

            def present(scope: Scope) -> bool:
                try:
                    inner(scope)
                except EvaluationError:
                    return False
                return True

            return present
        function = _FUNCTIONS.get(name)
        if function is None or len(arguments) != 1:
            raise ExpressionError(f"function {name} with {len(arguments)} arguments is not supported")
        argument = arguments[0]
        return lambda scope: function(argument(scope))

    def _arguments(self, depth: int, close: str = ")") -> list[Node]:
        found: list[Node] = []
        while not self._take(close):
            if found:
                self._need(",")
            found.append(self.ternary(depth + 1))
        return found

    def _next(self) -> tuple[str, Any]:
        if self._at >= len(self._tokens):
            raise ExpressionError("ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _name(self) -> str:
        kind, token = self._next()
        if kind != "name":
            raise ExpressionError(f"expected a name, found {token!r}")
        return str(token)

    def _one_of(self, *signs: str) -> str | None:
        return next((sign for sign in signs if self._take(sign)), None)

    def _take(self, sign: str) -> bool:
        kind = "name" if sign == "in" else "sign"
        if self._at < len(self._tokens) and self._tokens[self._at] == (kind, sign):
            self._at += 1
            return True
        return False

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise ExpressionError(f"expected {sign}")


def _joined(parts: list[Node], *, decides: bool) -> Node:
    """`||` and `&&`: a part that decides the result wins over parts that fail."""

    def evaluate(scope: Scope) -> bool:
        failure: EvaluationError | None = None
        for part in parts:
            try:
                if _bool(part(scope)) is decides:
                    return decides
            except EvaluationError as error:
                failure = error
        if failure is not None:
            raise failure
        return not decides

    return evaluate


def _no_list(node: Node, place: str) -> Node:
    if isinstance(node, _List):
        raise ExpressionError(f"a list {place} is not supported here")
    return node


def _chain(first: Node, steps: list[Step]) -> Node:
    """`first` and what is done with it, in a loop: the length of a chain is no depth."""
    if not steps:
        return first

    def evaluate(scope: Scope) -> Any:
        value = first(scope)
        for step in steps:
            value = step(value, scope)
        return value

    return evaluate


def _with(operation: Callable[[Any, Any], Any], right: Node) -> Step:
    return lambda left, scope: operation(left, right(scope))


def _field(name: str) -> Step:
    def evaluate(found: Any, _: Scope) -> Any:
        if isinstance(found, Selectable):
            if name == "allowMultipleAllocations":
                return found.shareable
            if name not in ("driver", "attributes", "capacity"):
                _fail(f"device has no {name}")
            return found.driver if name == "driver" else _Domains(getattr(found, name))
        return _index(found, name)

    return evaluate


def _method(name: str, arguments: list[Node]) -> Step:
    method = _METHODS.get((name, len(arguments)))
    if method is None:
        why = "loops and regular expressions are" if name in _LOOPS else f"{name} with {len(arguments)} arguments is"
        raise ExpressionError(f"{why} not supported here")
    return lambda value, scope: method(value, *[argument(scope) for argument in arguments])


def _fail(problem: str) -> NoReturn:
    raise EvaluationError(problem)


def _bool(value: Any) -> bool:
    return value if isinstance(value, bool) else _fail("a bool was expected")


def _index(value: Any, key: Any) -> Any:
    if isinstance(value, Mapping):
        known = isinstance(key, str) and (key in value or isinstance(value, _Domains))
        return value[key] if known else _fail(f"no such key: {key}")
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(value):
        return value[key]
    return _fail("no such element")


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
    _fail("quantities or versions were expected")


def _ordered(left: Any, right: Any) -> int:
    for kinds in ((int, float), (str,)):
        if all(isinstance(value, kinds) and not isinstance(value, bool) for value in (left, right)):
            return int(left > right) - int(left < right)
    _fail("these values have no order")


def _contained(left: Any, right: Any) -> bool:
    if isinstance(right, list):
        return any(_equal(left, item) for item in right)
    if isinstance(right, Mapping):
        return isinstance(left, str) and left in right
    _fail("in needs a list or a map")


def _int64(value: int) -> int:
    return value if value in INT64 else _fail("integer overflow")


def _product_of(left: Any, right: Any) -> Any:
    left, right = _numbers(left, right)
    return _int64(left * right) if isinstance(left, int) else left * right


def _numbers(left: Any, right: Any) -> tuple[Any, Any]:
    if isinstance(right, float) and isinstance(left, int) and not isinstance(left, bool) and left in (1, -1):
        left = float(left)  # a sign
    same = type(left) is type(right) and isinstance(left, (int, float)) and not isinstance(left, bool)
    return (left, right) if same else _fail("two numbers of one kind were expected")


def _sum_of(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right if len(left) + len(right) <= MAX_LENGTH else _fail("text too long")
    left, right = _numbers(left, right)
    return _int64(left + right) if isinstance(left, int) else left + right


def _difference(left: Any, right: Any) -> Any:
    left, right = _numbers(left, right)
    return _int64(left - right) if isinstance(left, int) else left - right


def _divided(left: Any, right: Any) -> Any:
    left, right = _numbers(left, right)
    if right == 0:
        _fail("division by zero")
    if isinstance(left, float):
        return left / right
    return _int64(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))


def _remainder(left: Any, right: Any) -> Any:
    left, right = _numbers(left, right)
    if isinstance(left, float) or right == 0:
        _fail("no remainder")
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _texts(function: Callable[[str, str], Any]) -> Callable[[Any, Any], Any]:
    def call(left: Any, right: Any) -> Any:
        return function(left, right) if isinstance(left, str) and isinstance(right, str) else _fail("no text")

    return call


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | Mapping) else _fail("no size")


def _of_text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if isinstance(value, str) else _fail("a text was expected")


def _part(place: int) -> Callable[[Any], int]:
    return lambda value: value.numbers[place] if isinstance(value, Version) else _fail("a version was expected")


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": lambda left, right: _ordered(left, right) < 0,
    "<=": lambda left, right: _ordered(left, right) <= 0,
    ">": lambda left, right: _ordered(left, right) > 0,
    ">=": lambda left, right: _ordered(left, right) >= 0,
    "in": _contained,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": _sum_of,
    "-": _difference,
    "*": _product_of,
    "/": _divided,
    "%": _remainder,
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "quantity": _of_text(quantity),
    "semver": _of_text(version),
    "size": _size,
}
_METHODS: dict[tuple[str, int], Callable[..., Any]] = {
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
