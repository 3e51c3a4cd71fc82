"""Certificates of the TCP listener, read again when their files change, and of its clients."""

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

_log = logging.getLogger(__name__)


class CertificatesUnusable(Exception):
    """The files are missing or do not fit each other; the message names them."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files of one side: its certificate and key, and the authorities of the other side."""

    certificate: Path
    key: Path
    authorities: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return certificate, key and authorities. Raises CertificatesUnusable."""
        try:
            # gRPC itself says nothing of a key that does not belong to its certificate.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
            context.load_verify_locations(self.authorities)
            return self.certificate.read_bytes(), self.key.read_bytes(), self.authorities.read_bytes()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            files = f"{self.certificate}, {self.key}, {self.authorities}"
            raise CertificatesUnusable(f"TLS files {files}: {error}") from error

    def client_credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a client. Raises CertificatesUnusable."""
        certificate, key, authorities = self.read()
        return grpc.ssl_channel_credentials(authorities, key, certificate)


class RotatingCertificates:
    """Credentials of a server that follow their files; asked for with each new connection."""

    def __init__(self, files: CertificateFiles) -> None:
        """Raises CertificatesUnusable."""
        self._files = files
        self._lock = threading.Lock()
        self._present = files.read()
        self._is_broken = False

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials that let in clients with a certificate of the authorities alone."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._present), self.newest, require_client_authentication=True
        )

    def newest(self) -> grpc.ServerCertificateConfiguration:
        """Return the files as they are now; those of before while they do not fit each other."""
        with self._lock:
            try:
                found = self._files.read()
            except CertificatesUnusable as error:
                if not self._is_broken:
                    _log.warning("the last certificates stay in use: %s", error)
                self._is_broken = True
                return _configuration(self._present)
            self._is_broken = False
            if found != self._present:
                _log.info("certificates of the listener were read again")
            self._present = found
            return _configuration(found)


def _configuration(files: tuple[bytes, bytes, bytes]) -> grpc.ServerCertificateConfiguration:
    certificate, key, authorities = files
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)


def _no_password() -> str:
    raise ValueError("the key is encrypted")
