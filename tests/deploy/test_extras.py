"""Every program without the packages of an extra: a sentence, the extra and the command; never a traceback."""

import subprocess
import sys
import tomllib

import pytest

from tests.deploy.charts import ROOT

SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
OPTIONAL = (
    "duckdb", "google.protobuf", "grpc", "grpc_reflection", "kubernetes", "matplotlib", "pyarrow", "pynvml", "rich",
    "sklearn", "urllib3",
)  # fmt: skip
WITHOUT_EXTRAS = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None
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


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, SCRIPTS[program], *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("program", NEEDS)
def test_a_program_names_the_extra_that_is_missing(program: str) -> None:
    arguments, extra = NEEDS[program]
    done = run(program, *arguments)
    assert done.returncode != 0
    assert f"pip install 'koord[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", ["koordlet", "koord-detector"])
def test_what_needs_no_extra_runs_without_any(program: str) -> None:
    done = run(program, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_every_program_is_tried() -> None:
    assert SCRIPTS.keys() == NEEDS.keys() | {"koord-detector"}
