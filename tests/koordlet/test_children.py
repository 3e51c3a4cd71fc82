"""Children that the agent starts take no module from the directory that it was started in."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTED = [path for path in (ROOT / "koordlet").rglob("*.py") if "sys.executable" in path.read_text()]


@pytest.mark.parametrize("path", STARTED, ids=lambda path: path.name)
def test_a_child_does_not_look_into_the_working_directory(path: Path) -> None:
    found = 0
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
            found += 1
            assert ast.unparse(node.elts[1]) in ("'-P'", "'-I'"), f"{path}:{node.lineno}"
    assert found


def test_there_are_children() -> None:
    assert len(STARTED) >= 2
