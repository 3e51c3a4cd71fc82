"""TLS of a listener from PEM files, which may be replaced while it serves."""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

RELOAD_SECONDS = 10.0
"""Interval of the look whether files were replaced."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and the authority that signs the clients' certificates."""

    certificate: Path
    key: Path
    client_authority: Path | None = None
    """Demand a client certificate of this authority; None demands none."""
    is_demanded_at_once: bool = True
    """Demand it in the handshake. False lets clients without one ask too: the server must tell them apart."""

    def context(self) -> ssl.SSLContext:
        """Return a context for the files as they are. Raises OSError that names the files that do not serve."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:  # OpenSSL says neither which file nor, of an encrypted key, what it is
            raise OSError(f"{self.certificate} and {self.key}: {error}") from error
        if self.client_authority is not None:
            try:
                context.load_verify_locations(self.client_authority)
            except OSError as error:
                raise OSError(f"{self.client_authority}: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED if self.is_demanded_at_once else ssl.CERT_OPTIONAL
        return context

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """Return what changes with the files: inode and time of each. Raises OSError."""
        paths = (self.certificate, self.key, self.client_authority)
        found = [path.stat() for path in paths if path is not None]
        return tuple((each.st_ino, each.st_mtime_ns) for each in found)


class ReloadedContext:
    """The context of files, made anew when they were replaced; torn or wrong files leave the old one."""

    def __init__(self, files: TlsFiles, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._stamp = files.stamp()
        self.context = files.context()
        self._next_seconds = clock() + RELOAD_SECONDS

    def look(self) -> None:
        """Take replaced files into use. Never raises."""
        if self._clock() < self._next_seconds:
            return
        self._next_seconds = self._clock() + RELOAD_SECONDS
        try:
            stamp = self._files.stamp()
            if stamp != self._stamp:
                self.context = self._files.context()
                self._stamp = stamp
                log.info("TLS files were replaced: %s is in use", self._files.certificate)
        except OSError as error:
            log.warning("keeping the TLS certificate in use, %s does not serve: %s", self._files.certificate, error)


def _no_password() -> str:
    """In place of the question on a terminal that OpenSSL would ask."""
    raise ValueError("the key is encrypted")


def client_name(certificate: Any) -> str:
    """Return the common name of a peer's certificate, as `ssl.SSLSocket.getpeercert` gives it; empty without one."""
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""
