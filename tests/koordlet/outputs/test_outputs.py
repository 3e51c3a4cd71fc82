"""Optional sinks: none by default; one that cannot be opened names the reason and the remedy."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.plugin import Unsupported
from koordlet.config import AgentSettings
from koordlet.identity.pods import NO_PODS
from koordlet.kube.reporter import Reporter
from koordlet.kube.settings import ClusterSettings
from koordlet.outputs.cluster_links import links_of
from koordlet.outputs.outputs import open_sinks
from koordlet.prediction.settings import PredictionSettings
from koordlet.profiles.settings import ProfileSettings
from koordlet.serving.settings import ServingSettings

KUBECONFIG = """
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: c, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
"""


def agent(**given: Any) -> Any:
    probes = SimpleNamespace(opened={}, partly={})
    return SimpleNamespace(probes=probes, lost=Counter(), extra_readings=[], unsupported={}, **given)


def test_by_default_nothing_is_opened() -> None:
    with open_sinks(agent(), None, AgentSettings(), "0") as sinks:
        assert sinks == {}


@pytest.mark.parametrize(
    ("settings", "missing", "remedy"),
    [
        pytest.param(
            AgentSettings(serving=ServingSettings(enabled=True)), "koordlet.serving.server", "koord[grpc]", id="grpc"
        ),
        pytest.param(
            AgentSettings(cluster=ClusterSettings(enabled=True)),
            "koordlet.outputs.cluster_sink",
            "koord[cluster]",
            id="cluster",
        ),
    ],
    ids=["serving", "cluster"],
)
def test_what_is_not_installed_is_named(
    settings: AgentSettings, missing: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(Unsupported) as caught, open_sinks(agent(), None, settings, "0"):
        pass
    assert remedy in caught.value.remedy


def test_a_cluster_that_is_not_configured_is_told(tmp_path: Any) -> None:
    settings = AgentSettings(cluster=ClusterSettings(enabled=True, kubeconfig=str(tmp_path / "absent")))
    with pytest.raises(Unsupported, match="absent") as caught, open_sinks(agent(), None, settings, "0"):
        pass
    assert "[cluster]" in caught.value.remedy


def test_reports_take_their_pods_from_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Recorded(Reporter):
        def __init__(self, *args: Any, **options: Any) -> None:
            given.update(options)
            super().__init__(*args, **options)

    monkeypatch.setattr("koordlet.outputs.cluster_sink.Reporter", Recorded)
    source = SimpleNamespace(table=lambda: NO_PODS, config=lambda: None)
    settings = AgentSettings(
        cluster=ClusterSettings(enabled=True, kubeconfig=str(tmp_path / "config")),
        prediction=PredictionSettings(directory=str(tmp_path / "peaks")),
    )
    (tmp_path / "config").write_text(KUBECONFIG)
    links = links_of(settings, None, source)  # type: ignore[arg-type]
    with open_sinks(agent(), None, settings, "0", links) as sinks:
        assert set(sinks) == {"cluster"}
    assert given["pods"] is source.table


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Any) -> None:
    (tmp_path / "file").touch()
    settings = AgentSettings(profiles=ProfileSettings(enabled=True, directory=str(tmp_path / "file" / "profiles")))
    with pytest.raises(Unsupported, match="profiles") as caught, open_sinks(agent(), None, settings, "0"):
        pass
    assert "[profiles] directory" in caught.value.remedy
