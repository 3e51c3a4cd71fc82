"""HTTP served by our programs: one listener with bounds, TLS, client certificates and their rotation.

class Answers:
    def answer(self, request: Request) -> Reply:
        return Reply(200, b"ok", TEXT)

listener = listen(Answers(), "127.0.0.1", 8080)             # plain HTTP, on loopback or with public=True
listener = listen(Answers(), "0.0.0.0", 8443, tls=TlsFiles(certificate, key, client_authority), bounds=Bounds())
...
listener.stop()

`request.client_name` is the common name of a client certificate that was verified, else empty.
"""

from cluster.serving.connections import Bounds
from cluster.serving.exchange import TEXT, Answering, Reply, Request
from cluster.serving.listener import ExposedError, Listener, is_loopback, listen
from cluster.serving.tls import TlsFiles

__all__ = [
    "TEXT",
    "Answering",
    "Bounds",
    "ExposedError",
    "Listener",
    "Reply",
    "Request",
    "TlsFiles",
    "is_loopback",
    "listen",
]
