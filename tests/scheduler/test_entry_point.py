"""A plugin of another distribution: found by its entry point, set by that name in the settings file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MODULE = '''
"""AvoidRack: keeps pods off the racks that the settings list."""

import msgspec
import numpy as np

from scheduler.framework import Plugin, Reason


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of AvoidRack."""

    racks: list[str] = []


class AvoidRack(Plugin[tuple[()]]):
    """Rejects nodes by their label `rack`."""

    name = "{name}"
    enabled = {enabled}

    def reasons(self, spec):
        """One reason."""
        return (Reason("node(s) in an avoided rack", resolvable=False),)

    def filter(self, attempt, spec, rows):
        """Reject the rows of avoided racks."""
        snapshot = attempt.snapshot
        racks = [snapshot.labels.of(row).get("rack") for row in np.arange(snapshot.rows_used)[rows]]
        return np.array([rack in self.config.racks for rack in racks], dtype=np.int64)
'''

PROGRAM = """
import sys
from pathlib import Path

from cluster.command_line import Chosen
from scheduler.__main__ import _engine
from scheduler.framework import Action
from scheduler.profile import SchedulerSettings
from tests.schedobjects import node, pod, rejected

made = _engine(Chosen("test", Path(sys.argv[1])).settings(SchedulerSettings), sys.argv[1])
for rack in ("r1", "r2"):
    made.on_node(Action.ADD, node(rack, labels={"rack": rack}), 0.0)
print(rejected(made, pod("p")))
"""


def installed(folder: Path, *, name: str = "AvoidRack", enabled: bool = True, target: str = "AvoidRack") -> Path:
    """A folder for sys.path that holds a distribution with one plugin, `avoidrack`."""
    metadata = folder / "rackplugins-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rackplugins\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[koord.scheduler_plugins]\navoidrack = rack_plugins:{target}\n")
    (folder / "rack_plugins.py").write_text(MODULE.format(name=name, enabled=enabled))
    return folder


def run(folder: Path, settings: str) -> subprocess.CompletedProcess[str]:
    path = folder / "s.toml"
    path.write_text(settings)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", PROGRAM, str(path)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("enabled", "settings", "rejected"),
    [
        pytest.param(True, "[plugins.avoidrack]\nracks = ['r2']\n", True, id="config-of-its-module"),
        pytest.param(False, "[plugins.avoidrack]\nenabled = true\nracks = ['r2']\n", True, id="enabled-by-settings"),
        pytest.param(False, "[plugins.avoidrack]\nracks = ['r2']\n", False, id="off-by-its-default"),
    ],
)
def test_an_entry_point_is_a_plugin_like_any_other(
    tmp_path: Path, enabled: bool, settings: str, rejected: bool
) -> None:
    done = run(installed(tmp_path, enabled=enabled), settings)
    assert done.returncode == 0, done.stderr
    assert ("'r2': ['node(s) in an avoided rack']" in done.stdout) is rejected, done.stdout
    assert "'r1': []" in done.stdout


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        pytest.param({}, "[plugins.avoidrack]\nrack = 'r2'\n", "[plugins.avoidrack]: rack", id="unknown-key"),
        pytest.param({"name": "NodeName"}, "", "'NodeName' is that of plugin nodename", id="name-of-another"),
        pytest.param({"target": "Config"}, "", "avoidrack", id="not-a-plugin"),
    ],
)
def test_faults_of_an_entry_point_are_named(
    tmp_path: Path, changes: dict[str, str], settings: str, message: str
) -> None:
    done = run(installed(tmp_path, **changes), settings)  # type: ignore[arg-type]
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
