"""The architecture as tests: import rules, linters, types, plugin conventions, documents that name files."""

import ast
import contextlib
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import koordlet.collectors
import probes
from api.intents import Knob
from api.metrics import METRICS
from api.plugin import discover
from koordlet.collectors import Collector
from probes.probe import Probe

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PACKAGES = ("api", "probes", "koordlet", "detector", "cluster", "controllers", "scheduler")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "."], id="ruff-check"),
        pytest.param(["ruff", "format", "--check", "."], id="ruff-format"),
        pytest.param(["mypy"], id="mypy-strict"),
        pytest.param(["lint-imports"], id="import-contracts"),
        pytest.param(["codespell"], id="codespell"),
    ],
)
def test_linters(command: list[str]) -> None:
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_source_has_its_probe_and_every_probe_its_kernel_test() -> None:
    found = discover(probes, Probe)  # type: ignore[type-abstract]
    sources = {path.name.removesuffix(".bpf.c") for path in (ROOT / "probes/bpf").glob("*.bpf.c")}
    assert sources <= set(found), "a .bpf.c without its module"
    for name, kind in found.items():
        assert kind.name == name
        assert kind.__doc__
        tests = [ROOT / f"tests/kernel/test_{name}.py", ROOT / f"tests/probes/test_{name}.py"]
        assert any(path.exists() for path in tests), f"probe {name} has no test"


def test_every_collector_has_a_docstring() -> None:
    for name, kind in discover(koordlet.collectors, Collector).items():  # type: ignore[type-abstract]
        assert kind.__doc__, name


def test_columns_are_unique() -> None:
    columns = [metric.column for metric in METRICS]
    assert len(columns) == len(set(columns))


@pytest.mark.parametrize(
    ("value", "readable"),
    [
        pytest.param("cpu", True, id="name"),
        pytest.param(Knob.CPU_MAX, True, id="enum"),
        pytest.param(0.5, True, id="number"),
        pytest.param(Knob, True, id="class"),
        pytest.param({"cpu": 1}, False, id="dict"),
        pytest.param((1, 2), False, id="tuple"),
        pytest.param("a = 1\nb = 2", False, id="lines"),
        pytest.param("x" * 61, False, id="long-line"),
    ],
)
def test_a_parameter_without_a_readable_id_is_refused(
    request: pytest.FixtureRequest, value: object, readable: bool
) -> None:
    make_id = request.config.hook.pytest_make_parametrize_id
    with contextlib.nullcontext() if readable else pytest.raises(TypeError, match="no readable id"):
        make_id(config=request.config, val=value, argname="value")


def imports_of(module: str, path: Path, known: set[str]) -> set[str]:
    """Modules of this project that a file imports, anywhere in it and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {name if (name := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
    return (found & known) - {module}


def test_no_modules_import_each_other() -> None:
    files = {
        path.relative_to(ROOT).with_suffix(""): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    paths = {".".join(name.parts).removesuffix(".__init__"): path for name, path in files.items()}
    order = graphlib.TopologicalSorter({name: imports_of(name, path, set(paths)) for name, path in paths.items()})
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"modules import each other: {' <- '.join(error.args[1])}")


def test_names_say_something() -> None:
    nameless = re.compile(r"^(utils?|helpers?|common|base|managers?|impl|misc)\.py$")
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if nameless.match(path.name)]
    assert not found


def test_every_package_says_its_idea() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("__init__.py"):
            assert path.read_text().startswith('"""'), f"{path} has no docstring"


def test_files_named_in_the_documents_exist() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for name in re.findall(
            r"`((?:api|probes|koordlet|detector|cluster|controllers|scheduler|deploy|bench|tests|docs)/[\w./-]+\.\w+)`",
            document.read_text(),
        ):
            assert (ROOT / name).exists(), f"{document.name} names {name}"


def test_the_lock_holds_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "--hash=sha256:" in lock
    assert not re.search(r"https?://|--index-url|--find-links", lock)


PLUGIN_ROOMS = {"probes", "detector/symptoms", "koordlet/strategies/plugins", "scheduler/plugins"}
"""Rooms with modules of one kind; `probes` holds what loads and reads them beside."""


def test_no_room_is_larger_than_twenty_modules() -> None:
    for package in PACKAGES:
        for room in {path.parent for path in (ROOT / package).rglob("*.py")}:
            name = str(room.relative_to(ROOT))
            modules = [path.name for path in room.glob("*.py") if path.name != "__init__.py"]
            assert name in PLUGIN_ROOMS or len(modules) <= 20, f"{name} has {len(modules)} modules: make a room of some"


def test_probes_have_at_most_twenty_modules_beside_them() -> None:
    modules = {path.stem for path in (ROOT / "probes").glob("*.py")} - {"__init__"}
    assert len(modules - set(discover(probes, Probe))) <= 20  # type: ignore[type-abstract]
