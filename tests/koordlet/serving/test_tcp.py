"""The TCP listener: who is let in, certificates that rotate, and measurements over it."""

import logging
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import grpc
import msgspec
import numpy as np
import pytest

from api.frame import Frame
from koordlet.config import load_settings
from koordlet.serving.broadcast import VerdictFilter
from koordlet.serving.certificates import CertificateFiles, CertificatesUnusable, RotatingCertificates
from koordlet.serving.client import AgentClient, AgentUnavailable, place_of
from koordlet.serving.newest_frame import NewestFrame
from koordlet.serving.server import AgentServer
from koordlet.serving.settings import ServingSettings
from koordlet.serving.socket_file import SocketUnusable
from koordlet.serving.status import AgentStatus
from tests.certificates import Authority, Pair
from tests.frames import make_frame
from tests.verdicts import make_verdict
from tests.waiting import wait_for

STATUS = AgentStatus("n1", "0.1", "6.18", 1.0, ())


def frame(seconds: float) -> Frame:
    """A frame of two cgroups."""
    used = int(1e9 * seconds)
    return make_frame(seconds, {1: "/", 2: "/a"}, {"cpu.oncpu_ns": [used, used], "cpu.wait_count": [0, used]})


@dataclass(frozen=True)
class Pki:
    """Authorities of agents and of clients, and what the listener uses."""

    agents: Authority
    clients: Authority
    folder: Path

    def tls(self, pair: Pair, authority: Authority | None = None) -> CertificateFiles:
        return CertificateFiles(pair.certificate, pair.key, (authority or self.agents).pair.certificate)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    return Pki(Authority(folder / "agents", "agents"), Authority(folder / "clients", "clients"), folder)


@pytest.fixture(scope="module")
def certificates(made: Pki) -> dict[str, Pair]:
    issue = made.agents.issue
    return {
        "server": issue("server", names=("IP:127.0.0.1", "DNS:koordlet")),
        "renewed": issue("renewed", names=("IP:127.0.0.1",)),
        "client": made.clients.issue("client"),
        "stranger": issue("stranger"),
    }


@pytest.fixture
def files(made: Pki, certificates: dict[str, Pair], tmp_path: Path) -> CertificateFiles:
    """The listener's files, which a test may replace."""
    found = CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")
    install(certificates["server"], found)
    shutil.copy(made.clients.pair.certificate, found.authorities)
    return found


def install(pair: Pair, files: CertificateFiles) -> None:
    shutil.copy(pair.certificate, files.certificate)
    shutil.copy(pair.key, files.key)


@contextmanager
def serving(tmp_path: Path, files: CertificateFiles | None = None) -> Iterator[AgentServer]:
    tls = {}
    if files is not None:
        tls = {"certificate": str(files.certificate), "key": str(files.key), "client_ca": str(files.authorities)}
    settings = ServingSettings(enabled=True, socket=str(tmp_path / "s.sock"), address="127.0.0.1:0", **tls)
    server = AgentServer(settings, STATUS)
    server.start()
    try:
        yield server
    finally:
        server.close()


def client_of(server: AgentServer, tls: CertificateFiles | None = None, server_name: str = "") -> AgentClient:
    return AgentClient(f"127.0.0.1:{server.port}", tls=tls, server_name=server_name, timeout_seconds=5.0)


def test_a_client_of_the_authority_is_answered(
    made: Pki, certificates: dict[str, Pair], files: CertificateFiles, tmp_path: Path
) -> None:
    with serving(tmp_path, files) as server:
        verdict = make_verdict("/a")
        server.update(STATUS, [verdict], (verdict,))
        with client_of(server, made.tls(certificates["client"])) as client:
            assert client.open_verdicts(VerdictFilter()) == [verdict]
        with client_of(server, made.tls(certificates["client"]), "koordlet") as client:
            assert client.node().hostname == "n1"


def test_others_are_refused(made: Pki, certificates: dict[str, Pair], files: CertificateFiles, tmp_path: Path) -> None:
    with serving(tmp_path, files) as server:
        for tls, server_name in (
            (None, ""),
            (made.tls(certificates["stranger"]), ""),
            (made.tls(certificates["client"], made.clients), ""),
            (made.tls(certificates["client"]), "another.name"),
        ):
            with (
                client_of(server, tls, server_name) as client,
                pytest.raises(AgentUnavailable, match="no answer on 127"),
            ):
                client.node()


def test_a_client_that_shows_no_certificate_is_refused(made: Pki, files: CertificateFiles, tmp_path: Path) -> None:
    with serving(tmp_path, files) as server:
        credentials = grpc.ssl_channel_credentials(made.agents.pair.certificate.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
            call = channel.unary_unary("/koord.v1.Koordlet/Node")
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def served_certificate(server: AgentServer, made: Pki, client: Pair) -> bytes:
    context = ssl.create_default_context(cafile=str(made.agents.pair.certificate))
    context.load_cert_chain(client.certificate, client.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


def test_a_renewed_certificate_is_served_without_a_restart(
    made: Pki, certificates: dict[str, Pair], files: CertificateFiles, tmp_path: Path
) -> None:
    with serving(tmp_path, files) as server:
        assert served_certificate(server, made, certificates["client"]) == der(certificates["server"])
        install(certificates["renewed"], files)
        assert served_certificate(server, made, certificates["client"]) == der(certificates["renewed"])


def test_half_a_renewal_keeps_the_last_certificate(
    certificates: dict[str, Pair], files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    rotating = RotatingCertificates(files)
    shutil.copy(certificates["renewed"].certificate, files.certificate)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            rotating.newest()
        assert len(caplog.records) == 1
        assert "stay in use" in caplog.text
        install(certificates["renewed"], files)
        rotating.newest()
    assert "read again" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda files: files.key.unlink(), id="no-key"),
        pytest.param(lambda files: files.certificate.write_text("x"), id="no-pem"),
        pytest.param(lambda files: files.authorities.write_text(""), id="no-authority"),
    ],
)
def test_unusable_files_are_named_and_nothing_is_left_behind(
    damage: Callable[[CertificateFiles], None], files: CertificateFiles, tmp_path: Path
) -> None:
    damage(files)
    with pytest.raises(CertificatesUnusable, match=str(files.key)):
        files.read()
    with pytest.raises(SocketUnusable, match="TLS files"), serving(tmp_path, files):
        pass
    assert not (tmp_path / "s.sock").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param('address = "0.0.0.0:9317"', "without TLS only a loopback", id="all-addresses"),
        pytest.param('address = "node-7:9317"', "without TLS only a loopback", id="name"),
        pytest.param('address = "9317"', "must be host:port", id="port-alone"),
        pytest.param('address = "127.0.0.1:70000"', "must be host:port", id="port-too-large"),
        pytest.param('certificate = "/a"', "needs all of", id="certificate-alone"),
    ],
)
def test_settings_that_would_serve_strangers_are_refused(table: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "koordlet.toml"
    path.write_text(f"[serving]\n{table}\n")
    with pytest.raises(ValueError, match=message):
        load_settings(path)


@pytest.mark.parametrize("address", ["127.0.0.1:9317", "localhost:0", "[::1]:9317"])
def test_loopback_needs_no_certificates(address: str) -> None:
    assert msgspec.convert({"address": address}, ServingSettings).address == address


def test_measurements_arrive_as_they_were_and_a_slow_reader_misses_whole_ticks(tmp_path: Path) -> None:
    with serving(tmp_path) as server, client_of(server) as client:
        stream = client.frames()
        first, second = frame(0.0), frame(1.0)
        server.update(STATUS, [], (), first)
        got = next(stream)
        assert got.wall_ns == first.wall_ns
        columns = got.tables["cgroup"].columns
        assert columns
        for name, column in columns.items():
            assert np.array_equal(column, first.tables["cgroup"].columns[name])
        server.update(STATUS, [], (), second)
        assert next(stream).wall_ns == second.wall_ns


@pytest.mark.parametrize("block", [b"", b"x", b"no block at all, but long enough"], ids=["empty", "short", "garbage"])
def test_a_frame_that_is_none_is_refused(block: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detector.recording.frames.FrameEncoder.encode", Mock(return_value=block))
    with serving(tmp_path) as server, client_of(server) as client:
        server.update(STATUS, [], (), frame(0.0))
        with pytest.raises(AgentUnavailable, match="cannot be read"):
            next(client.frames())


def test_the_newest_frame_replaces_the_one_before() -> None:
    newest = NewestFrame()
    assert newest.after(0, 0.0) == (0, None)
    for seconds in (0.0, 1.0, 2.0):
        newest.publish(frame(seconds))
    found = newest.after(0, 0.0)
    assert found is not None
    number, got = found
    assert number == 3
    assert got is not None
    assert newest.after(3, 0.0) == (3, None)
    newest.close()
    assert newest.after(3, 60.0) is None


def test_a_client_that_left_frees_its_stream(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for _ in range(20):
            with client_of(server) as client:
                stream = client.frames()
                server.update(STATUS, [], (), frame(0.0))
                next(stream)
                stream.close()
            wait_for(lambda: server._streams._value == 8)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("unix:/run/a.sock", Path("/run/a.sock"), id="unix"),
        pytest.param("./a.sock", Path("a.sock"), id="path"),
        pytest.param("node-7:9317", "node-7:9317", id="address"),
    ],
)
def test_a_place_is_a_socket_or_an_address(text: str, place: Path | str) -> None:
    assert place_of(text) == place


def test_a_place_without_a_port_is_refused() -> None:
    with pytest.raises(ValueError, match="neither"):
        place_of("node-7")
