"""Expressions that select devices: a bounded part of CEL, compiled once and asked for each device.

There are literals, lists, `device.driver`, `device.allowMultipleAllocations`, `device.attributes[...]`,
`device.capacity[...]`, comparisons, `in`, `&&`, `||`, `!`, `?:`, arithmetic, `has`, `size`, `cel.bind`, quantities,
versions and the plain functions of strings. There are no loops (`all`, `exists`, `map`, ...) and no regular
expressions, and a list is compared where it is written: it is not bound to a name, chosen by `?:` or part of a list,
which could make it as large as a power of the expression's length. So an expression takes time in proportion to its
length. What is not there is refused by name when the expression is compiled. Sources: the CEL language definition;
Kubernetes' `resource.k8s.io/v1` CELDeviceSelector.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.claims.operators import ARITHMETIC, FUNCTIONS, METHODS, RELATIONS, boolean, fail, field, index, product
from scheduler.claims.selectable import EvaluationError, Selectable
from scheduler.claims.tokens import ExpressionError, tokens

MAX_LENGTH = 10 * 1024
"""The API server's own bound."""
MAX_DEPTH = 64
_LOOPS = ("all", "exists", "exists_one", "map", "filter", "matches", "find", "findAll", "sortBy")

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
            fail(f"too many levels: {self.text[:80]}")
        if not isinstance(value, bool):
            raise EvaluationError(f"the result is no bool: {self.text[:80]}")
        return value


def compiled(text: str) -> Expression:
    """Compile an expression. Raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters")
    parser = _Parser(tokens(text))
    try:
        root = parser.ternary(0)
    except RecursionError as error:
        raise ExpressionError("too many levels") from error
    parser.end()
    return Expression(text, root)


class _Parser:
    """Recursive descent, bounded in depth."""

    def __init__(self, found: list[tuple[str, Any]]) -> None:
        self._tokens = found
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
        return lambda scope: then(scope) if boolean(test(scope)) else other(scope)

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
            steps.append(_with(RELATIONS[sign], self._sum(depth)))
        return _chain(left, steps)

    def _sum(self, depth: int) -> Node:
        left, steps = self._product(depth), list[Step]()
        while (sign := self._one_of("+", "-")) is not None:
            steps.append(_with(ARITHMETIC[sign], self._product(depth)))
        return _chain(left, steps)

    def _product(self, depth: int) -> Node:
        left, steps = self._unary(depth), list[Step]()
        while (sign := self._one_of("*", "/", "%")) is not None:
            steps.append(_with(ARITHMETIC[sign], self._unary(depth)))
        return _chain(left, steps)

    def _unary(self, depth: int) -> Node:
        nots = minuses = 0
        while (sign := self._one_of("!", "-")) is not None:
            nots, minuses = nots + (sign == "!"), minuses + (sign == "-")
        if nots and minuses:
            raise ExpressionError("! and - on one value")
        inner = self._postfix(depth)
        if nots:
            return lambda scope: boolean(inner(scope)) is bool(nots % 2 == 0)
        if minuses:
            factor = -1 if minuses % 2 else 1
            return lambda scope: product(factor, inner(scope))
        return inner

    def _postfix(self, depth: int) -> Node:
        value, steps = self._primary(depth), list[Step]()
        while len(steps) < MAX_DEPTH:
            if self._take("."):
                name = self._name()
                steps.append(_method(name, self._arguments(depth)) if self._take("(") else _field(name))
            elif self._take("["):
                steps.append(_with(index, self.ternary(depth + 1)))
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
        function = FUNCTIONS.get(name)
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
                if boolean(part(scope)) is decides:
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
    return lambda found, _: field(found, name)


def _method(name: str, arguments: list[Node]) -> Step:
    method = METHODS.get((name, len(arguments)))
    if method is None:
        why = "loops and regular expressions are" if name in _LOOPS else f"{name} with {len(arguments)} arguments is"
        raise ExpressionError(f"{why} not supported here")
    return lambda value, scope: method(value, *[argument(scope) for argument in arguments])
