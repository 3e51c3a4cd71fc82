"""Registration of a hook server: a JSON file `{"remote-endpoint", "failure-policy", "runtime-hooks"}`."""

import enum
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from koordlet.runtime_proxy.hook_types import NRI_ONLY, HookType

MAX_FILE_BYTES = 64 << 10


class FailurePolicy(enum.Enum):
    """What a failed hook does to the call."""

    FAIL = "Fail"
    """The call fails with the hook's error."""
    IGNORE = "Ignore"
    """The call goes on as it came."""


@dataclass(frozen=True, slots=True)
class HookServer:
    """A registered hook server."""

    name: str
    """Name of its registration file."""
    socket: str
    """Absolute path of its unix socket."""
    policy: FailurePolicy
    hooks: frozenset[HookType]
    unknown_hooks: tuple[str, ...] = ()
    """Names in the file that are no hooks of a proxy; they are not called."""


class RegistrationInvalid(Exception):
    """A registration file that cannot be used; the message names file, key and remedy."""


class _File(msgspec.Struct):
    """The file; further keys are left to later versions of the protocol."""

    endpoint: str = msgspec.field(name="remote-endpoint", default="")
    policy: str = msgspec.field(name="failure-policy", default="")
    hooks: list[str] = msgspec.field(name="runtime-hooks", default_factory=list)


def parse_registration(path: str, data: bytes) -> HookServer:
    """Return the hook server of a registration file. Raises RegistrationInvalid."""
    if len(data) > MAX_FILE_BYTES:
        raise RegistrationInvalid(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        file = msgspec.json.decode(data, type=_File)
    except (ValueError, RecursionError) as error:
        raise RegistrationInvalid(f"{path}: {error}") from error
    known = {hook.value: hook for hook in HookType}
    return HookServer(
        PurePosixPath(path).name,
        _socket(path, file.endpoint),
        _policy(path, file.policy),
        frozenset(known[name] for name in file.hooks if name in known),
        tuple(name for name in file.hooks if name not in known and name not in NRI_ONLY),
    )


def format_registration(server: HookServer) -> bytes:
    """Return the content of the server's registration file."""
    hooks = [hook.value for hook in HookType if hook in server.hooks]
    return msgspec.json.format(msgspec.json.encode(_File(server.socket, server.policy.value, hooks))) + b"\n"


def _socket(path: str, endpoint: str) -> str:
    socket = endpoint.removeprefix("unix://").removeprefix("unix:")
    if not socket.startswith("/") or "\0" in socket:
        raise RegistrationInvalid(f"{path}: remote-endpoint {endpoint!r} is no absolute path of a unix socket")
    return socket


def _policy(path: str, policy: str) -> FailurePolicy:
    try:
        return FailurePolicy(policy or "Ignore")
    except ValueError:
        raise RegistrationInvalid(f"{path}: failure-policy {policy!r} is neither Fail nor Ignore") from None
