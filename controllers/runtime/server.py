"""HTTP of the manager: health, readiness and metrics."""

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

_log = logging.getLogger(__name__)


def serve(address: str, port: int, registry: CollectorRegistry, ready: Callable[[], bool]) -> ThreadingHTTPServer:
    """Serve in the background; `shutdown()` ends it. Port 0 takes a free one (see `server_port`)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            status, body, content_type = answer(self.path.partition("?")[0], registry, ready)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
            _log.debug(format, *args)

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def answer(path: str, registry: CollectorRegistry, ready: Callable[[], bool]) -> tuple[int, bytes, str]:
    """Return status, body and content type for a path."""
    if path in ("/healthz", "/livez"):
        return 200, b"ok", "text/plain"
    if path == "/readyz":
        return (200, b"ok", "text/plain") if ready() else (503, b"first lists are not in", "text/plain")
    if path == "/metrics":
        return 200, generate_latest(registry), CONTENT_TYPE_LATEST
    return 404, b"there are /healthz, /readyz and /metrics\n", "text/plain"
