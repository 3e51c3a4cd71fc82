"""Installation on a host without Kubernetes: the files, the settings that ship, and what uninstalling leaves."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from koordlet.config import load_settings
from tests.deploy.charts import ROOT

SCRIPT = ROOT / "deploy" / "install.sh"


def programs() -> dict[str, str]:
    scripts: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return scripts


def install(root: Path, *words: str) -> str:
    """Run the script below `root`, with stand-ins for the programs of a virtual environment."""
    bin_folder = root / "venv" / "bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    for name, target in programs().items():
        module = target.partition(":")[0]
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (bin_folder / name).chmod(0o755)
    environment = os.environ | {"DESTDIR": str(root), "VENV": str(root / "venv")}
    done = subprocess.run([str(SCRIPT), *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_program_unit_and_setting_is_installed(tmp_path: Path) -> None:
    install(tmp_path)
    linked = {path.name for path in (tmp_path / "usr/local/bin").iterdir()}
    assert linked == set(programs())
    units = {path.name for path in (tmp_path / "etc/systemd/system").iterdir()}
    assert units == {path.name for path in (ROOT / "deploy/systemd").glob("*.service")}
    assert load_settings(tmp_path / "etc/koord/koordlet.toml").serving.enabled
    koordlet = [str(tmp_path / "usr/local/bin/koordlet"), "run", "--standalone", "--check-config"]
    config = str(tmp_path / "etc/koord/koordlet.toml")
    done = subprocess.run([*koordlet, "--config", config], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_settings_of_the_user_survive_an_upgrade_and_an_uninstallation(tmp_path: Path) -> None:
    install(tmp_path)
    settings, flags = tmp_path / "etc/koord/koordlet.toml", tmp_path / "etc/default/koordlet"
    settings.write_text("interval_seconds = 2\n")
    flags.write_text('KOORDLET_FLAGS="--standalone --enforce"\n')
    install(tmp_path)
    install(tmp_path, "--uninstall")
    assert settings.read_text() == "interval_seconds = 2\n"
    assert "--enforce" in flags.read_text()
    assert not list((tmp_path / "usr/local/bin").iterdir())
    assert not list((tmp_path / "etc/systemd/system").iterdir())


def test_an_unknown_word_changes_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"DESTDIR": str(tmp_path)}
    done = subprocess.run([str(SCRIPT), "--purge"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "usage:" in done.stderr, list(tmp_path.iterdir())) == (2, True, [])
