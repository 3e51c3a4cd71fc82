"""Messages compared without their definitions, so that fields of later versions count too. Pure."""

import re
from typing import TypeAlias

_LONG_AGO = 10**15
"""Numbers from here on are times in nanoseconds."""
_ID = re.compile(r"[0-9a-f]{64}")
_TOKEN = re.compile(r"/(exec|attach|portforward)/[\w-]+$")

Value: TypeAlias = "int | str | tuple[tuple[int, Value], ...]"


class NoMessageError(Exception):
    """Bytes that are no message of protobuf's wire format."""


def fields_of(data: bytes) -> list[tuple[int, int | bytes]]:
    """Return the fields of a message in their order, by number. Raises NoMessageError."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if not number or kind not in (0, 1, 2, 5):
            raise NoMessageError
        if kind == 0:
            value, at = _varint(data, at)
            found.append((number, value))
            continue
        length, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
        if at + length > len(data):
            raise NoMessageError
        found.append((number, data[at : at + length]))
        at += length
    return found


def canonical(data: bytes, names: dict[str, str]) -> Value:
    """Return a message such that equal contents compare equal: times are left out, repeated fields are in any order.

    `names` is what to write for texts that differ between two runs: ids of pods and containers, for instance. Raises
    NoMessageError.
    """
    return tuple(sorted(((number, _value(value, names)) for number, value in fields_of(data)), key=repr))


def shape(value: Value) -> Value:
    """Return which fields a message has, without what is in them: a runtime collects its figures from time to time."""
    return tuple(sorted({(number, "") for number, _ in value})) if isinstance(value, tuple) else ""


def _value(value: int | bytes, names: dict[str, str]) -> Value:
    if isinstance(value, int):
        return value if value < _LONG_AGO else "time"
    try:
        text = value.decode()
        is_text = text.replace("\n", "").replace("\t", "").isprintable()
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return renamed(text, names)
    try:
        return canonical(value, names)
    except NoMessageError:
        return value.hex()


def renamed(text: str, names: dict[str, str]) -> str:
    """Return a text with other words for ids and tokens."""
    for name, instead in names.items():
        text = text.replace(name, instead)
    return _TOKEN.sub(r"/\1/token", _ID.sub("id", text))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise NoMessageError
