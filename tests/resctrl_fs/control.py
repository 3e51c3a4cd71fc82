"""The control channel: requests by which a test sets what the hardware would count. One JSON line each."""

from typing import Literal

import msgspec

from tests.resctrl_fs.counters import Unreadable
from tests.resctrl_fs.tree import ResctrlTree


class CounterRequest(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True):
    """Names one event of one group's own RMID; `domain` None means every domain."""

    group: str
    event: str
    domain: int | None = None


class SetValue(CounterRequest, frozen=True, tag="set", kw_only=True):
    """Let the event read `value` bytes."""

    value: int


class SetRate(CounterRequest, frozen=True, tag="rate", kw_only=True):
    """Let the event grow from what it reads."""

    bytes_per_second: float


class SetUnreadable(CounterRequest, frozen=True, tag="unreadable", kw_only=True):
    """Let the event read "Unavailable" or "Error", for one read or until it is set."""

    reading: Unreadable
    is_once: bool = False


class Reply(msgspec.Struct, frozen=True):
    """`error` is None for a request that was carried out."""

    error: str | None = None
    kind: Literal["reply"] = "reply"


Request = SetValue | SetRate | SetUnreadable


def apply(tree: ResctrlTree, request: Request) -> None:
    """Carry out one request; raises OSError for an unknown group, ValueError for an event or domain."""
    monitoring = tree.groups.machine.monitoring
    if monitoring is None or request.event not in monitoring.events:
        raise ValueError(f"no monitoring event {request.event!r} on this machine")
    if request.domain is not None and request.domain not in monitoring.domains:
        raise ValueError(f"no monitoring domain {request.domain} on this machine")
    rmid = tree.group_at(request.group).rmid
    for domain in monitoring.domains if request.domain is None else (request.domain,):
        match request:
            case SetValue(value=value):
                tree.counters.set_value(rmid, request.event, domain, value)
            case SetRate(bytes_per_second=rate):
                tree.counters.set_rate(rmid, request.event, domain, rate)
            case SetUnreadable(reading=reading, is_once=is_once):
                tree.counters.set_unreadable(rmid, request.event, domain, reading, is_once)


def answer(tree: ResctrlTree, line: bytes) -> bytes:
    """Decode, carry out and answer one request line."""
    try:
        apply(tree, msgspec.json.decode(line, type=Request))
    except (OSError, ValueError, msgspec.DecodeError) as error:
        return msgspec.json.encode(Reply(str(error))) + b"\n"
    return msgspec.json.encode(Reply()) + b"\n"
