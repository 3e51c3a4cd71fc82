"""Client of the kubelet's HTTPS interface: pods and configuration, read with the agent's token or certificate."""

import json
import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import urllib3

from api.plugin import Unsupported
from koordlet.kubelet.settings import SERVICE_ACCOUNT, KubeletSettings

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 20
"""Longest answer that is read: 500 pods with the largest documents that the API server stores take less."""
DEFAULT_ENDPOINT = "https://127.0.0.1:10250"
_RULES = {"/pods": "nodes/pods", "/configz": "nodes/configz"}
"""Subresource that the kubelet asks the API server for; before Kubernetes 1.33 it is nodes/proxy for all."""


class KubeletUnavailable(Unsupported):
    """The kubelet does not answer as it should; reason and remedy say why and what mends it."""


class KubeletClient:
    """Client of this node's kubelet; not shared between threads."""

    def __init__(
        self, settings: KubeletSettings, node: str, addresses: Callable[[], Sequence[str]] = lambda: ()
    ) -> None:
        """`addresses` returns further endpoints of this node's kubelet, as its node object names them."""
        self.requests = 0
        self.failures = 0
        self.endpoint = ""
        """Address that answered last."""
        self._settings = settings
        self._node = node
        self._addresses = addresses
        self._pool: urllib3.HTTPConnectionPool | None = None

    def pods(self) -> bytes:
        """Return the PodList of this node. Raises KubeletUnavailable."""
        return self._get("/pods")

    def configz(self) -> bytes:
        """Return the kubelet's configuration in effect. Raises KubeletUnavailable."""
        return self._get("/configz")

    def close(self) -> None:
        """Drop the connection."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _get(self, path: str) -> bytes:
        if self._pool is not None:
            try:
                return self._ask(self._pool, self.endpoint, path)
            except _NotReached as error:
                self.close()
                _log.debug("kubelet at %s: %s", self.endpoint, error)
        failures: list[KubeletUnavailable] = []
        for endpoint, pool in self._pools(failures):
            try:
                body = self._ask(pool, endpoint, path)
            except _NotReached as error:
                pool.close()
                failures.append(self._unreachable(endpoint, error.__cause__ or error))
                continue
            except KubeletUnavailable:
                pool.close()
                raise
            self._pool, self.endpoint = pool, endpoint
            return body
        # A server that is there and cannot be trusted says more than one that is not there.
        raise next((each for each in failures if isinstance(each, _Distrusted)), failures[0])

    def _pools(self, failures: list[KubeletUnavailable]) -> Iterator[tuple[str, urllib3.HTTPConnectionPool]]:
        """Yield connection pools in the order in which to try them."""
        if self._settings.read_only_port:
            yield self._plain(f"http://127.0.0.1:{self._settings.read_only_port}")
            return
        if self._settings.endpoint:
            yield from self._with_names(self._settings.endpoint)
            return
        yield from self._with_names(DEFAULT_ENDPOINT)
        try:
            others = self._addresses()
        except Unsupported as error:
            failures.append(KubeletUnavailable(error.reason, error.remedy))
            return
        for endpoint in others:
            yield from self._with_names(endpoint)

    def _with_names(self, endpoint: str) -> Iterator[tuple[str, urllib3.HTTPConnectionPool]]:
        parts = urlsplit(endpoint)
        if parts.scheme == "http":
            yield self._plain(endpoint)
            return
        host = parts.hostname or ""
        # A kubelet's certificate names its node and seldom the loopback address.
        names = [self._settings.server_name] if self._settings.server_name else [self._node, host]
        for name in dict.fromkeys(filter(None, names)):
            pool = urllib3.HTTPSConnectionPool(
                host,
                parts.port or 10250,
                maxsize=1,
                ssl_context=self._context(),
                assert_hostname=False if self._settings.insecure_tls else name,
            )
            yield endpoint, pool

    def _plain(self, endpoint: str) -> tuple[str, urllib3.HTTPConnectionPool]:
        parts = urlsplit(endpoint)
        return endpoint, urllib3.HTTPConnectionPool(parts.hostname or "", parts.port or 10255, maxsize=1)

    def _context(self) -> ssl.SSLContext:
        settings = self._settings
        authority = settings.ca_file or _if_there(f"{SERVICE_ACCOUNT}/ca.crt")
        try:
            context = ssl.create_default_context(cafile=authority or None)
        except (OSError, ssl.SSLError) as error:
            raise KubeletUnavailable(
                f"authority {authority} is not usable: {error}", "set [kubelet] ca_file to a PEM file"
            ) from error
        context.check_hostname = False  # urllib3 checks the name that it is given
        if settings.insecure_tls:
            context.verify_mode = ssl.CERT_NONE
        if settings.client_certificate:
            try:
                context.load_cert_chain(settings.client_certificate, settings.client_key or None)
            except (OSError, ssl.SSLError) as error:
                raise KubeletUnavailable(
                    f"client certificate {settings.client_certificate} is not usable: {error}",
                    "set [kubelet] client_certificate and client_key to PEM files that belong together",
                ) from error
        return context

    def _ask(self, pool: urllib3.HTTPConnectionPool, endpoint: str, path: str) -> bytes:
        self.requests += 1
        seconds = self._settings.timeout_seconds
        try:
            response = pool.urlopen(
                "GET",
                path,
                headers=self._headers(endpoint),
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=seconds, read=seconds),
                preload_content=False,
            )
            try:
                body = response.read(MAX_BODY_BYTES + 1)
            finally:
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.failures += 1
            raise _NotReached(str(error)) from error
        if response.status != 200:
            self.failures += 1
            raise self._refused(response.status, endpoint, path, body)
        if len(body) > MAX_BODY_BYTES:
            self.failures += 1
            pool.close()
            raise KubeletUnavailable(f"{endpoint}{path}: the answer is longer than {MAX_BODY_BYTES} bytes")
        return bytes(body)

    def _headers(self, endpoint: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "koordlet"}
        if endpoint.startswith("https:") and not self._settings.client_certificate:
            token = _text(self._settings.token_file)
            if token:
                headers["Authorization"] = f"Bearer {token}"
        return headers

    def _refused(self, status: int, endpoint: str, path: str, body: bytes) -> KubeletUnavailable:
        if status == 401:
            given = self._settings.client_certificate or self._settings.token_file
            return KubeletUnavailable(
                f"{endpoint}{path}: 401, the kubelet does not accept {given or 'a request without credentials'}",
                "set [kubelet] token_file or client_certificate; a token needs authentication.webhook.enabled there",
            )
        if status == 403:
            rule = _RULES.get(path, "nodes/proxy")
            return KubeletUnavailable(
                f"{endpoint}{path}: 403, the agent's account may not read {rule}",
                f"grant it `get` on {rule}, before Kubernetes 1.33 on nodes/proxy, in a ClusterRole",
            )
        return KubeletUnavailable(f"{endpoint}{path}: {status} {_short(body)}")

    def _unreachable(self, endpoint: str, error: BaseException) -> KubeletUnavailable:
        inner = error.args[0] if error.args else error
        if isinstance(error, urllib3.exceptions.SSLError) or isinstance(inner, ssl.SSLError):
            return _Distrusted(
                f"{endpoint}: the kubelet's certificate is not trusted: {inner}",
                "set [kubelet] ca_file to its authority (kubelets with serverTLSBootstrap use the cluster's), "
                "server_name to a name that it has, or insecure_tls = true",
            )
        return KubeletUnavailable(
            f"{endpoint}: no answer: {error}",
            "set [kubelet] endpoint; in a pod, 127.0.0.1 is the node's only with hostNetwork: true",
        )


class _NotReached(Exception):
    """No answer came; another address or name may do."""


class _Distrusted(KubeletUnavailable):
    """The server's certificate does not verify."""


def _if_there(name: str) -> str:
    return name if Path(name).exists() else ""


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="ascii").strip() if name else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _short(body: bytes) -> str:
    return json.dumps(body[:200].decode(errors="replace"))
