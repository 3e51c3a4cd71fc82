"""HTTP to the API server: one pooled request at a time, failures as this package's errors.

Requests bypass the official client's models, which cost more than the network. An open stream occupies one pooled
connection.
"""

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

import urllib3

from cluster import errors


class HttpResponse(NamedTuple):
    """An answered request."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address, connection pool and credentials of the API server.

    `authorization` returns the header's value ("" for none) and is asked per request, because service
    account tokens rotate on disk.
    """

    url: str
    pools: urllib3.PoolManager
    authorization: Callable[[], str]


class Request(NamedTuple):
    """A request to send; `path` starts with a slash, `content_type` describes `body`."""

    method: str
    path: str
    parameters: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def where(self) -> str:
        """Method and path, as error messages name a request."""
        return f"{self.method} {self.path}"


class Transport:
    """Sends requests to one endpoint; safe to share between threads."""

    def __init__(self, endpoint: Endpoint, user_agent: str, connect_seconds: float) -> None:
        self._endpoint = endpoint
        self._base_path = urllib3.util.parse_url(endpoint.url).path or ""
        self._pool = endpoint.pools.connection_from_url(endpoint.url)
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        self._connect_seconds = connect_seconds

    def send(self, request: Request, timeout_seconds: float) -> HttpResponse:
        """One attempt; returns a 2xx response or raises `ApiError` with the transport's error chained."""
        response = self._open(request, timeout_seconds, stream=False)
        if not 200 <= response.status < 300:
            raise errors.from_response(response.status, response.data, response.headers, request.where)
        return HttpResponse(response.status, response.data)

    def stream(self, request: Request, read_seconds: float) -> "Stream":
        """Open a long-lived GET whose body arrives as lines; silence over `read_seconds` is an error."""
        response = self._open(request, read_seconds, stream=True)
        if response.status != 200:
            body = response.read()
            response.release_conn()
            raise errors.from_response(response.status, body, response.headers, request.where)
        return Stream(response, request.where)

    def close(self) -> None:
        """Drop idle connections; requests under way finish."""
        self._endpoint.pools.clear()

    def _open(self, request: Request, read_seconds: float, *, stream: bool) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.urlopen(
                request.method,
                self._target(request),
                body=request.body,
                headers=self._request_headers(request),
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=self._connect_seconds, read=read_seconds),
                preload_content=not stream,
            )
        except urllib3.exceptions.HTTPError as error:
            raise _unavailable(request.where, error) from error

    def _target(self, request: Request) -> str:
        path = self._base_path.rstrip("/") + request.path
        return f"{path}?{urlencode(request.parameters)}" if request.parameters else path

    def _request_headers(self, request: Request) -> dict[str, str]:
        headers = dict(self._headers)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        authorization = self._endpoint.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers


class Stream:
    """Lines of an open response, read in one thread; `stop` may be called from any and ends the iteration."""

    def __init__(self, response: urllib3.BaseHTTPResponse, where: str) -> None:
        self._response = response
        self._where = where
        self._stopped = False

    def batches(self) -> Iterator[list[bytes]]:
        """The complete lines of each chunk as it arrives; ends when the server ends the body.

        Raises `Unavailable` when the connection breaks or stays silent too long.
        """
        rest = b""
        try:
            for chunk in self._response.stream(1 << 20):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    yield lines
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Stopping a TLS stream can surface as ValueError in the reader.
            if not self._stopped:
                raise _unavailable(self._where, error) from error
        finally:
            self._response.close()

    def stop(self) -> None:
        """Wake the reader, whose iteration ends. Closing instead would wait for the reader's lock."""
        self._stopped = True
        # A response whose body has ended has no socket left to shut down.
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        """Give the connection up. Only for the reading thread."""
        self._response.close()


def _unavailable(where: str, error: Exception) -> errors.Unavailable:
    # Nothing was sent when no connection came up; after that the server may have acted.
    unsent = isinstance(error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)
    distrusted = bool(error.args) and isinstance(error.args[0], ssl.SSLCertVerificationError)
    return errors.Unavailable(f"{where}: {error}", ambiguous=not (unsent or distrusted))
