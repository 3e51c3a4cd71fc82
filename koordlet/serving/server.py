"""gRPC server on a unix socket and on TCP: one thread for each stream; the tick waits for none of them."""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from api.frame import Frame
from api.verdicts import Verdict
from koordlet.serving import koordlet_pb2 as pb
from koordlet.serving.broadcast import VerdictBroadcast, VerdictFilter
from koordlet.serving.certificates import CertificateFiles, CertificatesUnusable, RotatingCertificates
from koordlet.serving.newest_frame import NewestFrame
from koordlet.serving.reflection import reflection_handler
from koordlet.serving.requests import decoded
from koordlet.serving.settings import ServingSettings
from koordlet.serving.socket_file import SocketUnusable, prepare_socket, private_place
from koordlet.serving.status import AgentStatus
from koordlet.serving.wire import event_message, filter_of, status_message, verdict_message

_log = logging.getLogger(__name__)

SERVICE = pb.DESCRIPTOR.services_by_name["Koordlet"].full_name
_SPARE_THREADS = 4
"""Threads beside those of streams, so that short calls are answered while all streams are taken."""
_LOOK_SECONDS = 1.0
"""Time after which a stream without frames looks whether its client is still there."""


class AgentServer:
    """Server of verdicts and status from `start` to `close`; `update` passes a tick's changes."""

    def __init__(self, settings: ServingSettings, status: AgentStatus) -> None:
        self.broadcast = VerdictBroadcast(settings.queue_size)
        self.port = 0
        """Port of the TCP listener; 0 without one."""
        self._frames = NewestFrame()
        self._settings = settings
        self._path = Path(settings.socket)
        self._inode = -1
        self._status = status
        self._streams = threading.Semaphore(settings.max_streams)
        self._max_streams = settings.max_streams
        pool = ThreadPoolExecutor(settings.max_streams + _SPARE_THREADS, thread_name_prefix="serving")
        self._server = grpc.server(pool)
        self._server.add_generic_rpc_handlers((self._handler(), reflection_handler((SERVICE,))))

    def start(self) -> None:
        """Listen. Raises SocketUnusable."""
        prepare_socket(self._path)
        try:
            with private_place(self._path) as place:
                self._server.add_insecure_port(f"unix:{place}")
        except (OSError, RuntimeError) as error:
            raise SocketUnusable(f"{self._path}: {error}", "set another [serving] socket") from error
        self._inode = self._path.stat().st_ino
        if self._settings.address:
            self._listen()
        self._server.start()
        _log.info("verdicts on unix:%s", self._path)

    def _listen(self) -> None:
        settings = self._settings
        try:
            if settings.has_tls:
                files = CertificateFiles(Path(settings.certificate), Path(settings.key), Path(settings.client_ca))
                self.port = self._server.add_secure_port(settings.address, RotatingCertificates(files).credentials())
            else:
                self.port = self._server.add_insecure_port(settings.address)
        except CertificatesUnusable as error:
            self._remove_socket()
            raise SocketUnusable(str(error), "mend the files, or clear [serving] address") from error
        except RuntimeError as error:
            self._remove_socket()
            raise SocketUnusable(f"{settings.address}: {error}", "set another [serving] address") from error
        kind = "with TLS" if settings.has_tls else "without TLS"
        _log.info("verdicts on %s:%d %s", settings.address.rpartition(":")[0], self.port, kind)

    def update(
        self,
        status: AgentStatus,
        changes: Sequence[Verdict],
        open_verdicts: tuple[Verdict, ...],
        frame: Frame | None = None,
    ) -> None:
        """Publish a tick's changes and its frame; never waits for a client."""
        self._status = status
        if frame is not None:
            self._frames.publish(frame)
        self.broadcast.publish(changes, open_verdicts)

    def close(self) -> None:
        """End all streams and remove the socket; idempotent."""
        self.broadcast.close()
        self._frames.close()
        self._server.stop(grace=1.0).wait(5.0)
        self._remove_socket()

    def _remove_socket(self) -> None:
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:  # not the socket of an agent that has started meanwhile
                self._path.unlink()

    def _handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Verdicts": grpc.unary_stream_rpc_method_handler(
                decoded(pb.VerdictFilter, self._verdicts), None, pb.VerdictEvent.SerializeToString
            ),
            "ListVerdicts": grpc.unary_unary_rpc_method_handler(
                decoded(pb.VerdictFilter, self._list), None, pb.VerdictList.SerializeToString
            ),
            "Frames": grpc.unary_stream_rpc_method_handler(
                decoded(pb.FrameRequest, self._measured), None, pb.FrameBlock.SerializeToString
            ),
            "Node": grpc.unary_unary_rpc_method_handler(
                decoded(pb.NodeRequest, self._node), None, pb.NodeStatus.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _verdicts(self, request: pb.VerdictFilter, context: grpc.ServicerContext) -> Iterator[pb.VerdictEvent]:
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._max_streams} clients follow already")
        subscription = self.broadcast.subscribe(filter_of(request))
        # Called when the client has left, also while this thread waits for messages.
        if not context.add_callback(subscription.close):
            subscription.close()
        try:
            while (news := subscription.take()) is not None:
                for message in news:
                    yield event_message(message)
        finally:
            subscription.close()
            self._streams.release()

    def _measured(self, _request: pb.FrameRequest, context: grpc.ServicerContext) -> Iterator[pb.FrameBlock]:
        from detector.recording.frames import FrameEncoder  # costs memory that only this call needs

        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._max_streams} clients follow already")
        encoder, number = FrameEncoder(), 0
        try:
            while (found := self._frames.after(number, _LOOK_SECONDS)) is not None and context.is_active():
                number, frame = found
                if frame is not None:
                    yield pb.FrameBlock(frame=encoder.encode(frame))
        finally:
            self._streams.release()

    def _list(self, request: pb.VerdictFilter, _context: grpc.ServicerContext) -> pb.VerdictList:
        return pb.VerdictList(
            verdicts=[verdict_message(each) for each in self.broadcast.open_verdicts(filter_of(request))]
        )

    def _node(self, _request: pb.NodeRequest, _context: grpc.ServicerContext) -> pb.NodeStatus:
        return status_message(self._status, len(self.broadcast.open_verdicts(VerdictFilter())))
