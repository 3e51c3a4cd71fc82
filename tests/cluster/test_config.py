"""Address of the server, as the official client reads it."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cluster import PODS, NotConfigured, Query, connect
from cluster.config import load_endpoint
from cluster.twin import Twin


def kubeconfig(folder: Path, server: str, **user: str) -> Path:
    file = folder / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "c", "user": "u"}},
        ],
    }
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))


def test_a_file_given_leads_to_the_server(twin: Twin, tmp_path: Path) -> None:
    with connect(kubeconfig=kubeconfig(tmp_path, twin.url)) as client:
        assert client.list(PODS, Query("d")).items == ()


def test_the_variable_leads_to_the_server(twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kubeconfig(tmp_path, twin.url)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{file}")
    with connect(context="other") as client:
        assert client.list(PODS).resource_version


def test_a_path_before_the_api_is_kept(tmp_path: Path) -> None:
    assert (
        load_endpoint(kubeconfig=kubeconfig(tmp_path, "https://h/k8s/clusters/c1")).url == "https://h/k8s/clusters/c1"
    )


@pytest.mark.parametrize(
    ("user", "header"),
    [
        pytest.param({"token": "secret"}, "Bearer secret", id="token"),
        pytest.param(
            {"username": "me", "password": "pw"}, "Basic " + base64.b64encode(b"me:pw").decode(), id="password"
        ),
        pytest.param({}, "", id="anonymous"),
    ],
)
def test_credentials_become_the_header(user: dict[str, str], header: str, tmp_path: Path) -> None:
    assert load_endpoint(kubeconfig=kubeconfig(tmp_path, "http://h", **user)).authorization() == header


def test_nowhere_is_said_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=r"missing.*KUBECONFIG") as refused:
        connect()
    assert refused.value.__cause__ is not None
    with pytest.raises(NotConfigured):
        connect(kubeconfig=tmp_path / "absent")
    garbage = tmp_path / "garbage"
    garbage.write_text("[]")
    with pytest.raises(NotConfigured):
        connect(kubeconfig=garbage)


def test_the_official_client_is_loaded_only_when_asked_for() -> None:
    code = "import cluster, cluster.twin, sys; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
