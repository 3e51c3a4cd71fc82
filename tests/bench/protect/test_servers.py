"""Records of real services: pgbench's log, and pages over HTTP."""

import http.server
import threading
import time

import numpy as np
import pytest

from bench.protect.http_client import HttpLoad
from bench.protect.servers import transactions


def test_transactions_count_from_their_scheduled_start() -> None:
    """Client, number, elapsed us, script, epoch seconds, microseconds, lag: as pgbench writes them with -R and -l."""
    lines = [
        ["0", "1", "2000", "0", "1700000000", "502000", "1500"],
        ["1", "1", "skipped", "0", "1700000000", "700000", "90000"],
        ["0", "2", "500", "0", "1700000001", "500", "0"],
    ]
    at, latency = transactions(lines)
    assert at - 1.7e9 == pytest.approx([0.5, 0.7, 1.0], abs=1e-6)
    assert latency[[0, 2]] == pytest.approx([0.002, 0.0005])
    assert np.isnan(latency[1])
    assert [len(column) for column in transactions([])] == [0, 0]


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"x" * 300_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Print nothing."""


def test_each_request_is_answered_to_its_last_byte() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        found = list(HttpLoad(server.server_address[1]).run(iter([0.0, 0.01, 0.02]), time.monotonic()))
    finally:
        server.shutdown()
        server.server_close()
    assert sorted(at for at, _latency in found) == [0.0, 0.01, 0.02]
    assert all(latency > 0 for _at, latency in found)
