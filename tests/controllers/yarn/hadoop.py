"""A YARN cluster with two ResourceManagers that answer over HTTP as Hadoop 3.3 documents and does."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Node:
    """A NodeManager as its ResourceManager keeps it, in MB and virtual cores."""

    id: str
    registered: tuple[int, int]
    """Virtual cores and MB of its own configuration, which a new ResourceManager starts from."""
    total: tuple[int, int] = (0, 0)
    used: tuple[int, int] = (0, 0)
    state: str = "RUNNING"
    health: str = ""

    def document(self) -> dict[str, Any]:
        active = self.state in ("NEW", "RUNNING", "UNHEALTHY", "DECOMMISSIONING")
        return {
            "rack": "/default-rack",
            "state": self.state,
            "id": self.id,
            "nodeHostName": self.id.partition(":")[0],
            "nodeHTTPAddress": f"{self.id.partition(':')[0]}:8042" if active else "",
            "lastHealthUpdate": 1476995346399,
            "version": "3.3.6",
            "healthReport": self.health,
            "numContainers": 0,
            "usedMemoryMB": self.used[1],
            "availMemoryMB": self.total[1] - self.used[1],
            "usedVirtualCores": self.used[0],
            "availableVirtualCores": self.total[0] - self.used[0],
            "totalResource": resource(self.total),
            "usedResource": resource(self.used),
        }


def resource(amount: tuple[int, int]) -> dict[str, Any]:
    units = {"memory-mb": ("Mi", amount[1]), "vcores": ("", amount[0])}
    return {
        "memory": amount[1],
        "vCores": amount[0],
        "resourceInformations": {
            "resourceInformation": [
                {"name": name, "resourceType": "COUNTABLE", "units": unit, "value": value}
                for name, (unit, value) in units.items()
            ]
        },
    }


@dataclass
class Yarn:
    """State of the cluster, and what was asked of its two ResourceManagers."""

    nodes: dict[str, Node] = field(default_factory=dict)
    active: int | None = 0
    """Index of the active ResourceManager; None while there is none."""
    admins: frozenset[str] = frozenset({"yarn"})
    authenticate: bool = False
    """Refuse requests without a user, as with Kerberos and no ticket."""
    applies: bool = True
    """Whether resources that are set take effect."""
    set: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    before_set: Callable[[], object] | None = None
    """Called before resources that are set take effect."""
    asked: list[tuple[int, str, str]] = field(default_factory=list)
    """ResourceManager, method and path of each request."""
    raw: bytes | None = None
    """Answer to every list of nodes instead of the true one."""
    status: int = 200
    urls: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, node_id: str, registered: tuple[int, int] = (0, 0), **fields: Any) -> Node:
        node = Node(node_id, registered, **{"total": registered, **fields})
        self.nodes[node_id] = node
        return node

    def fail_over(self, to: int | None) -> None:
        """Make another ResourceManager active: NodeManagers register anew with what their configuration says."""
        with self.lock:
            self.active = to
            for node in self.nodes.values():
                node.total = node.registered

    def answer(self, number: int, method: str, url: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(url)
        user = parse_qs(parts.query).get("user.name", [""])[0]
        with self.lock:
            self.asked.append((number, method, parts.path))
            if number != self.active:
                return self._standby(url)
            if self.authenticate and not user:
                return 401, {"WWW-Authenticate": "Negotiate"}, b"<html>Authentication required</html>"
            if method == "GET" and parts.path == "/ws/v1/cluster/nodes":
                listed = [each.document() for each in self.nodes.values()]
                true = json.dumps({"nodes": {"node": listed} if listed else None}).encode()
                return self.status, {}, true if self.raw is None else self.raw
            return self._change(method, parts.path, user, body)

    def _standby(self, url: str) -> tuple[int, dict[str, str], bytes]:
        if self.active is None:
            return 200, {}, b"There is no active RM right now.\nHA Zookeeper Connection State: CONNECTED\n"
        return 307, {"Location": f"{self.urls[self.active]}{url}"}, b"This is standby RM. The redirect url is: /ws\n"

    def _change(self, method: str, path: str, user: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        words = path.removeprefix("/ws/v1/cluster/nodes/").split("/")
        if method != "POST" or len(words) != 2 or words[1] != "resource":
            return 405, {}, b""
        if user not in self.admins:
            return problem(403, "ForbiddenException", f"User {user} is not an admin")
        node = self.nodes.get(words[0])
        if node is None:
            return problem(404, "NotFoundException", f"java.lang.Exception: nodeId, {words[0]}, is not found")
        wanted = json.loads(body)
        if self.before_set is not None:
            self.before_set()
        self.set.append((node.id, wanted))
        before = resource(node.total)
        if self.applies:
            node.total = (wanted["resource"]["vCores"], wanted["resource"]["memory"])
        return 200, {}, json.dumps(before).encode()


def problem(status: int, kind: str, message: str) -> tuple[int, dict[str, str], bytes]:
    said = {"exception": kind, "message": message, "javaClassName": f"org.apache.hadoop.yarn.webapp.{kind}"}
    return status, {}, json.dumps({"RemoteException": said}).encode()


@contextmanager
def served(yarn: Yarn | None = None) -> Iterator[Yarn]:
    """Serve the ResourceManagers of a cluster on loopback."""
    state = yarn or Yarn()
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler(state, number)) for number in range(2)]
    state.urls = [f"http://127.0.0.1:{each.server_port}" for each in servers]
    threads = [threading.Thread(target=each.serve_forever, args=(0.02,), daemon=True) for each in servers]
    for thread in threads:
        thread.start()
    try:
        yield state
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join(5)


def handler(yarn: Yarn, number: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, answer = yarn.answer(number, self.command, self.path, body)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json;charset=utf-8", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
