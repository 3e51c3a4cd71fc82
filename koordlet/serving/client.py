"""Client of the agent on this node."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from api.verdicts import Verdict
from koordlet.serving import koordlet_pb2 as pb
from koordlet.serving.broadcast import StreamMessage, VerdictFilter
from koordlet.serving.wire import stream_message_of, verdict_of

_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['Koordlet'].full_name}/"


class AgentUnavailable(Exception):
    """No agent answers on the socket, or it broke off; the message says which and why."""


class AgentClient:
    """Client of the agent behind one unix socket, a context manager."""

    def __init__(self, socket: Path, *, timeout_seconds: float = 10.0) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(f"unix:{socket.absolute()}")
        self._list = self._channel.unary_unary(
            f"{_SERVICE}ListVerdicts", pb.VerdictFilter.SerializeToString, pb.VerdictList.FromString
        )
        self._node = self._channel.unary_unary(
            f"{_SERVICE}Node", pb.NodeRequest.SerializeToString, pb.NodeStatus.FromString
        )
        self._verdicts = self._channel.unary_stream(
            f"{_SERVICE}Verdicts", pb.VerdictFilter.SerializeToString, pb.VerdictEvent.FromString
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def open_verdicts(self, verdict_filter: VerdictFilter) -> list[Verdict]:
        """Return the open verdicts. Raises AgentUnavailable."""
        try:
            answer = self._list(_message(verdict_filter), timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            raise self._unavailable(error) from error
        return [verdict_of(each) for each in answer.verdicts]

    def node(self) -> pb.NodeStatus:
        """Return the node's status and capabilities. Raises AgentUnavailable."""
        try:
            return self._node(pb.NodeRequest(), timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            raise self._unavailable(error) from error

    def follow(self, verdict_filter: VerdictFilter) -> Iterator[StreamMessage]:
        """Yield a snapshot, its end mark, and every change until the agent leaves; then raises AgentUnavailable."""
        stream = self._verdicts(_message(verdict_filter))
        try:
            for event in stream:
                yield stream_message_of(event)
        except grpc.RpcError as error:
            raise self._unavailable(error) from error
        finally:
            stream.cancel()
        raise AgentUnavailable(f"the agent on {self._socket} ended")

    def _unavailable(self, error: grpc.RpcError) -> AgentUnavailable:
        return AgentUnavailable(f"no answer on {self._socket}: {error.details()}")


def _message(verdict_filter: VerdictFilter) -> pb.VerdictFilter:
    return pb.VerdictFilter(victim=verdict_filter.victim, resource=verdict_filter.resource)
