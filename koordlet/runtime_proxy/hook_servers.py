"""Calls to the registered hook servers, each with a time limit and its failure policy."""

import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.forwarding import RECONNECT_OPTIONS
from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.merging import AnswerMalformed, check_container_answer, check_pod_answer
from koordlet.runtime_proxy.registration import FailurePolicy, HookServer

_log = logging.getLogger(__name__)

_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    *RECONNECT_OPTIONS,
)
Request: TypeAlias = pb.PodSandboxHookRequest | pb.ContainerResourceHookRequest
Answer = TypeVar("Answer", pb.PodSandboxHookResponse, pb.ContainerResourceHookResponse)


class HookFailed(Exception):
    """A hook of a server with policy Fail failed; the message names server, hook and cause."""

    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.code = code


class Registrations(Protocol):
    """Hook servers as they are registered."""

    def of(self, hook: HookType) -> tuple[HookServer, ...]:
        """Return the servers that listed the hook, in the order in which they are asked."""

    def servers(self) -> tuple[HookServer, ...]:
        """Return all servers."""


class HookServers:
    """Clients of the registered hook servers."""

    def __init__(self, registrations: Registrations, timeout_seconds: float) -> None:
        self._registrations = registrations
        self._timeout_seconds = timeout_seconds
        self._channels: dict[str, aio.Channel] = {}
        self._failing: dict[tuple[str, HookType], int] = {}

    def any_of(self, hook: HookType) -> bool:
        """Return whether a server listed the hook."""
        return bool(self._registrations.of(hook))

    def any_strict(self, hook: HookType) -> bool:
        """Return whether a server with policy Fail listed the hook."""
        return any(server.policy is FailurePolicy.FAIL for server in self._registrations.of(hook))

    async def ask_about_pod(
        self,
        hook: HookType,
        asked: pb.PodSandboxHookRequest,
        remaining_seconds: float | None,
        merge: Callable[[pb.PodSandboxHookResponse], object],
    ) -> bool:
        """Ask each server in turn and merge its answer; return whether all answered. Raises HookFailed."""
        answered = [
            await self._ask(server, hook, asked, remaining_seconds, pb.PodSandboxHookResponse, check_pod_answer, merge)
            for server in self._registrations.of(hook)
        ]
        return all(answered)

    async def ask_about_container(
        self,
        hook: HookType,
        asked: pb.ContainerResourceHookRequest,
        remaining_seconds: float | None,
        merge: Callable[[pb.ContainerResourceHookResponse], object],
    ) -> bool:
        """Ask each server in turn and merge its answer; return whether all answered. Raises HookFailed."""
        answer = pb.ContainerResourceHookResponse
        answered = [
            await self._ask(server, hook, asked, remaining_seconds, answer, check_container_answer, merge)
            for server in self._registrations.of(hook)
        ]
        return all(answered)

    async def forget_unregistered(self) -> None:
        """Close connections to servers that are no longer registered."""
        used = {server.socket for server in self._registrations.servers()}
        for socket in self._channels.keys() - used:
            await self._channels.pop(socket).close()

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _ask(
        self,
        server: HookServer,
        hook: HookType,
        asked: Request,
        remaining_seconds: float | None,
        kind: type[Answer],
        check: Callable[[Answer], None],
        merge: Callable[[Answer], object],
    ) -> bool:
        # Half of the caller's time is left for the runtime, so that a hook that is late fails alone.
        limit = min(self._timeout_seconds, (remaining_seconds or 2 * self._timeout_seconds) / 2)
        call: aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel(server.socket).unary_unary(hook.method)
        try:
            data = await call(asked.SerializeToString(), timeout=limit)
            answer = kind.FromString(data)
            check(answer)
        except aio.AioRpcError as error:
            return self._failed(server, hook, f"{error.code().name}: {error.details()}", error.code())
        except DecodeError:
            return self._failed(server, hook, "the answer is no message of this hook", grpc.StatusCode.INTERNAL)
        except AnswerMalformed as error:
            return self._failed(server, hook, f"malformed answer: {error}", grpc.StatusCode.INTERNAL)
        if missed := self._failing.pop((server.name, hook), 0):
            _log.warning("hook %s of %s answers again, after %d failures", hook.value, server.name, missed)
        if hook.is_before:
            merge(answer)
        return True

    def _failed(self, server: HookServer, hook: HookType, cause: str, code: grpc.StatusCode) -> bool:
        key = (server.name, hook)
        self._failing[key] = self._failing.get(key, 0) + 1
        is_fatal = hook.is_before and server.policy is FailurePolicy.FAIL
        message = f"hook {hook.value} of {server.name} ({server.socket}): {cause}"
        if self._failing[key] == 1:
            _log.warning("%s; %s", message, "the call fails" if is_fatal else "the call goes on without it")
        if is_fatal:
            raise HookFailed(message, code)
        return False

    def _channel(self, socket: str) -> aio.Channel:
        if socket not in self._channels:
            self._channels[socket] = aio.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS)
        return self._channels[socket]
