"""Calls forwarded to the runtime as bytes: messages, metadata, deadlines, cancellation and status as they are."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc
from grpc import aio

Context: TypeAlias = aio.ServicerContext[bytes, bytes]
_Unary: TypeAlias = aio.UnaryUnaryMultiCallable[bytes, bytes]
_UnaryStream: TypeAlias = aio.UnaryStreamMultiCallable[bytes, bytes]
_StreamStream: TypeAlias = aio.StreamStreamMultiCallable[bytes, bytes]

MAX_MESSAGE_BYTES = 16 << 20
"""The kubelet's own limit for answers of a runtime."""
MAX_METADATA_BYTES = 1 << 20
"""Room for long error details, for which gRPC's default of 8 KiB is too small."""

_LIMITS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
)
RECONNECT_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),  # a kubelet that starts just after its runtime gives up at its first call
    ("grpc.min_reconnect_backoff_ms", 5000),  # time limit of one attempt, in spite of its name
)
CHANNEL_OPTIONS = (
    *_LIMITS,
    ("grpc.default_authority", "localhost"),  # runtimes refuse the path of a socket as authority
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # the kubelet retries
    *RECONNECT_OPTIONS,
)
"""No keepalive pings: gRPC servers in Go close connections that ping more often than every five minutes, and the end of
a peer on a unix socket is noticed at once."""
SERVER_OPTIONS = (
    *_LIMITS,
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.so_reuseport", 0),
)
_OWN_METADATA = frozenset({"user-agent"})
"""Keys that each gRPC client sets itself."""
_SECOND_MESSAGE_SECONDS = 0.05
"""Time in which a caller that sends one message says that it was the last. Forwarded as such, and not as a stream, the
status survives a runtime that refuses the method unread: gRPC reports INTERNAL for streams that end so early, and the
kubelet needs UNIMPLEMENTED."""
_LONGEST_TIMEOUT_SECONDS = 366 * 86_400.0


def remaining_seconds(context: Context) -> float | None:
    """Return the time until the caller's deadline; None without one."""
    seconds = context.time_remaining()
    return None if seconds is None or math.isinf(seconds) or seconds > _LONGEST_TIMEOUT_SECONDS else seconds


class Backend:
    """The runtime behind one unix socket; calls fail at once, as UNAVAILABLE, while no process listens there."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.channel = aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
        self._unary: dict[str, _Unary] = {}
        self._following: set[aio.Call] = set()
        self._is_draining = False

    async def call(self, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """Call a method on the proxy's own behalf. Raises AioRpcError."""
        return await self._unary_call(method)(request, timeout=timeout_seconds)

    async def unary(self, method: str, request: bytes, context: Context) -> bytes:
        """Forward one message and return one; a failure ends the caller's call with the runtime's status."""
        call = self._unary_call(method)(request, timeout=remaining_seconds(context), metadata=_metadata(context))
        try:
            response = await call
        except aio.AioRpcError as error:
            await fail_as(context, error)
        if first := await call.initial_metadata():
            await context.send_initial_metadata(_tuples(first))
        if last := await call.trailing_metadata():
            context.set_trailing_metadata(_tuples(last))
        return response

    async def stream(self, method: str, requests: AsyncIterator[bytes], context: Context) -> None:
        """Forward any number of messages both ways, each when it comes and when its reader has room."""
        first = await anext(requests, None)
        second = asyncio.ensure_future(anext(requests, None))
        sending: asyncio.Task[None] | None = None
        try:
            await asyncio.wait((second,), timeout=_SECOND_MESSAGE_SECONDS)
            timeout, metadata = remaining_seconds(context), _metadata(context)
            if first is not None and second.done() and second.result() is None:
                answer: _UnaryStream = self.channel.unary_stream(method)
                await self._pass_back(answer(first, timeout=timeout, metadata=metadata), context)
            else:
                converse: _StreamStream = self.channel.stream_stream(method)
                call = converse(timeout=timeout, metadata=metadata)
                sending = asyncio.create_task(_send(first, second, requests, call))
                await self._pass_back(call, context)
        finally:
            for task in (second, sending):
                if task:
                    task.cancel()

    async def _pass_back(
        self, call: aio.UnaryStreamCall[bytes, bytes] | aio.StreamStreamCall[bytes, bytes], context: Context
    ) -> None:
        self._following.add(call)
        try:
            first = await call.initial_metadata()
            if not call.done():
                await context.send_initial_metadata(_tuples(first or ()))
            async for response in call:
                await context.write(response)
            if last := await call.trailing_metadata():
                context.set_trailing_metadata(_tuples(last))
        except aio.AioRpcError as error:
            await fail_as(context, error)
        except asyncio.CancelledError:
            if not self._is_draining:
                raise
            await context.abort(grpc.StatusCode.UNAVAILABLE, "koord-runtime-proxy is stopping")
        finally:
            self._following.discard(call)
            call.cancel()

    def drain(self) -> None:
        """End the streams, which otherwise last as long as their caller: they fail as UNAVAILABLE."""
        self._is_draining = True
        for call in tuple(self._following):
            call.cancel()

    async def close(self) -> None:
        """Close the connection."""
        await self.channel.close()

    def _unary_call(self, method: str) -> _Unary:
        return self._unary.get(method) or self._unary.setdefault(method, self.channel.unary_unary(method))


async def fail_as(context: Context, error: aio.AioRpcError) -> None:
    """End the caller's call with the status, details and metadata of another call."""
    await context.abort(error.code(), error.details() or "", _tuples(error.trailing_metadata() or ()))


async def _send(
    first: bytes | None,
    second: "asyncio.Future[bytes | None]",
    requests: AsyncIterator[bytes],
    call: aio.StreamStreamCall[bytes, bytes],
) -> None:
    # A call that ended meanwhile takes no further messages; its status is read elsewhere.
    with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
        if first is not None:
            await call.write(first)
            if (message := await second) is not None:
                await call.write(message)
                async for request in requests:
                    await call.write(request)
        await call.done_writing()


def _metadata(context: Context) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(pair for pair in _tuples(context.invocation_metadata() or ()) if pair[0] not in _OWN_METADATA)


def _tuples(metadata: Any) -> tuple[tuple[str, str | bytes], ...]:
    return tuple((key, value) for key, value in metadata)
