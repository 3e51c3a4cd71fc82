"""Alert rules: each fires on its fault and not before, and has a section among the runbooks."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "alerts"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ALERTS / "koord.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_each_alert_fires_on_its_fault() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here: install the package prometheus")
    done = subprocess.run(["promtool", "test", "rules", "tests.yaml"], cwd=ALERTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_and_a_runbook() -> None:
    names = {rule["alert"] for rule in rules()}
    tests = yaml.safe_load((ALERTS / "tests.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    headings = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE))
    assert names == fired == headings
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"
