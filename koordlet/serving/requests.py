"""Requests of gRPC as messages: what is none ends its call as INVALID_ARGUMENT, and leaves no trace in the log."""

import logging
from collections.abc import Callable
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

# gRPC writes a stack trace for each message that it cannot read, also for those of the reflection service.
logging.getLogger("grpc._common").setLevel(logging.CRITICAL)


def decoded(
    kind: type[M], answer: Callable[[M, grpc.ServicerContext], T]
) -> Callable[[bytes, grpc.ServicerContext], T]:
    """Return a handler of bytes, to be registered without a deserializer, from one of messages of `kind`."""

    def handle(data: bytes, context: grpc.ServicerContext) -> T:
        return answer(message_of(kind, data, context), context)

    return handle


def message_of(kind: type[M], data: bytes, context: grpc.ServicerContext) -> M:
    """Return the message of `kind` that the bytes are, or end the call."""
    try:
        return kind.FromString(data)
    except DecodeError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"this is no {kind.DESCRIPTOR.name}")
