"""The reflection service: which services and messages there are, for clients such as grpcurl."""

from collections.abc import Iterable, Iterator
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from koordlet.serving.requests import message_of


def reflection_handler(services: Iterable[str]) -> grpc.GenericRpcHandler:
    """Return the library's answers about these services, to requests that are read as ours are.

    The library's own registration ends a call with INTERNAL where the client sends what is no message.
    """
    servicer = reflection.ReflectionServicer((*services, reflection.SERVICE_NAME))

    def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[ServerReflectionResponse]:
        messages = (message_of(ServerReflectionRequest, data, context) for data in requests)
        yield from servicer.ServerReflectionInfo(messages, context)

    method: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        answer, response_serializer=ServerReflectionResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": method})
