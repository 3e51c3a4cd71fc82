"""Address and credentials of the usual kinds, read without the official client, whose import takes 18 MB.

The service account of a pod; a kubeconfig with certificates, a token or nothing. Everything else (exec plugins,
passwords, proxies, several files, what is not well formed) is the official client's work: None is returned for it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import urllib3

from cluster.transport import Endpoint

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0
"""Time for which a token that was read from a file is used: they rotate."""
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


class _Named(msgspec.Struct):
    name: str


class _ClusterFields(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    extensions: Any = None


class _UserFields(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    client_certificate: str = ""
    client_certificate_data: bytes = b""
    client_key: str = ""
    client_key_data: bytes = b""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")


class _ContextFields(msgspec.Struct):
    cluster: str
    user: str = ""


class _Cluster(_Named):
    cluster: dict[str, Any]


class _User(_Named):
    user: dict[str, Any] = {}


class _Context(_Named):
    context: _ContextFields


class _Kubeconfig(msgspec.Struct):
    current_context: str = msgspec.field(default="", name="current-context")
    clusters: list[_Cluster] = []
    users: list[_User] = []
    contexts: list[_Context] = []


def endpoint_of_pod(pool_size: int) -> Endpoint | None:
    """Return the endpoint of the pod's service account; None outside a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    token, authority = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    if not host or not port or _has_proxy() or not authority.is_file() or not token.is_file():
        return None
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Endpoint(url, _pools(pool_size, ca_certs=str(authority)), TokenFile(token))


def endpoint_of_file(file: Path, context: str | None, pool_size: int) -> Endpoint | None:
    """Return the endpoint of a kubeconfig's context, by default the current one; None for what is not read here."""
    import yaml

    if _has_proxy():
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        config = msgspec.convert(yaml.load(file.read_bytes(), loader), _Kubeconfig)  # noqa: S506 - a safe loader
        chosen = next(each.context for each in config.contexts if each.name == (context or config.current_context))
        cluster = msgspec.convert(
            next(each.cluster for each in config.clusters if each.name == chosen.cluster), _ClusterFields
        )
        users: list[dict[str, Any]] = [each.user for each in config.users if each.name == chosen.user]
        user = msgspec.convert(users[0] if users else {}, _UserFields)
        return _endpoint(file.parent, cluster, user, pool_size)
    except (OSError, ValueError, StopIteration, RecursionError, yaml.YAMLError):
        return None


def _endpoint(folder: Path, cluster: _ClusterFields, user: _UserFields, pool_size: int) -> Endpoint | None:
    if bool(user.client_certificate or user.client_certificate_data) != bool(user.client_key or user.client_key_data):
        return None
    tls: dict[str, Any] = {}
    if cluster.certificate_authority_data:
        tls["ca_cert_data"] = cluster.certificate_authority_data.decode()
    elif cluster.certificate_authority:
        tls["ca_certs"] = str(folder / cluster.certificate_authority)
    if user.client_certificate or user.client_certificate_data:
        tls["cert_file"] = _file(folder, user.client_certificate, user.client_certificate_data)
        tls["key_file"] = _file(folder, user.client_key, user.client_key_data)
    for name in ("ca_certs", "cert_file", "key_file"):
        if name in tls and not Path(tls[name]).exists():
            return None
    authorization: Callable[[], str] = _none
    if user.token:
        header = f"Bearer {user.token}"
        authorization = lambda: header  # noqa: E731 - one of three ways
    elif user.token_file:
        authorization = TokenFile(folder / user.token_file)
        authorization()
    return Endpoint(cluster.server, _pools(pool_size, **tls), authorization)


class TokenFile:
    """Header's value from a file, read again after a minute. A file that cannot be read leaves the last value."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._value = ""
        self._read_seconds = float("-inf")

    def __call__(self) -> str:
        """Return the value. Raises OSError where the file was never readable."""
        if self._clock() - self._read_seconds >= TOKEN_SECONDS:
            try:
                self._value = f"Bearer {self._file.read_text().strip()}"
            except OSError:
                if not self._value:
                    raise
            self._read_seconds = self._clock()
        return self._value


def _none() -> str:
    return ""


def _has_proxy() -> bool:
    return any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES)


def _pools(pool_size: int, **tls: Any) -> urllib3.PoolManager:
    return urllib3.PoolManager(num_pools=4, maxsize=pool_size, cert_reqs="CERT_REQUIRED", **tls)


def _file(folder: Path, name: str, data: bytes) -> str:
    """Return a path that TLS can load: the file, or an anonymous one with the data, which stays for the process."""
    if not data:
        return str(folder / name)
    descriptor = os.memfd_create("credentials", os.MFD_CLOEXEC)
    os.write(descriptor, data)
    return f"/proc/self/fd/{descriptor}"
