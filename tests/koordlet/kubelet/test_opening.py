"""What is configured, and the commands' part of it."""

from pathlib import Path

import click.testing
import msgspec
import pytest

from koordlet.commands.cluster_mode import find_cluster_mode
from koordlet.commands.run import run
from koordlet.config import AgentSettings
from koordlet.kube.settings import ClusterSettings
from koordlet.kubelet.opening import NothingConfigured, is_kubelet_configured, node_name
from koordlet.kubelet.settings import KubeletSettings
from tests.koordlet.kubelet.servers import RuntimeServer
from tests.waiting import wait_for

KUBECONFIG = """
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: c, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
"""


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "NODE_NAME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    (tmp_path / "config").write_text(KUBECONFIG)
    return str(tmp_path / "config")


def test_neither_is_a_usage_error_with_the_remedy() -> None:
    done = click.testing.CliRunner().invoke(run, [])
    assert done.exit_code == 2
    assert "neither the API server nor the kubelet is configured" in done.output
    assert "--standalone" in done.output


def test_a_kubeconfig_turns_reporting_on_and_names_the_node(kubeconfig: str) -> None:
    mode = find_cluster_mode(AgentSettings(), node="n1", kubeconfig=kubeconfig)
    assert mode.node == "n1"
    assert mode.apiserver is not None
    reports = mode.settings.cluster
    assert (reports.enabled, reports.node_name, reports.kubeconfig) == (True, "n1", kubeconfig)
    assert mode.settings.enforcer == AgentSettings().enforcer
    mode.apiserver.close()


def test_reporting_that_is_off_stays_off(kubeconfig: str) -> None:
    off = AgentSettings(cluster=ClusterSettings(enabled=False))
    mode = find_cluster_mode(off, node="n1", kubeconfig=kubeconfig)
    assert mode.apiserver is not None
    assert not mode.settings.cluster.enabled
    mode.apiserver.close()


def test_a_kubelet_alone_is_enough_and_nothing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    settings = AgentSettings(kubelet=KubeletSettings(endpoint="https://127.0.0.1:1"))
    mode = find_cluster_mode(settings, node="n1", kubeconfig="")
    assert mode.apiserver is None
    assert not mode.settings.cluster.enabled
    assert "nothing is reported to the cluster" in caplog.text


def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(NothingConfigured, match="missing"):
        find_cluster_mode(AgentSettings(), node="", kubeconfig=str(tmp_path / "missing"))


def test_the_kubelet_is_configured_by_address_port_certificate_or_account(tmp_path: Path) -> None:
    bare = KubeletSettings(token_file=str(tmp_path / "token"))
    assert not is_kubelet_configured(bare)
    for key, value in (("endpoint", "https://n"), ("read_only_port", 10255), ("client_certificate", "/c")):
        assert is_kubelet_configured(msgspec.structs.replace(bare, **{key: value}))
    (tmp_path / "token").write_text("t")
    assert is_kubelet_configured(bare)


def test_the_name_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert node_name("n1") == "n1"
    monkeypatch.setenv("NODE_NAME", "n2")
    assert node_name("") == "n2"
    monkeypatch.delenv("NODE_NAME")
    assert node_name("") == node_name("").lower() != ""


def test_the_source_of_a_mode_runs_while_it_is_open(
    settings: KubeletSettings, root: Path, runtime: RuntimeServer
) -> None:
    mode = find_cluster_mode(AgentSettings(root=str(root), kubelet=settings), node="node-0", kubeconfig="")
    with mode.open_source() as source:
        wait_for(lambda: source.table().generation)
        assert len(source.table()) == 7
