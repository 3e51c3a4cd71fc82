"""A proxy between one scheduler and the API server that cuts, delays and refuses, and notes every write it passes on.

The scheduler speaks plain HTTP to it; it adds the credentials of a kubeconfig. Requests that were held while the
connection was cut reach the API server when it heals, unless the scheduler has given them up by then.
"""

import asyncio
import base64
import contextlib
import json
import re
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.ha.ledger import Ledger

_BINDING = re.compile(r"^/api/v1/namespaces/[^/]+/pods/[^/]+/binding")
_LEASE = "/leases"
_CHUNK = 1 << 16


class Fault(StrEnum):
    """What the proxy does with the connections of its scheduler."""

    NONE = "none"
    CUT = "cut"
    """Nothing passes in either direction; what is on its way waits."""
    DEAF = "deaf"
    """Requests pass, answers and watches wait."""
    REFUSED = "refused"
    """Connections are reset, new ones refused."""
    ERRORS = "errors"
    """Every request is answered with 503, every watch ends."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the API server is, and the TLS settings that identify the client."""

    host: str
    port: int
    tls: ssl.SSLContext

    @classmethod
    def of(cls, kubeconfig: Path) -> "Upstream":
        """Read the current context of a kubeconfig with certificates in it."""
        document: Any = msgspec.yaml.decode(kubeconfig.read_bytes())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        address = urlsplit(cluster["server"])
        tls = ssl.create_default_context(cadata=_text(kubeconfig, cluster, "certificate-authority"))
        with tempfile.TemporaryDirectory() as folder:
            names = {}
            for name in ("client-certificate", "client-key"):
                names[name] = Path(folder) / name
                names[name].write_text(_text(kubeconfig, user, name))
            tls.load_cert_chain(names["client-certificate"], names["client-key"])
        assert address.hostname is not None and address.port is not None
        return cls(address.hostname, address.port, tls)


def _text(kubeconfig: Path, fields: dict[str, str], name: str) -> str:
    if f"{name}-data" in fields:
        return base64.b64decode(fields[f"{name}-data"]).decode()
    return (kubeconfig.parent / fields[name]).read_text()


@dataclass(frozen=True, slots=True)
class _Head:
    """First line and headers of a message, as received."""

    raw: bytes
    first: list[str]
    headers: dict[str, str]

    @property
    def length(self) -> int:
        """Bytes of the body."""
        return int(self.headers.get("content-length", "0"))


async def _head(reader: asyncio.StreamReader) -> _Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return _Head(raw, first.split(" ", 2), headers)


class Proxy:
    """The proxy of one replica, in a thread of its own."""

    def __init__(self, name: str, upstream: Upstream, ledger: Ledger) -> None:
        self.name = name
        self.port = 0
        self.pid = 0
        """Process of the replica, whose name in the lease ends with it."""
        self._upstream = upstream
        self._ledger = ledger
        self._fault = Fault.NONE
        self._watch_delay_seconds = 0.0
        self._identity = ""
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{name}", daemon=True)

    def start(self) -> None:
        """Listen; `port` is known afterwards."""
        self._thread.start()
        self._do(self._listen())

    def stop(self) -> None:
        """Drop every connection and end."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)

    def set_fault(self, fault: Fault) -> None:
        """Change what happens to connections."""
        self._do(self._set(fault))

    def delay_watches(self, seconds: float) -> None:
        """Pass on what watches say so much later."""
        self._watch_delay_seconds = seconds

    def follow(self, pid: int) -> None:
        """The replica is this process from now on, which has not led yet."""
        self.pid = pid
        self._identity = ""

    @property
    def leads(self) -> bool:
        """Whether the lease names the replica."""
        return self._ledger.holder.endswith(f"_{self.pid}")

    # In the proxy's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30.0)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._abort()

    async def _end(self) -> None:
        await self._refuse()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _abort(self) -> None:
        for writer in list(self._clients):
            writer.transport.abort()

    async def _set(self, fault: Fault) -> None:
        self._fault = fault
        if fault is Fault.REFUSED:
            await self._refuse()
        elif self._server is None:
            await self._listen()
        if fault is Fault.ERRORS:
            self._abort()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _pass(self, *faults: Fault) -> None:
        """Wait until none of these faults is there."""
        while self._fault in faults:
            await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head = await _head(reader)
                body = await reader.readexactly(head.length)
                sent = time.monotonic()
                await self._pass(Fault.CUT)
                if reader.at_eof():
                    return
                if self._fault is Fault.ERRORS:
                    writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
                    continue
                if upstream is None:
                    upstream = await asyncio.open_connection(
                        self._upstream.host, self._upstream.port, ssl=self._upstream.tls, limit=1 << 22
                    )
                if not await self._exchange(head, body, sent, upstream, reader, writer):
                    return
        except (OSError, EOFError, asyncio.LimitOverrunError):
            return
        finally:
            self._clients.discard(writer)
            for each in (writer, *([upstream[1]] if upstream else [])):
                with contextlib.suppress(OSError):
                    each.transport.abort()

    async def _exchange(
        self,
        head: _Head,
        body: bytes,
        sent_seconds: float,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Pass one request on and its answer back; False when the connection is over."""
        method, path, _ = head.first
        is_write, is_lease = method != "GET", _LEASE in path
        identity = self._identity
        if is_write and not is_lease:
            self._ledger.write_forwarded(identity, f"{method} {path}")
        server_reader, server_writer = upstream
        server_writer.write(head.raw + body)
        answer = await _head(server_reader)
        status = int(answer.first[1])
        if is_lease and is_write and status < 300:
            self._lease_written(body, sent_seconds)
        elif is_write and not is_lease:
            bound = json.loads(body)["metadata"].get("uid", "") if _BINDING.match(path) else ""
            self._ledger.write_answered(self.name, identity, method, status, bound)
        is_watch = "watch=" in path
        # A closed connection is noticed while a watch is silent, too.
        gone = asyncio.ensure_future(reader.read(1)) if is_watch else None
        pieces = self._pieces(answer, server_reader)
        try:
            await self._pass(Fault.CUT, Fault.DEAF)
            writer.write(answer.raw)
            if is_watch:
                await self._pass_watch(pieces, writer, gone)
                return False
            async for piece in pieces:
                await self._pass(Fault.CUT, Fault.DEAF)
                writer.write(piece)
                await writer.drain()
        finally:
            if gone is not None:
                gone.cancel()
        return answer.headers.get("connection", "") != "close"

    def _lease_written(self, body: bytes, sent_seconds: float) -> None:
        holder = json.loads(body)["spec"].get("holderIdentity") or ""
        if holder.endswith(f"_{self.pid}"):
            self._identity = holder
        self._ledger.lease_written(holder, sent_seconds)

    async def _pass_watch(
        self, pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter, gone: "asyncio.Future[bytes] | None"
    ) -> None:
        """Pass on what a watch says, each piece after the delay of the moment at which it came, in order."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def take() -> None:
            async for piece in pieces:
                late.put_nowait((time.monotonic() + self._watch_delay_seconds, piece))
            late.put_nowait((time.monotonic() + self._watch_delay_seconds, b""))

        async def give() -> None:
            while True:
                due, piece = await late.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._pass(Fault.CUT, Fault.DEAF)
                if not piece:
                    return
                writer.write(piece)
                await writer.drain()

        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(take()), asyncio.ensure_future(give())]
        try:
            await asyncio.wait([tasks[1], *([gone] if gone else [])], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _pieces(answer: _Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """The body of an answer as it comes, chunk marks included."""
        if answer.headers.get("transfer-encoding", "") != "chunked":
            left = answer.length
            while left:
                piece = await reader.read(min(left, _CHUNK))
                if not piece:
                    raise EOFError
                left -= len(piece)
                yield piece
            return
        while True:
            mark = await reader.readuntil(b"\r\n")
            size = int(mark.split(b";")[0], 16)
            yield mark + await reader.readexactly(size + 2)
            if not size:
                return
