"""Symptoms of other distributions: judged live, recorded by name, and replayed with what the node had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SYMPTOM = '''
from detector.rules import Rule
from detector.symptom import BlameSource, Signal, Symptom


class Refault(Symptom):
    """Pages read again."""

    resource, cause = "memory", "refault"
    columns = ("memstat.refaults",)
    blame = BlameSource(suspects="memstat.refaults")
    default_rule = Rule(threshold=0.2)

    def sense(self, view):
        pages = view.total("memstat.refaults")
        return None if pages is None else Signal(pages * 1e-4)
'''
RECORD = """
import sys
import msgspec
from api.verdicts import to_json
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.detection import Detection
from koordlet.agent.recorder import Recorder
from koordlet.config import RecordingSettings
from tests.frames import make_frame

recording = msgspec.convert({"directory": sys.argv[1], "segment_seconds": 5}, RecordingSettings)
detection = Detection(Judge(JudgeSettings()), Recorder(recording, {"koord_version": "1"}))
reads = waits = pages = 0
for second in range(30):
    reads += 40_000 if 8 <= second < 22 else 50
    pages += 20_000 if 8 <= second < 22 else 50
    waits += 4 * 10**8 if second >= 12 else 0
    columns = {"memstat.refaults": [reads, pages], "cpu.wait_neighbour_ns": [waits, 0]}
    for verdict in detection.step(make_frame(second, {1: "/web", 2: "/batch"}, columns, {(1, 2): waits})):
        sys.stdout.buffer.write(to_json(verdict) + b"\\n")
detection.close()
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory in which a distribution is installed that brings the symptom `a_refault`."""
    site = tmp_path / "site"
    described = site / "refaults-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: refaults\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[koord.symptoms]\na_refault = refaults:Refault\n")
    (site / "refaults.py").write_text(SYMPTOM)
    return site


def run(*arguments: object, site: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    path = os.pathsep.join(map(str, [Path.cwd(), *([site] if site else [])]))
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False)


def test_a_symptom_of_another_distribution_is_judged_and_replayed(tmp_path: Path, installed: Path) -> None:
    told = run("-c", RECORD, tmp_path / "recorded", site=installed)
    assert told.returncode == 0, told.stderr.decode()
    assert b'"cause":"refault"' in told.stdout
    assert b'"rule":"a-refault"' in told.stdout
    again = run("-m", "detector", "replay", tmp_path / "recorded", "--json", site=installed)
    assert (again.returncode, again.stdout, again.stderr) == (0, told.stdout, b"")
    listed = run("-m", "detector", "symptoms", site=installed)
    assert b"`a_refault`" in listed.stdout


def test_a_rule_on_a_symptom_that_is_not_installed_is_refused_by_name(tmp_path: Path, installed: Path) -> None:
    run("-c", RECORD, tmp_path / "recorded", site=installed)
    refused = run("-m", "detector", "replay", tmp_path / "recorded", "--json")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"rule a-refault needs a_refault, which is not installed here" in refused.stderr


def test_other_rules_replay_without_it_and_say_so(tmp_path: Path, installed: Path) -> None:
    run("-c", RECORD, tmp_path / "recorded", site=installed)
    (tmp_path / "rules.toml").write_text('[rules.cpu]\nany_of = ["cpu_contention"]\n')
    replay = ("-m", "detector", "replay", tmp_path / "recorded", "--json", "--rules", tmp_path / "rules.toml")
    missing, whole = run(*replay), run(*replay, site=installed)
    assert (missing.returncode, missing.stdout) == (0, whole.stdout)
    assert missing.stdout.count(b'"state":"open"') == 1
    assert missing.stderr.count(b"symptoms not installed here: a_refault") == 1


def test_what_is_installed_later_does_not_change_a_replay(tmp_path: Path, installed: Path) -> None:
    told = run("-c", RECORD, tmp_path / "recorded")
    later = run("-m", "detector", "replay", tmp_path / "recorded", "--json", site=installed)
    assert told.stdout
    assert (later.returncode, later.stdout, later.stderr) == (0, told.stdout, b"")
