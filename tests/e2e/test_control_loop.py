"""The whole loop on the running kernel: a service beside best-effort work, each with its QoS class."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from koordlet.demo.run import NAMES, DemoPlan, run
from koordlet.demo.stage import ROOT, Stage, staged
from tests.noisy import noisy
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

SERVICE_SECONDS = 0.010
RATE = 30.0 * (os.cpu_count() or 1)
PATIENCE_SECONDS = 90.0


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(SERVICE_SECONDS) as made:
        made.start_service()
        made.start_client(RATE, 300.0, 1)
        yield made


def is_idle(stage: Stage) -> bool:
    return (stage.batch.directories[0] / "cpu.idle").read_text().strip() == "1"


def audit(stage: Stage) -> list[dict[str, object]]:
    return [json.loads(line) for line in stage.audit.read_text().splitlines()] if stage.audit.exists() else []


def checked(stage: Stage) -> Callable[[], str]:
    """Return a check that the programs on stage run; the error of a wait shows the audit."""

    def check() -> str:
        stage.check()
        return str(audit(stage))

    return check


@noisy("which cgroup the kernel preempts, and so the first victim, depends on other work on two CPUs")
def test_a_culprit_is_held_back_until_it_ends(stage: Stage) -> None:
    stage.start_agent(acts=True)
    stage.start_batch()
    wait_for(lambda: is_idle(stage), PATIENCE_SECONDS, check=checked(stage))
    wait_for(lambda: bool(audit(stage)), PATIENCE_SECONDS, check=checked(stage))
    first = audit(stage)[0]
    assert (first["schema"], first["strategy"], first["target"]) == ("koord.audit/v1", "response", f"{ROOT}/batch")
    assert (first["from"], first["to"], first["dry_run"]) == ("0", "1", False)
    assert re.match(r"online loses \d+\.\d+ s/s of cpu to batch", str(first["reason"]))
    stage.batch.kill()
    wait_for(lambda: not is_idle(stage), PATIENCE_SECONDS, check=checked(stage))


def test_a_stopped_agent_restores_everything(stage: Stage) -> None:
    stage.start_agent(acts=True)
    stage.start_batch()
    wait_for(lambda: is_idle(stage), PATIENCE_SECONDS, check=checked(stage))
    stage.stop_programs()
    assert not is_idle(stage)


def test_without_enforcing_nothing_is_written_and_the_audit_says_what_would_be(stage: Stage) -> None:
    stage.start_agent(acts=False)
    stage.start_batch()
    wait_for(lambda: bool(audit(stage)), PATIENCE_SECONDS, check=checked(stage))
    assert not is_idle(stage)
    assert all(line["dry_run"] for line in audit(stage))
    assert (audit(stage)[0]["target"], audit(stage)[0]["to"]) == (f"{ROOT}/batch", "1")


@pytest.mark.beside
def test_the_demo_shows_three_phases_and_leaves_nothing(tmp_path: Path) -> None:
    from rich.console import Console

    picture = tmp_path / "demo.png"
    with (tmp_path / "screen.txt").open("w") as screen:
        phases = run(DemoPlan(phase_seconds=5.0), picture, Console(file=screen, width=140), Event())
    assert tuple(phase.name for phase in phases) == NAMES
    assert all(len(phase.latency) > 100 for phase in phases)
    assert phases[0].blocks == 0
    assert phases[1].blocks > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "p99/alone" in (tmp_path / "screen.txt").read_text()
    assert not any(directory.exists() for directory in Path("/sys/fs/cgroup").glob(f"*{ROOT}"))
