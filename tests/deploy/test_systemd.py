"""The agent's unit: what systemd thinks of it, and what it shares with settings and program."""

import configparser
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from koordlet.config import AgentSettings
from koordlet.enforcer.guardian import guardian
from tests.deploy.charts import ROOT

UNIT = ROOT / "deploy/systemd/koordlet.service"


def read() -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return unit


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_the_unit_fits_settings_and_program() -> None:
    service, settings = read()["Service"], AgentSettings()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for key in ("ExecStartPre", "ExecStart", "ExecStopPost"):
        assert Path(service[key].split()[0]).name in scripts
    assert Path(settings.enforcer.state_dir) == Path("/var/lib") / service["StateDirectory"]
    assert Path(settings.enforcer.audit_file).parent == Path("/var/log") / service["LogsDirectory"]
    assert service["Type"] == "notify"
    assert "restore" in service["ExecStopPost"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_the_stop_file_and_a_journal_below_run_outlive_the_agent() -> None:
    service = read()["Service"]
    assert Path(AgentSettings().enforcer.stop_file).parent == Path("/run") / service["RuntimeDirectory"]
    assert service["RuntimeDirectoryPreserve"] == "yes"


def test_leases_end_before_the_guardian_and_that_before_the_watchdog() -> None:
    lease = AgentSettings().enforcer.guardian_seconds
    assert lease + guardian._HEAD_START_SECONDS < seconds(read()["Service"]["WatchdogSec"])
    assert guardian._HEAD_START_SECONDS < 5.0


def test_cgroups_and_sysctls_can_be_written() -> None:
    service = read()["Service"]
    assert not {"ProtectControlGroups", "ProtectKernelTunables", "RestrictNamespaces", "PrivateUsers"} & set(service)


def test_systemd_finds_nothing_to_say(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/koordlet", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
