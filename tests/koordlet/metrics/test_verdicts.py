"""Series of verdicts: counted when they open, gone when they close, bounded, clean by promtool."""

import re
import shutil
import subprocess
from dataclasses import replace

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.verdicts import Culprit, How, Severity, Verdict, VerdictState
from koordlet.agent.detection import DetectionState
from koordlet.metrics.verdicts import FAMILIES, VerdictMetrics
from tests.verdicts import make_verdict

OPEN = make_verdict(
    "/kube/web",
    time=100.0,
    severity=Severity.HIGH,
    culprits=(Culprit("/batch", 0.75, How.DIRECT), Culprit("/cron", 0.1, How.DIRECT)),
    confidence=0.85,
)
STATE = DetectionState(run_seconds=2.5, ready_cells=7, warming_cells=3, refused_samples=1, saves=4, files_refused=1)


def part_of(verdict: Verdict) -> float | None:
    """Half of a loss on the CPU."""
    return verdict.lost_seconds_per_second / 2 if verdict.resource == "cpu" else None


def exposition(max_victims: int = 10) -> VerdictMetrics:
    return VerdictMetrics(max_victims, {"/kube/web": "web"}.get, part_of)  # type: ignore[arg-type]


def text(found: VerdictMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(found)
    return generate_latest(registry).decode()


def samples(output: str, series: str) -> dict[str, float]:
    found = re.findall(rf"^{series}(\{{.*\}})? (\S+)$", output, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_a_verdict_is_counted_once_and_stands_until_it_closes() -> None:
    found = exposition()
    update = msgspec.structs.replace(OPEN, state=VerdictState.UPDATE, lost_seconds_per_second=0.8)
    found.update([OPEN], [OPEN], STATE)
    found.update([update], [update], STATE)
    kind = '{cause="contention",resource="cpu",severity="high"}'
    victim = '{cause="contention",culprit_cgroup="/batch",name="web",resource="cpu",victim_cgroup="/kube/web"}'
    assert samples(text(found), "koord_verdicts_total") == {kind: 1.0}
    assert samples(text(found), "koord_verdicts_open") == {kind: 1.0}
    assert samples(text(found), "koord_verdict_lost_seconds_per_second") == {victim: 0.8}
    assert samples(text(found), "koord_verdict_confidence_ratio") == {victim: 0.85}
    found.update([msgspec.structs.replace(update, state=VerdictState.CLOSE)], [], STATE)
    assert samples(text(found), "koord_verdicts_total") == {kind: 1.0}
    assert samples(text(found), "koord_verdicts_open") == {}
    assert samples(text(found), "koord_verdict_lost_seconds_per_second") == {}


def test_a_storm_of_victims_is_bounded_and_sums() -> None:
    found = VerdictMetrics(3, str)
    storm = [
        msgspec.structs.replace(OPEN, victim=f"/{number}", lost_seconds_per_second=number / 10)
        for number in range(1, 11)
    ]
    found.update(storm, storm, STATE)
    lost = samples(text(found), "koord_verdict_lost_seconds_per_second")
    assert len(lost) == 4
    assert sum(lost.values()) == pytest.approx(5.5)
    assert any('victim_cgroup="/10"' in labels for labels in lost)
    assert samples(text(found), "koord_verdicts_open").popitem()[1] == 10.0


def test_two_rules_on_one_loss_make_one_series() -> None:
    found = exposition()
    both = [OPEN, msgspec.structs.replace(OPEN, rule="mine")]
    found.update(both, both, STATE)
    assert len(samples(text(found), "koord_verdict_lost_seconds_per_second")) == 1


def test_the_entitled_part_is_shown_where_a_share_is_known() -> None:
    found = exposition()
    both = [OPEN, msgspec.structs.replace(OPEN, resource="network", cause="delay")]
    found.update(both, both, STATE)
    (part,) = samples(text(found), "koord_verdict_entitled_seconds_per_second").values()
    assert part == OPEN.lost_seconds_per_second / 2


def test_a_scrape_computes_no_shares() -> None:
    """It runs beside the tick, whose state they come from."""
    asked: list[Verdict] = []
    found = VerdictMetrics(1, {"/kube/web": "web"}.get, lambda verdict: asked.append(verdict) or 0.1)  # type: ignore[arg-type, func-returns-value]
    found.update([OPEN], [OPEN], STATE)
    assert asked == [OPEN]
    for _ in range(3):
        assert list(samples(text(found), "koord_verdict_entitled_seconds_per_second").values()) == [0.1]
    assert asked == [OPEN]


def test_judge_and_baselines_tell_how_they_stand() -> None:
    found = exposition()
    found.update([], [], STATE)
    found.update([], [], replace(STATE, run_seconds=2.75))
    output = text(found)
    assert samples(output, "koord_judge_run_seconds_total") == {"": 2.75}
    assert samples(output, "koord_judge_last_run_seconds") == {"": 0.25}
    assert samples(output, "koord_baseline_cells") == {'{state="ready"}': 7.0, '{state="warming_up"}': 3.0}
    assert samples(output, "koord_baseline_refused_samples_total") == {"": 1.0}
    assert samples(output, "koord_baseline_saves_total") == {"": 4.0}
    assert samples(output, "koord_baseline_files_refused_total") == {"": 1.0}


def test_every_family_is_there_under_its_name() -> None:
    found = exposition()
    found.update([OPEN], [OPEN], STATE)
    for name, (kind, _labels, _text) in FAMILIES.items():
        assert samples(text(found), f"{name}_total" if kind == "counter" else name), name


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian's prometheus) is not installed")
def test_promtool_finds_nothing_to_complain_about() -> None:
    found = exposition()
    found.update([OPEN], [OPEN], STATE)
    done = subprocess.run(["promtool", "check", "metrics"], input=text(found), capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
