"""Self-signed certificates: issued by openssl, read by Python's ssl."""

import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPENSSL_SECONDS = 30.0


class CertificateError(Exception):
    """A certificate that could not be made or read; the message says why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key as PEM."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Validity, in seconds since the epoch, and DNS names of a certificate."""

    not_before_seconds: float
    not_after_seconds: float
    names: frozenset[str]


def issue(names: Sequence[str], days: int) -> Pair:
    """Return a new certificate for `names`, which signs itself: who trusts it trusts nothing else.

    Raises CertificateError where openssl is not installed or fails.
    """
    with tempfile.TemporaryDirectory(prefix="koord-webhook-") as folder:
        key, certificate = Path(folder, "key.pem"), Path(folder, "certificate.pem")
        command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        command += ["-keyout", str(key), "-out", str(certificate), "-days", str(days), "-subj", "/CN=koord-webhook"]
        for extension in (
            f"subjectAltName={','.join(f'DNS:{name}' for name in names)}",
            "keyUsage=critical,digitalSignature,keyCertSign",
            "extendedKeyUsage=serverAuth",
        ):
            command += ["-addext", extension]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=OPENSSL_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CertificateError(f"openssl: {error}; install it to have webhooks make their certificate") from error
        if done.returncode:
            raise CertificateError(f"openssl: {done.stderr.strip()}")
        return Pair(certificate.read_text(), key.read_text())


def facts(certificate: str) -> Facts:
    """Return what a PEM certificate says. Raises CertificateError for a text that holds not exactly one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificate)
        (found,) = context.get_ca_certs()
        begin, end = ssl.cert_time_to_seconds(str(found["notBefore"])), ssl.cert_time_to_seconds(str(found["notAfter"]))
    except (ssl.SSLError, ValueError, KeyError, TypeError) as error:
        raise CertificateError(f"not a certificate: {error}") from error
    alternatives: Any = found.get("subjectAltName", ())
    return Facts(begin, end, frozenset(name for kind, name in alternatives if kind == "DNS"))


def server_context() -> ssl.SSLContext:
    """Return a context for a server: TLS 1.2 and later. It has no certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def load(context: ssl.SSLContext, pair: Pair) -> None:
    """Have new connections of a context use a pair. Raises CertificateError for a pair that does not fit."""
    with tempfile.TemporaryDirectory(prefix="koord-webhook-") as folder:
        path = Path(folder, "pair.pem")
        path.touch(0o600)
        path.write_text(f"{pair.key}\n{pair.certificate}")
        try:
            context.load_cert_chain(path)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CertificateError(f"certificate and key do not fit: {error}") from error
