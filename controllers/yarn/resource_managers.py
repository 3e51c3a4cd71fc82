"""Client of a YARN cluster's ResourceManagers over REST: finds the active one, and stays with it while it answers."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import urllib3

from controllers.yarn.protocol import (
    NODES_PATH,
    Capability,
    NodeReport,
    nodes_of,
    problem_of,
    resource_option,
)
from controllers.yarn.settings import ClusterSettings

MAX_ANSWER_BYTES = 64 << 20
"""Longest answer that is read: a node takes about a kilobyte."""

LIST_TIMEOUTS = 10
"""Timeouts within which a whole list of nodes arrives; what sets a resource has one."""

Observer = Callable[[str, int], None]
"""Told of each request: method and status, 0 for no answer."""


class YarnError(Exception):
    """A ResourceManager that cannot be used; the message says which, why and what mends it."""


class RefusedError(YarnError):
    """The active ResourceManager does not accept these credentials, or this request."""


class UnreachableError(YarnError):
    """No answer, or a ResourceManager that is not active."""


class ResourceManagers:
    """Client of one cluster. Not shared between threads."""

    def __init__(self, name: str, settings: ClusterSettings, observe: Observer = lambda _method, _status: None) -> None:
        """Raise YarnError for an authority that cannot be used."""
        self.name = name
        self.active = ""
        """Address of the ResourceManager that answered last."""
        self._settings = settings
        self._observe = observe
        context = None
        if settings.ca_file or any(each.startswith("https:") for each in settings.addresses):
            try:
                context = ssl.create_default_context(cafile=settings.ca_file or None)
            except (OSError, ssl.SSLError) as error:
                raise YarnError(f"[clusters.{name}] ca_file {settings.ca_file}: {error}") from error
        self._pool = urllib3.PoolManager(maxsize=1, ssl_context=context, retries=False)

    def nodes(self) -> dict[str, NodeReport]:
        """Return all nodes by id, of the first ResourceManager that is active. Raises YarnError."""
        problems = []
        addresses = [each.rstrip("/") for each in self._settings.addresses]
        for address in sorted(addresses, key=lambda each: each != self.active):
            try:
                nodes = nodes_of(self._request("GET", address, NODES_PATH))
            except RefusedError:
                self.active = ""
                raise
            except (YarnError, ValueError) as error:
                # A ResourceManager that knows of no active one answers with a sentence and status 200.
                problems.append(str(error) if isinstance(error, YarnError) else f"{address}: {error}")
                continue
            self.active = address
            return nodes
        self.active = ""
        raise UnreachableError("; ".join(problems))

    def set_resource(self, node_id: str, wanted: Capability, overcommit_timeout_seconds: float) -> None:
        """Set the resource of a node at the ResourceManager that answered `nodes`. Raises YarnError.

        It takes effect later, or not at all: only the next answer of `nodes` says so.
        """
        if not self.active:
            raise UnreachableError(f"cluster {self.name}: no ResourceManager is known to be active")
        path = f"{NODES_PATH}/{quote(node_id, safe=':')}/resource"
        self._request("POST", self.active, path, resource_option(wanted, overcommit_timeout_seconds))

    def close(self) -> None:
        """Drop the connections."""
        self._pool.clear()

    def _request(self, method: str, address: str, path: str, body: bytes | None = None) -> bytes:
        url = f"{address}{path}"
        if self._settings.user:
            url += f"?user.name={quote(self._settings.user, safe='')}"
        status, seconds = 0, self._settings.timeout_seconds
        whole = seconds if method == "POST" else LIST_TIMEOUTS * seconds
        until = time.monotonic() + whole
        try:
            response = self._pool.request(
                method,
                url,
                body=body,
                headers=self._headers(body),
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(total=seconds),
            )
            try:
                status = response.status
                answer = bytearray()
                while len(answer) <= MAX_ANSWER_BYTES and (part := response.read1(1 << 16)):
                    answer += part
                    if time.monotonic() > until:
                        response.close()
                        raise UnreachableError(f"{address}: the answer is not whole within {whole:g} s")
            finally:
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(f"{address}: no answer: {error}") from error
        finally:
            self._observe(method, status)
        if len(answer) > MAX_ANSWER_BYTES:
            raise YarnError(f"{address}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
        if status == 200:
            return bytes(answer)
        # A standby redirects to the active one. It is asked under its configured address: credentials go nowhere else.
        if status in (302, 303, 307, 308):
            place = urlsplit(response.headers.get("Location", "")).netloc
            raise UnreachableError(f"{address} is standby" + (f", {place} is active" if place else ", none is active"))
        raise self._refusal(method, address, path, status, bytes(answer))

    def _refusal(self, method: str, address: str, path: str, status: int, answer: bytes) -> YarnError:
        said = f"{address}: {method} {path}: {status} {problem_of(answer)}"
        where = f"[clusters.{self.name}]"
        if status == 401:
            return RefusedError(f"{said}; set {where} user, or token_file with what it accepts")
        if status == 403:
            return RefusedError(f"{said}; put the user of {where} into yarn.admin.acl")
        if status == 405 or (status == 404 and method == "POST" and b"is not found" not in answer):
            return RefusedError(f"{said}; setting resources over REST needs Hadoop 3.3.0 or later")
        return YarnError(said)

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "koord-yarn-copilot"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._settings.token_file:
            try:
                token = Path(self._settings.token_file).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise RefusedError(f"[clusters.{self.name}] token_file: {error}") from error
            headers[self._settings.authorization_header] = token
        return headers
