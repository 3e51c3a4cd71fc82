"""The judge in the agent: settings to rules, verdicts out, failures that end nothing."""

import logging
import re
import time
from pathlib import Path

import pytest

from api.frame import Frame
from api.settings import SettingsError
from api.verdicts import Verdict, VerdictState
from detector.baselines.values import ToldTime
from detector.breaks import Between, no_breaks
from detector.judging.judge import Judge, JudgeSettings
from detector.models.format import SCHEMA, ModelFile, encode_models
from detector.registry import default_rules, discover_symptoms
from koordlet.agent.baseline_store import BaselineStore, read_baselines
from koordlet.agent.detection import Detection, judge_settings, rules
from koordlet.config import DetectionSettings, load_settings
from tests.frames import make_frame
from tests.waiting import wait_for

CGROUPS = {1: "/web", 2: "/batch"}


def frame(second: int, lost_ns_per_second: int) -> Frame:
    lost = second * lost_ns_per_second
    return make_frame(second, CGROUPS, {"cpu.wait_neighbour_ns": [lost, 0]}, {(1, 2): lost})


def test_frames_become_verdicts() -> None:
    detection = Detection(Judge(JudgeSettings()))
    verdicts = [verdict for second in range(4) for verdict in detection.step(frame(second, 300_000_000))]
    (opened,) = verdicts
    assert (opened.state, opened.victim, opened.culprits[0].path) == (VerdictState.OPEN, "/web", "/batch")
    assert detection.open_verdicts == (opened,)
    assert detection.run_seconds > 0


class Torn(Judge):
    def step(self, frame: Frame, between: Between = no_breaks) -> list[Verdict]:
        raise ValueError(f"cannot judge {frame.monotonic_ns}")


def test_a_failure_is_logged_once_in_a_row_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    detection = Detection(Torn(JudgeSettings()))
    with caplog.at_level(logging.ERROR):
        assert [detection.step(frame(second, 0)) for second in (0, 1)] == [(), ()]
    assert detection.failures == 2
    assert len(caplog.records) == 1


class Tiring(Judge):
    def step(self, frame: Frame, between: Between = no_breaks) -> list[Verdict]:
        if frame.monotonic_ns >= 2e9:
            raise ValueError("enough")
        return super().step(frame, between)


def test_requests_of_a_tick_that_failed_are_not_told_again() -> None:
    detection = Detection(Tiring(JudgeSettings()))
    for second in range(2):
        answered = {"turnaround.requests": [10 * second, 0], "turnaround.sum_ns": [second * 50_000_000, 0]}
        detection.step(make_frame(float(second), CGROUPS, answered))
    seen = detection.turnarounds
    assert seen is not None
    assert (seen.requests.tolist(), seen.took_seconds.tolist()) == ([10.0, 0.0], [0.05, 0.0])
    detection.step(make_frame(2.0, CGROUPS, answered))
    assert detection.turnarounds is None


class Told(Judge):
    def told_times(self) -> tuple[ToldTime, ...]:
        return (ToldTime("/web", "turnaround", float(len(self.suspects)), 0.0),)


def test_the_time_of_verdicts_is_saved_with_the_baselines(tmp_path: Path) -> None:
    path, judge = tmp_path / "baselines.json", Told(JudgeSettings())
    store = BaselineStore(path, save_seconds=0.0)
    detection = Detection(judge, store=store)

    def saved() -> tuple[ToldTime, ...]:
        found = read_baselines(path, time.time(), judge.settings.baselines).baselines
        assert found is not None
        return found.told

    detection.step(frame(0, 0))
    wait_for(lambda: store.saves == 1)
    assert [each.seconds for each in saved()] == [2.0]
    path.unlink()
    detection.close()
    assert saved() == judge.told_times()


def test_a_table_changes_the_keys_it_names_and_adds_rules() -> None:
    settings = DetectionSettings(
        rules={"cpu-contention": {"threshold": 0.2}, "mine": {"any_of": ["own_quota"]}}, disabled_rules=("smt",)
    )
    found = {rule.name: rule for rule in rules(settings, "x.toml")}
    assert set(found) == {rule.name for rule in default_rules()} - {"smt"} | {"mine"}
    assert found["cpu-contention"].threshold == 0.2
    assert found["cpu-contention"].any_of == ("cpu_contention",)


def test_a_rules_file_stands_in_place_of_the_built_in_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[rules.only]\nany_of = ["own_quota"]\n')
    assert [rule.name for rule in rules(DetectionSettings(rules_file=str(path)), "x.toml")] == ["only"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            DetectionSettings(rules={"mine": {"any_of": ["own_qouta"]}}),
            ["koordlet.toml", "rule mine", "any_of"],
            id="unknown-symptom",
        ),
        pytest.param(
            DetectionSettings(rules={"smt": {"limit": 1.0}}), ["koordlet.toml", "rule smt", "limit"], id="unknown-key"
        ),
        pytest.param(
            DetectionSettings(disabled_rules=("nosuch",)),
            ["koordlet.toml", "disabled_rules", "nosuch"],
            id="unknown-rule-disabled",
        ),
        pytest.param(
            DetectionSettings(rules_file="/nowhere/rules.toml"),
            ["/nowhere/rules.toml", "cannot be read"],
            id="rules-file-absent",
        ),
    ],
)
def test_errors_name_file_rule_and_key(settings: DetectionSettings, words: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        rules(settings, "koordlet.toml")
    for word in words:
        assert word in str(caught.value)


def test_the_node_type_is_the_cpu_model_unless_it_is_set() -> None:
    assert judge_settings(DetectionSettings(), cpu_model="AMD EPYC", source="x").node_type == "AMD EPYC"
    assert judge_settings(DetectionSettings(node_type="m5"), cpu_model="AMD EPYC", source="x").node_type == "m5"


def test_cpi2_and_models_are_used_when_they_are_asked_for(tmp_path: Path) -> None:
    plain = judge_settings(DetectionSettings(), cpu_model="x", source="x")
    assert (plain.cpi2, plain.models) == (None, None)
    path = tmp_path / "models.json"
    path.write_bytes(encode_models(ModelFile(SCHEMA, ("cpi",), 0.0, ())))
    asked = DetectionSettings(cpi2=True, models_file=str(path))
    found = judge_settings(asked, cpu_model="x", source="x")
    assert found.cpi2 is not None
    assert found.models is not None
    path.write_text("{}")
    with pytest.raises(SettingsError, match=r"models\.json.*train anew"):
        judge_settings(asked, cpu_model="x", source="x")


def test_the_documented_settings_are_good_ones(tmp_path: Path) -> None:
    path = tmp_path / "koordlet.toml"
    path.write_text(re.findall(r"```toml\n(.*?)```", Path("docs/verdicts.md").read_text(), re.DOTALL)[0])
    found = {rule.name: rule for rule in rules(load_settings(path).detection, str(path))}
    assert found["slow-checkout"].any_of == ("turnaround",)
    assert found["cpu-contention"].threshold == 0.1
    assert "network-retransmit" not in found


def test_judging_breaks_before_each_symptom() -> None:
    breaks: list[int] = []
    judge = Judge(JudgeSettings())
    for second in range(2):
        frame = make_frame(float(second), CGROUPS, {"turnaround.requests": [0, 0]})
        Detection(judge).step(frame, lambda: breaks.append(1))
    assert len(breaks) > len(discover_symptoms())
