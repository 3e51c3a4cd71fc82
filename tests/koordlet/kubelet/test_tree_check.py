"""Containers that ended by what the tree shows."""

from pathlib import Path

import pytest

from koordlet.kubelet import tree_check
from koordlet.kubelet.tree_check import TreeCheck

PATHS = ("/kubepods/pod1/a", "/kubepods/pod1/b", "/kubepods/pod2/c", "/kubepods/pod2/d")
"""The first ends with its cgroup, the second without a process, the others live on."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in PATHS:
        set_processes(tmp_path, path, "17\n")
    return tmp_path


def set_processes(tree: Path, path: str, text: str) -> None:
    directory = tree / path[1:]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.procs").write_text(text)


def remove(tree: Path, path: str) -> None:
    (tree / path[1:] / "cgroup.procs").unlink()
    (tree / path[1:]).rmdir()


def test_cgroups_that_emptied_have_ended_while_others_end(tree: Path) -> None:
    check = TreeCheck(lambda: tree)
    assert check.ended(PATHS, {}, ()) == frozenset()
    set_processes(tree, PATHS[1], "")
    assert check.ended(PATHS, {}, ()) == frozenset(), "not looked for in quiet times"
    remove(tree, PATHS[0])
    found = check.ended(PATHS, {}, ())
    assert found == set(PATHS[:2])
    assert check.ended(PATHS, {}, found) == found


def test_an_empty_cgroup_stays_ended_until_it_has_processes_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_check, "ENDING_SECONDS", 0.0)
    check = TreeCheck(lambda: tree)
    check.ended(PATHS, {}, ())
    set_processes(tree, PATHS[1], "")
    assert check.ended(PATHS, {}, PATHS[1:2]) == set(PATHS[1:2])
    set_processes(tree, PATHS[1], "18\n")
    assert check.ended(PATHS, {}, PATHS[1:2]) == frozenset()


def test_cgroups_that_never_had_a_process_or_have_cgroups_of_their_own_live_on(tree: Path) -> None:
    set_processes(tree, PATHS[2], "")
    check = TreeCheck(lambda: tree)
    check.ended(PATHS, {}, ())
    set_processes(tree, PATHS[3], "")
    (tree / PATHS[3][1:] / "init.scope").mkdir()
    remove(tree, PATHS[0])
    assert check.ended(PATHS, {}, ()) == set(PATHS[:1])


def test_a_sibling_of_a_container_that_lived_for_a_moment_tells_its_end(tree: Path) -> None:
    check = TreeCheck(lambda: tree)
    check.ended(PATHS, {}, ())
    brief = "/kubepods/pod1/e"
    assert check.ended((*PATHS, brief), {}, ()) == frozenset()
    assert check.ended((*PATHS, brief), {brief: PATHS[1]}, ()) == {brief}


def test_a_cgroup_whose_processes_cannot_be_read_lives_on(tree: Path) -> None:
    check = TreeCheck(lambda: tree)
    check.ended(PATHS, {}, ())
    processes = tree / PATHS[2][1:] / "cgroup.procs"
    processes.unlink()
    processes.symlink_to(processes)  # ELOOP
    remove(tree, PATHS[0])
    assert check.ended(PATHS, {}, ()) == set(PATHS[:1])
