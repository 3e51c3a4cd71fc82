"""Client of an agent: on this node by its socket, on another one by TCP with TLS."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from api.frame import Frame
from api.verdicts import Verdict
from koordlet.serving import koordlet_pb2 as pb
from koordlet.serving.broadcast import StreamMessage, VerdictFilter
from koordlet.serving.certificates import CertificateFiles
from koordlet.serving.wire import stream_message_of, verdict_of

MAX_MESSAGE_BYTES = 64 << 20
"""Of a frame: a first one of 2000 cgroups takes about 3 MB."""
_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['Koordlet'].full_name}/"


class AgentUnavailable(Exception):
    """No agent answers on the socket, or it broke off; the message says which and why."""


def place_of(text: str) -> Path | str:
    """Return a socket (`unix:PATH` or a path with a slash) or an address (`host:port`). Raises ValueError."""
    if text.startswith("unix:") or "/" in text:
        return Path(text.removeprefix("unix:"))
    host, _, port = text.rpartition(":")
    if not (host and port.isdigit()):
        raise ValueError(f"{text}: neither unix:PATH nor host:port")
    return text


class AgentClient:
    """Client of one agent, a context manager. `place` is its socket, or `host:port`."""

    def __init__(
        self,
        place: Path | str,
        *,
        timeout_seconds: float = 10.0,
        tls: CertificateFiles | None = None,
        server_name: str = "",
    ) -> None:
        """`server_name` is the name in the agent's certificate where it is not that of `place`.

        Raises CertificatesUnusable.
        """
        self._place = place
        self._timeout_seconds = timeout_seconds
        target = f"unix:{place.absolute()}" if isinstance(place, Path) else place
        options: list[tuple[str, str | int]] = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        if server_name:
            options.append(("grpc.ssl_target_name_override", server_name))
        if tls is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            self._channel = grpc.secure_channel(target, tls.client_credentials(), options)
        self._frames = self._channel.unary_stream(
            f"{_SERVICE}Frames", pb.FrameRequest.SerializeToString, pb.FrameBlock.FromString
        )
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

    def frames(self) -> Iterator[Frame]:
        """Yield the newest frame of each tick until the agent leaves; then raises AgentUnavailable."""
        from detector.recording.format import PREFIX_BYTES, prefix_of, unpack_block
        from detector.recording.frames import FrameDecoder

        decoder = FrameDecoder()
        stream = self._frames(pb.FrameRequest())
        try:
            for block in stream:
                kind, _, checksum = prefix_of(block.frame[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0"))
                yield decoder.decode(unpack_block(kind, block.frame[PREFIX_BYTES:], checksum))
        except grpc.RpcError as error:
            raise self._unavailable(error) from error
        except ValueError as error:
            raise AgentUnavailable(f"a frame of {self._place} cannot be read: {error}") from error
        finally:
            stream.cancel()
        raise AgentUnavailable(f"the agent on {self._place} ended")

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
        raise AgentUnavailable(f"the agent on {self._place} ended")

    def _unavailable(self, error: grpc.RpcError) -> AgentUnavailable:
        return AgentUnavailable(f"no answer on {self._place}: {error.details()}")


def _message(verdict_filter: VerdictFilter) -> pb.VerdictFilter:
    return pb.VerdictFilter(victim=verdict_filter.victim, resource=verdict_filter.resource)
