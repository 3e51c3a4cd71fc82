"""docs/extending.md, followed to the letter in a copy of the tree: each example costs the files that it states."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
_BLOCK = re.compile(r"^```\w+\n(?:#|//) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.svg", "*.png", "*.egg-info", "build")


@dataclass(frozen=True, slots=True)
class Section:
    """One `##` section of the document: its text by file, in the order of the document."""

    name: str
    files: Mapping[str, str]

    @property
    def tests(self) -> list[str]:
        """Test files among them."""
        return [name for name in self.files if name.startswith("tests/")]


def sections() -> dict[str, Section]:
    """Sections with files, by heading."""
    found = {}
    for part in re.split(r"^## ", (ROOT / "docs/extending.md").read_text(), flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        files = dict(_BLOCK.findall(body))
        if files:
            found[name] = Section(name, files)
    return found


SECTIONS = sections()
OUTSIDE = "A package of your own"
FILES = {"A collector": 2, "A symptom": 2, "A strategy": 2, "A scheduler plugin": 2, "A controller": 2, "A probe": 4}
"""Files that an addition costs."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tree with every example of the document in it; nothing else is changed."""
    tree = tmp_path_factory.mktemp("extended") / "koord"
    shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
    for kind in FILES:
        for name, text in SECTIONS[kind].files.items():
            assert not (tree / name).exists(), f"{name} is there already"
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
    yield tree
    shutil.rmtree(tree)


def run(tree: Path, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the copy, whose packages come first."""
    return subprocess.run(
        command, cwd=tree, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.parametrize("kind", FILES)
def test_an_addition_costs_the_stated_files(kind: str) -> None:
    assert len(SECTIONS[kind].files) == FILES[kind]


@pytest.mark.parametrize("kind", FILES)
def test_an_example_passes_its_own_tests(copy: Path, kind: str) -> None:
    names = [name for name in SECTIONS[kind].tests if not name.startswith("tests/kernel/")]
    if kind == "A probe":
        built = run(copy, sys.executable, "-m", "probes.build")
        assert built.returncode == 0, built.stdout + built.stderr
    done = run(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.kernel
@pytest.mark.beside(together=True)
def test_the_example_probe_counts_on_the_running_kernel(copy: Path) -> None:
    built = run(copy, sys.executable, "-m", "probes.build")
    assert built.returncode == 0, built.stdout + built.stderr
    names = [name for name in SECTIONS["A probe"].tests if name.startswith("tests/kernel/")]
    done = run(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param("tests/koordlet/collectors", id="collectors"),
        pytest.param("tests/detector/symptoms", id="symptoms"),
        pytest.param("tests/koordlet/strategies", id="strategies"),
        pytest.param("tests/koordlet/metrics/test_page.py", id="metrics-page"),
    ],
)
def test_the_tests_of_the_others_pass_beside_the_examples(copy: Path, tests: str) -> None:
    renewed = run(copy, sys.executable, "-m", "docs.render")
    assert renewed.returncode == 0, renewed.stderr
    done = run(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not kernel", tests)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "."], id="ruff-check"),
        pytest.param(["ruff", "format", "--check", "."], id="ruff-format"),
        pytest.param(["mypy"], id="mypy-strict"),
        pytest.param(["lint-imports", "--no-cache"], id="import-contracts"),
    ],
)
def test_the_examples_are_clean(copy: Path, command: list[str]) -> None:
    done = run(copy, BIN / command[0], *command[1:])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_of_ones_own_is_found_when_its_wheel_is_installed(tmp_path: Path) -> None:
    section = SECTIONS[OUTSIDE]
    for name, text in section.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source, wheels, site = tmp_path / "acme-koord", tmp_path / "wheels", tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    built = run(tmp_path, *pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source)
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob("*.whl")
    put = run(tmp_path, *pip, "install", "--no-deps", "--no-index", "--target", site, wheel)
    assert put.returncode == 0, put.stderr
    ask = (
        "from koordlet.strategies.strategy import discover_strategies as strategies\n"
        "from detector.registry import discover_symptoms as symptoms\n"
        "from scheduler.profile import available as plugins\n"
        "print(*(name for found in (strategies, symptoms, plugins) for name in found() if name.startswith('acme')))"
    )
    found = run(tmp_path, sys.executable, "-c", ask, PYTHONPATH=f"{site}{os.pathsep}{ROOT}")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["acme_strategy", "acme_symptom", "acme_plugin"]
    without = run(tmp_path, sys.executable, "-c", ask, PYTHONPATH=str(ROOT))
    assert without.stdout.split() == []
