"""Every program without the packages of an extra: a sentence, the extra and the command; never a traceback."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.charts import ROOT

SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
OPTIONAL = (
    "duckdb", "google.protobuf", "grpc", "grpc_reflection", "kubernetes", "matplotlib", "pyarrow", "pynvml",
    "sklearn", "urllib3",
)  # fmt: skip
WITHOUT = f"""
import sys
for name in {OPTIONAL!r}:
    if name not in sys.argv[1].split(","):
        sys.modules[name] = None
del sys.argv[1]
from importlib import import_module
module, _, function = sys.argv.pop(1).partition(":")
getattr(import_module(module), function)()
"""
NEEDS = {
    "koord-runtime-proxy": ([], "grpc"),
    "koord-scheduler": (["--help"], "cluster"),
    "koord-manager": (["plan"], "cluster"),
    "koord-descheduler": (["plan"], "cluster"),
    "koord-yarn-copilot": (["plan"], "cluster"),
    "kubectl-koord": (["nodes"], "cluster"),
    "koordlet": (["verdicts"], "grpc"),
}

PARTS = {
    "export": ("koordlet", ["export", "--to", "FOLDER"], "analysis"),
    "demo": ("koordlet", ["demo", "--picture", "FOLDER/picture.png"], "analysis"),
    "simulate": ("koord-scheduler", ["simulate", "day", "--out", "FOLDER"], "analysis"),
    "analyze": ("koord-manager", ["analyze", "--from", "FOLDER", "utilisation"], "analysis"),
    "compact": ("koord-manager", ["compact", "--from", "FOLDER", "--to", "FOLDER/to"], "analysis"),
    "train-models": ("koord-manager", ["train-models", "--from", "FOLDER"], "analysis"),
    "train": ("koord-detector", ["train", "FOLDER/profile.parquet", "--output", "FOLDER/model"], "analysis"),
}
"""Commands that need one more extra than their program, whose own is installed."""


def run(program: str, *arguments: str, there: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, there, SCRIPTS[program], *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("program", NEEDS)
def test_a_program_names_the_extra_that_is_missing(program: str) -> None:
    arguments, extra = NEEDS[program]
    done = run(program, *arguments)
    assert done.returncode != 0
    assert f"pip install 'koord[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", PARTS)
def test_a_command_names_the_extra_that_is_missing(name: str, tmp_path: Path) -> None:
    program, arguments, extra = PARTS[name]
    if name == "demo" and os.geteuid() != 0:
        pytest.skip("the demo needs root before anything else")
    (tmp_path / "profile.parquet").touch()
    given = [each.replace("FOLDER", str(tmp_path)) for each in arguments]
    done = run(program, *given, there="kubernetes,urllib3" if program.startswith("koord-") else "")
    assert done.returncode not in (0, 2)
    assert f"pip install 'koord[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", ["koordlet", "koord-detector"])
def test_what_needs_no_extra_runs_without_any(program: str) -> None:
    done = run(program, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_every_program_is_tried() -> None:
    assert SCRIPTS.keys() == NEEDS.keys() | {"koord-detector"}
