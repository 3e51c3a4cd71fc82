"""The client over TLS, as every real server wants it, configured by a kubeconfig with its own authority."""

import base64
import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import NODES, PODS, ClientSettings, Informer, Key, Unavailable, connect
from cluster.transport import Request
from cluster.twin import Fault, FaultType, Twin
from tests.cluster.conftest import PROMPTLY_SECONDS, pod
from tests.waiting import wait_for


class TlsFront:
    """Takes TLS connections and passes their bytes on to a plain server."""

    def __init__(self, target: int, certificate: Path, key: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            inside = self._context.wrap_socket(client, server_side=True)
            outside = socket.create_connection(("127.0.0.1", self._target))
            self._open += [inside, outside]
            threading.Thread(target=_pump, args=(outside, inside), daemon=True).start()
            _pump(inside, outside)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(65536):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "server.crt", folder / "server.key"
    names = ["-subj", "/CN=twin", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def front(twin: Twin, certificate: tuple[Path, Path]) -> Iterator[TlsFront]:
    running = TlsFront(int(twin.url.rpartition(":")[2]), *certificate)
    yield running
    running.close()


def kubeconfig(folder: Path, port: int, authority: bytes | None) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}"}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return file


def test_watches_run_and_stop_over_tls(
    twin: Twin, front: TlsFront, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    file = kubeconfig(tmp_path, front.port, certificate[0].read_bytes())
    with connect(kubeconfig=file) as client:
        informer = Informer(client, PODS)
        informer.start()
        assert informer.wait_synced(10)
        client.create(PODS, pod("a", "d"))
        wait_for(lambda: informer.get(Key("d", "a")) is not None)
        started = time.monotonic()
        informer.stop()
        assert time.monotonic() - started < PROMPTLY_SECONDS
        wait_for(lambda: twin.open_watches == 0)
        assert informer.counters.failures == 0


def test_an_unknown_authority_is_refused(front: TlsFront, tmp_path: Path) -> None:
    settings = ClientSettings(attempts=1)
    file = kubeconfig(tmp_path, front.port, None)
    with connect(settings, kubeconfig=file) as client, pytest.raises(Unavailable, match="certificate") as refused:
        client.list(NODES)
    assert not refused.value.ambiguous


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["authority", "name"])
def test_a_write_to_a_server_that_is_not_known_is_refused(
    twin: Twin, front: TlsFront, certificate: tuple[Path, Path], tmp_path: Path, host: str
) -> None:
    """The certificate is of another authority, or of another name."""
    authority = certificate[0].read_bytes() if host == "localhost" else None
    file = kubeconfig(tmp_path, front.port, authority)
    file.write_text(file.read_text().replace("127.0.0.1", host))
    settings = ClientSettings(attempts=1)
    with connect(settings, kubeconfig=file) as client, pytest.raises(Unavailable, match="certificate") as refused:
        client.create(PODS, pod("a", "d"))
    assert not refused.value.ambiguous
    assert not twin.requests


@pytest.mark.parametrize(("patience_seconds", "delay_seconds", "success"), [(30.0, 0.0, True), (0.2, 2.0, False)])
def test_quick_writes_are_answered_and_given_up_over_tls(
    twin: Twin,
    front: TlsFront,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    patience_seconds: float,
    delay_seconds: float,
    success: bool,
) -> None:
    with twin.client() as client:
        client.create(PODS, pod("a", "d"))
    twin.faults.add(Fault(FaultType.DELAY, frozenset({"delete"}), seconds=delay_seconds))
    file = kubeconfig(tmp_path, front.port, certificate[0].read_bytes())
    with connect(ClientSettings(timeout_seconds=patience_seconds), kubeconfig=file) as client:
        writes = client.quick_writes(1)
        wait_for(writes.has_room)
        assert writes.send("a", Request("DELETE", PODS.object_path(Key("d", "a"))))
        assert wait_for(lambda: writes.collect(0.01)) == [("a", success)]
        assert writes.connections == success
        writes.close()
