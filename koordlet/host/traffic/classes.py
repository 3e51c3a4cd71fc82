"""Traffic classes as values: the text of `net.class`, handles on the link, and guaranteed rates. Pure.

    4b64:    HTB, the root of the link; its handle identifies it as ours
    4b64:1   all egress: the link's rate
    4b64:2   the default class, for traffic without a class: guaranteed the rest of the link
    4b64:N   a cgroup: guaranteed its rate, up to its ceiling while the link has room; N from 16

HTB serves classes within their guaranteed rate first, then those that borrow, the lower `prio` first (tc-htb(8)).
"""

import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

MAJOR = 0x4B64
ROOT = MAJOR << 16
LINK_CLASS = ROOT | 1
DEFAULT_CLASS = ROOT | 2
FIRST_MINOR, LAST_MINOR = 0x10, 0xFFFE
DEFAULT_CLASS_PRIORITY = 1
"""Priority of system traffic: no class comes before it."""
LEAST_RATE_BYTES = 1000
"""Per second. At less than that one packet waits for longer than a connection lives."""
_MOST_BYTES = (1 << 63) - 1
_PRIORITIES = range(8)
_DEFAULT_CLASS_FRACTION = 10


@dataclass(frozen=True, slots=True)
class Traffic:
    """A class; rates are bytes per second."""

    rate: int
    ceiling: int
    priority: int

    def __str__(self) -> str:
        return f"rate={self.rate} ceil={self.ceiling} prio={self.priority}"


def parse_traffic(text: str, link_rate: int) -> Traffic:
    """`rate=1000 ceil=2000 prio=1`, cut to the link's rate, which is the ceiling where none is given.

    Raises ValueError for anything else; 0 is not unlimited.
    """
    words = [word.partition("=") for word in text.split()]
    said = {key: value for key, _, value in words}
    unknown = said.keys() - {"rate", "ceil", "prio"}
    if unknown or len(said) != len(words):
        raise ValueError(f"net.class: {text!r} is not `rate=<bytes/s> [ceil=<bytes/s>] prio=<0-7>`")
    for key in ("rate", "prio"):
        if key not in said:
            raise ValueError(f"net.class: {text!r} has no {key}")
    rate = _number("rate", said["rate"], LEAST_RATE_BYTES, _MOST_BYTES)
    ceiling = _number("ceil", said.get("ceil", str(max(rate, link_rate))), LEAST_RATE_BYTES, _MOST_BYTES)
    priority = _number("prio", said["prio"], _PRIORITIES.start, _PRIORITIES.stop - 1)
    if ceiling < rate:
        raise ValueError(f"net.class: ceil {ceiling} is below rate {rate}")
    return Traffic(min(rate, link_rate), min(ceiling, link_rate), priority)


def _number(key: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"net.class: {key} {text!r} is no whole number")
    number = int(text)
    if number == 0 and least > 0:
        raise ValueError(f"net.class: {key} 0 is not unlimited; leave ceil out for the link's rate")
    if not least <= number <= most:
        raise ValueError(f"net.class: {key} {number} is not between {least} and {most}")
    return number


def choose_minor(target: str, taken: Collection[int]) -> int:
    """A minor number for a cgroup: the same for the same path unless it is taken, then the next free one.

    Raises ValueError when all are taken.
    """
    count = LAST_MINOR - FIRST_MINOR + 1
    start = zlib.crc32(target.encode()) % count
    for step in range(count):
        minor = FIRST_MINOR + (start + step) % count
        if minor not in taken:
            return minor
    raise ValueError(f"net.class: all {count} traffic classes of the link are taken")


def default_class_rate(link_rate: int, promised: Iterable[int]) -> int:
    """Guaranteed rate of the default class: the rest of the link, and never less than a tenth of it."""
    return max(link_rate - sum(promised), link_rate // _DEFAULT_CLASS_FRACTION, LEAST_RATE_BYTES)


def default_interface(routes: str, routes6: str) -> str | None:
    """The interface of the default route by /proc/net/route, else /proc/net/ipv6_route; the lowest metric counts."""
    found = [
        (int(words[6]), words[0])
        for words in map(str.split, routes.splitlines()[1:])
        if len(words) >= 8 and words[1] == words[7] == "00000000"
    ]
    if not found:
        found = [
            (int(words[5], 16), words[9])
            for words in map(str.split, routes6.splitlines())
            if len(words) >= 10 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo"
        ]
    return min(found)[1] if found else None
