"""Outlets stand alone: what cannot be opened says what to do, and what fails disturbs nobody else."""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from api.plugin import Unsupported
from api.verdicts import Verdict
from api.window import Window
from koordlet.config import AgentSettings
from koordlet.kube.settings import ClusterSettings
from koordlet.outputs import outputs as module
from koordlet.outputs.outputs import outlets
from koordlet.profiles.settings import ProfileSettings
from koordlet.serving.settings import ServingSettings
from tests.frames import make_frame


def agent(**given: Any) -> Any:
    probes = SimpleNamespace(opened={}, partly={})
    return SimpleNamespace(probes=probes, judging=None, lost=Counter(), also=[], unsupported={}, **given)


def test_by_default_nothing_is_opened() -> None:
    with outlets(agent(), AgentSettings(), "0") as faces:
        assert faces == ()


@pytest.mark.parametrize(
    ("settings", "missing", "remedy"),
    [
        (AgentSettings(serving=ServingSettings(enabled=True)), "koordlet.serving.server", "koord[grpc]"),
        (AgentSettings(cluster=ClusterSettings(enabled=True)), "koordlet.kube.reporter", "koord[cluster]"),
    ],
)
def test_what_is_not_installed_is_named(
    settings: AgentSettings, missing: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(Unsupported) as caught, outlets(agent(), settings, "0"):
        pass
    assert remedy in caught.value.remedy


def test_a_cluster_that_is_not_configured_is_told(tmp_path: Any) -> None:
    settings = AgentSettings(cluster=ClusterSettings(enabled=True, kubeconfig=str(tmp_path / "absent")))
    with pytest.raises(Unsupported, match="absent") as caught, outlets(agent(), settings, "0"):
        pass
    assert "[cluster]" in caught.value.remedy


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Any) -> None:
    (tmp_path / "file").touch()
    settings = AgentSettings(profiles=ProfileSettings(enabled=True, directory=str(tmp_path / "file" / "profiles")))
    with pytest.raises(Unsupported, match="profiles") as caught, outlets(agent(), settings, "0"):
        pass
    assert "[profiles] directory" in caught.value.remedy


def test_an_outlet_that_fails_is_counted_told_once_in_a_row_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    def opened(_stack: ExitStack, _agent: Any, _settings: AgentSettings) -> module.Face:
        def face(_window: Window, _verdicts: Sequence[Verdict]) -> None:
            asked.append(1)
            if len(asked) != 3:
                raise RuntimeError("odd")

        return face

    monkeypatch.setattr(module, "_profiles", opened)
    node = agent()
    window = Window([make_frame(0, {1: "/a"}, {})])
    with (
        caplog.at_level(logging.ERROR),
        outlets(node, AgentSettings(profiles=ProfileSettings(enabled=True)), "0") as (face,),
    ):
        for _ in range(5):
            face(window, [])
    assert (len(asked), node.lost["profiles.ticks"]) == (5, 4)
    assert caplog.text.count("profiles failed in this tick") == 2
