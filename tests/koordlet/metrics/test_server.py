"""The Prometheus endpoint: served while it is open, fed by its sink, and refused with a remedy on a taken port."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.plugin import Unsupported
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.agent import Agent
from koordlet.agent.detection import Detection
from koordlet.agent.loop import AgentLoop
from koordlet.config import AgentSettings, EnforcerSettings, MetricsSettings, ProbeSettings
from koordlet.control.control_loop import ControlLoop, open_control_loop
from koordlet.metrics.server import open_metrics
from tests.koordlet.enforcer.hosts import FakeHost


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    return AgentSettings(
        root=str(FakeHost(tmp_path).root),
        probes=ProbeSettings(backend="none"),
        metrics=MetricsSettings(port=0),
        enforcer=EnforcerSettings(state_dir=str(tmp_path / "state"), audit_file=""),
    )


@pytest.fixture
def agent(settings: AgentSettings) -> Iterator[Agent]:
    made = Agent(settings)
    yield made
    made.close()


@pytest.fixture
def control(settings: AgentSettings, tmp_path: Path) -> Iterator[ControlLoop]:
    made = open_control_loop(settings, FakeHost(tmp_path).tree)
    yield made
    made.close()


def port_of(text: str, scheme: str = "http") -> int:
    found = re.search(rf"metrics on {scheme}://127.0.0.1:(\d+)/metrics", text)
    assert found
    return int(found[1])


def scrape(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        return str(response.read().decode())


@pytest.mark.parametrize("detection", [None, Detection(Judge(JudgeSettings()))], ids=["no-judge", "judge"])
def test_the_endpoint_serves_what_ticks_brought(
    detection: Detection | None,
    agent: Agent,
    control: ControlLoop,
    settings: AgentSettings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"), open_metrics(agent, detection, control, settings, "1.2.3") as sink:
        loop = AgentLoop(agent, detection=detection, control=control.step, sinks={"metrics": sink})
        port = port_of(caplog.text)
        assert scrape(port, "/healthz") == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            scrape(port, "/readyz")
        for _ in range(2):
            loop.tick()
        assert scrape(port, "/readyz") == "ok\n"
        text = scrape(port)
    assert not agent.lost
    assert 'koord_build_info{kernel="' in text
    assert 'koord_capability{name="cpustat"} 1.0' in text
    assert "koord_actions_total" in text
    assert ("koord_judge_run_seconds_total" in text) == (detection is not None)
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_a_taken_port_is_refused_with_a_remedy(
    agent: Agent, control: ControlLoop, settings: AgentSettings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), open_metrics(agent, None, control, settings, "1.2.3"):
        taken = AgentSettings(metrics=MetricsSettings(port=port_of(caplog.text)))
        with pytest.raises(Unsupported, match="cannot be served") as caught:
            open_metrics(agent, None, control, taken, "1.2.3").__enter__()
    assert "[metrics] port" in caught.value.remedy
