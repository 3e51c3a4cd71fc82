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

    def context(self) -> ssl.SSLContext:
        """Return a context for the files as they are. Raises OSError (ssl.SSLError) for files that do not serve."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        if self.client_authority is not None:
            context.load_verify_locations(self.client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
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


def client_name(certificate: Any) -> str:
    """Return the common name of a peer's certificate, as `ssl.SSLSocket.getpeercert` gives it; empty without one."""
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""
