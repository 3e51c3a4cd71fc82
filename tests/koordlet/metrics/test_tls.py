"""The metrics endpoint by TLS, asked by real clients: who is let in, to what, and from which files."""

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.plugin import Unsupported
from cluster.serving import tls as tls_module
from koordlet.agent.agent import Agent
from koordlet.config import AgentSettings, EnforcerSettings, MetricsSettings, ProbeSettings
from koordlet.control.control_loop import ControlLoop, open_control_loop
from koordlet.metrics import connections
from koordlet.metrics.server import open_metrics
from tests.certificates import Authority, Pair
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.metrics.test_server import port_of
from tests.waiting import wait_for


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours", "ours")


@pytest.fixture
def server_pair(authority: Authority) -> Pair:
    return authority.issue("server", names=("IP:127.0.0.1",))


def settings_of(folder: Path, metrics: MetricsSettings) -> AgentSettings:
    return AgentSettings(
        root=str(FakeHost(folder).root),
        probes=ProbeSettings(backend="none"),
        metrics=metrics,
        enforcer=EnforcerSettings(state_dir=str(folder / "state"), audit_file=""),
    )


@contextlib.contextmanager
def serving(folder: Path, metrics: MetricsSettings) -> Iterator[None]:
    settings = settings_of(folder, metrics)
    with contextlib.ExitStack() as stack:
        agent = Agent(settings)
        stack.callback(agent.close)
        control: ControlLoop = open_control_loop(settings, FakeHost(folder).tree)
        stack.callback(control.close)
        stack.enter_context(open_metrics(agent, None, control, settings, "1.2.3"))
        yield


def table(pair: Pair, client_ca: Path | None = None) -> MetricsSettings:
    files = {"certificate": str(pair.certificate), "key": str(pair.key)}
    return MetricsSettings(port=0, client_ca=str(client_ca or ""), **files)


def client_of(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.pair.certificate)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


def ask(port: int, context: ssl.SSLContext, path: str = "/metrics") -> tuple[int, str]:
    client = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    with contextlib.closing(client):
        client.request("GET", path)
        reply = client.getresponse()
        return reply.status, reply.read().decode()


def test_metrics_and_page_are_served_by_tls_alone(
    tmp_path: Path, authority: Authority, server_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), serving(tmp_path, table(server_pair)):
        port = port_of(caplog.text, "https")
        assert f"the node's page on https://127.0.0.1:{port}/" in caplog.text
        context = client_of(authority)
        status, text = ask(port, context)
        assert (status, "koord_build_info" in text) == (200, True)
        assert ask(port, context, "/healthz") == (200, "ok\n")
        assert ask(port, context, "/") == (503, "no tick yet\n")
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(port, ssl.create_default_context())
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.closing(plain), pytest.raises((OSError, http.client.HTTPException)):
            plain.request("GET", "/metrics")
            plain.getresponse()
        curl = ["curl", "--silent", "--show-error", "--cacert", str(authority.pair.certificate)]
        done = subprocess.run([*curl, f"https://127.0.0.1:{port}/metrics"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "koord_build_info" in done.stdout


def test_with_an_authority_of_clients_others_get_health_alone(
    tmp_path: Path, authority: Authority, server_pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path / "other", "other")
    with caplog.at_level("INFO"), serving(tmp_path, table(server_pair, authority.pair.certificate)):
        port = port_of(caplog.text, "https")
        assert ask(port, client_of(authority, authority.issue("prometheus")))[0] == 200
        without = client_of(authority)
        for path in ("/metrics", "/", "/healthz/", "/healthz/../metrics", "/healthz?a=b/metrics"):
            status, text = ask(port, without, path)
            assert status == (200 if path.startswith("/healthz?") else 403), path
            assert "koord_" not in text
        assert ask(port, without, "/healthz") == (200, "ok\n")
        assert ask(port, without, "/readyz") == (503, "no tick yet\n")
        with pytest.raises(OSError, match=r"alert|reset|EOF|pipe"):
            ask(port, client_of(authority, other.issue("prometheus")), "/healthz")


def test_replaced_files_are_taken_into_use_and_wrong_ones_are_not(
    tmp_path: Path,
    authority: Authority,
    server_pair: Pair,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_module, "RELOAD_SECONDS", 0.05)
    other = Authority(tmp_path / "other", "other")
    replacing = other.issue("server", names=("IP:127.0.0.1",))
    with caplog.at_level("INFO"), serving(tmp_path, table(server_pair)):
        port = port_of(caplog.text, "https")
        assert ask(port, client_of(authority))[0] == 200
        os.replace(replacing.certificate, server_pair.certificate)
        wait_for(lambda: f"{server_pair.certificate} and {server_pair.key}: " in caplog.text)
        assert ask(port, client_of(authority))[0] == 200
        os.replace(replacing.key, server_pair.key)
        wait_for(lambda: "TLS files were replaced" in caplog.text)
        assert ask(port, client_of(other))[0] == 200


def test_silent_and_slow_handshakes_do_not_keep_scrapes_waiting(
    tmp_path: Path,
    authority: Authority,
    server_pair: Pair,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections._Handler, "timeout", 0.3)
    with caplog.at_level("INFO"), serving(tmp_path, table(server_pair)), contextlib.ExitStack() as held:
        port = port_of(caplog.text, "https")
        began = time.monotonic()
        silent = [held.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(10)]
        assert ask(port, client_of(authority))[0] == 200
        assert [each.recv(1) for each in silent] == [b""] * 10
        assert time.monotonic() - began < 15
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        pytest.param(lambda pair: pair.key.unlink(), "server.key", id="missing"),
        pytest.param(lambda pair: pair.certificate.write_text("no PEM"), "server.crt", id="no-pem"),
        pytest.param(lambda pair: _encrypt(pair), "the key is encrypted", id="encrypted"),
        pytest.param(lambda pair: _another_key(pair), "KEY_VALUES_MISMATCH", id="of-another"),
    ],
)
def test_files_that_do_not_serve_are_named_with_keys_and_remedy(
    damage: object, named: str, tmp_path: Path, server_pair: Pair
) -> None:
    assert callable(damage)
    damage(server_pair)
    with pytest.raises(Unsupported, match="TLS") as caught, serving(tmp_path, table(server_pair)):
        pass
    assert named in caught.value.reason
    assert str(server_pair.certificate.parent) in caught.value.reason
    assert "[metrics] certificate and key" in caught.value.remedy


def test_an_authority_that_is_none_is_named(tmp_path: Path, server_pair: Pair) -> None:
    wrong = tmp_path / "clients.crt"
    wrong.write_text("no PEM")
    with pytest.raises(Unsupported, match=r"clients\.crt") as caught, serving(tmp_path, table(server_pair, wrong)):
        pass
    assert "client_ca" in caught.value.remedy


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        pytest.param({"certificate": "a.crt"}, "`certificate` and `key` go together", id="no-key"),
        pytest.param({"key": "a.key"}, "`certificate` and `key` go together", id="no-certificate"),
        pytest.param({"client_ca": "ca.crt"}, "`client_ca` needs `certificate` and `key`", id="authority-alone"),
    ],
)
def test_half_of_the_keys_is_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(keys, MetricsSettings)


@pytest.mark.parametrize(("address", "is_told"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_plain_metrics_beyond_this_host_are_said_to_be_for_all(
    address: str, is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), serving(tmp_path, MetricsSettings(address=address, port=0)):
        assert ("without TLS: all who reach the port" in caplog.text) is is_told


def _encrypt(pair: Pair) -> None:
    whole = ["openssl", "ec", "-in", str(pair.key), "-aes256", "-passout", "pass:secret", "-out", str(pair.key)]
    subprocess.run(whole, check=True, capture_output=True)


def _another_key(pair: Pair) -> None:
    where = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(pair.key)]
    subprocess.run(["openssl", "genpkey", *where], check=True, capture_output=True)
