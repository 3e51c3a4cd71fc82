"""Expressions as tokens: names, signs, numbers and texts."""

import re
from typing import Any

INT64 = range(-(2**63), 2**63)
"""Whole numbers that there are."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?P<unsigned>[uU]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]]))""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}


class ExpressionError(ValueError):
    """An expression that cannot be compiled; the message says why."""


def tokens(text: str) -> list[tuple[str, Any]]:
    """Kind and value of each token: `value`, `name` or `sign`. Raises ExpressionError."""
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
