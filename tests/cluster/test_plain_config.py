"""Configurations that are read without the official client, and those that are left to it."""

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import plain_config
from cluster.plain_config import TOKEN_SECONDS, TokenFile, endpoint_of_file, endpoint_of_pod
from cluster.transport import Endpoint

PEM = base64.b64encode(b"certificate").decode()


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def read(folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None, **more: Any) -> Endpoint | None:
    document = {
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}] if user is not None else [],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        **more,
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return endpoint_of_file(file, None, 4)


def test_certificates_of_files_beside_the_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_text("pem")
    user = {"client-certificate": "client.crt", "client-key": str(tmp_path / "client.key")}
    found = read(tmp_path, {"server": "https://h:6443", "certificate-authority": "ca.crt"}, user)
    assert found is not None
    assert (found.url, found.authorization()) == ("https://h:6443", "")
    given = found.pools.connection_pool_kw
    assert given["ca_certs"] == str(tmp_path / "ca.crt")
    assert given["cert_file"] == str(tmp_path / "client.crt")
    assert given["cert_reqs"] == "CERT_REQUIRED"


def test_certificates_inside_the_kubeconfig_reach_no_disk(tmp_path: Path) -> None:
    user = {"client-certificate-data": PEM, "client-key-data": PEM}
    found = read(tmp_path, {"server": "https://h", "certificate-authority-data": PEM}, user)
    assert found is not None
    given = found.pools.connection_pool_kw
    assert given["ca_cert_data"] == "certificate"
    assert Path(given["key_file"]).read_text() == "certificate"
    assert given["key_file"].startswith("/proc/self/fd/")
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_a_token_and_a_file_of_one(tmp_path: Path) -> None:
    given = read(tmp_path, {"server": "https://h"}, {"token": "secret"})
    (tmp_path / "token").write_text("rotating\n")
    of_file = read(tmp_path, {"server": "https://h"}, {"tokenFile": "token"})
    assert given is not None
    assert of_file is not None
    assert (given.authorization(), of_file.authorization()) == ("Bearer secret", "Bearer rotating")


@pytest.mark.parametrize(
    ("cluster", "user", "more"),
    [
        pytest.param({"server": "https://h"}, {"exec": {"command": "aws"}}, {}, id="exec"),
        pytest.param({"server": "https://h"}, {"username": "u", "password": "p"}, {}, id="password"),
        pytest.param({"server": "https://h", "proxy-url": "http://p"}, {}, {}, id="proxy"),
        pytest.param({"server": "https://h", "insecure-skip-tls-verify": True}, {}, {}, id="insecure"),
        pytest.param({"server": "https://h", "certificate-authority": "absent"}, {}, {}, id="no-such-file"),
        pytest.param({"server": "https://h"}, {"client-certificate-data": PEM}, {}, id="no-key"),
        pytest.param({"server": "https://h"}, {"tokenFile": "absent"}, {}, id="no-token"),
        pytest.param({"server": ["https://h"]}, {}, {}, id="not-a-name"),
        pytest.param({"server": "https://h"}, {}, {"current-context": "other"}, id="no-such-context"),
        pytest.param({"server": "https://h"}, {}, {"clusters": "x"}, id="not-a-list"),
        pytest.param({"server": "https://h"}, {"client-key-data": "%%"}, {}, id="not-base64"),
    ],
)
def test_what_is_left_to_the_official_client(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], more: dict[str, Any]
) -> None:
    assert read(tmp_path, cluster, user, **more) is None


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\0", "- " * 20_000], ids=["empty", "list", "torn", "nul", "deep"])
def test_a_torn_file_is_left_to_the_official_client(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    assert endpoint_of_file(tmp_path / "config", None, 4) is None
    assert endpoint_of_file(tmp_path / "absent", None, 4) is None


def test_a_proxy_of_the_environment_is_left_to_the_official_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(tmp_path, {"server": "https://h"}) is not None
    monkeypatch.setenv("https_proxy", "http://proxy")
    assert read(tmp_path, {"server": "https://h"}) is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        pytest.param("10.0.0.1", "https://10.0.0.1:443", id="v4"),
        pytest.param("fd00::1", "https://[fd00::1]:443", id="v6"),
    ],
)
def test_the_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.setattr(plain_config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    assert endpoint_of_pod(4) is None
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text(name)
    found = endpoint_of_pod(4)
    assert found is not None
    assert (found.url, found.authorization()) == (url, "Bearer token")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert endpoint_of_pod(4) is None


def test_a_token_is_read_again_and_outlives_its_file(tmp_path: Path) -> None:
    file, now = tmp_path / "token", [0.0]
    token = TokenFile(file, lambda: now[0])
    with pytest.raises(FileNotFoundError):
        token()
    file.write_text("first")
    assert token() == "Bearer first"
    file.write_text("second")
    assert token() == "Bearer first"
    now[0] = TOKEN_SECONDS
    assert token() == "Bearer second"
    file.unlink()
    now[0] = 3 * TOKEN_SECONDS
    assert token() == "Bearer second"


def test_the_official_client_is_not_loaded_for_a_usual_kubeconfig(tmp_path: Path) -> None:
    read(tmp_path, {"server": "https://h"}, {"token": "t"})
    code = (
        "import sys; from pathlib import Path; from cluster.config import load_endpoint; "
        "load_endpoint(kubeconfig=Path(sys.argv[1])); sys.exit('kubernetes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "config"], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0
