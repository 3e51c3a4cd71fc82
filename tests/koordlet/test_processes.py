"""Processes below a cgroup, from made files."""

from pathlib import Path

from koordlet.host.processes import first_pid_below, pids_below
from tests.trees import make_tree


def test_the_first_process_is_found_without_looking_at_everybody(tmp_path: Path) -> None:
    unreadable = {"cgroup.procs": "not a number\n"}
    top = make_tree(tmp_path, {"pod": {"cgroup.procs": "12\n7\n", "container": unreadable}})
    assert first_pid_below(top / "pod") == 7


def test_of_a_cgroup_that_only_holds_others_it_is_one_of_theirs(tmp_path: Path) -> None:
    top = make_tree(tmp_path, {"pod": {"cgroup.procs": "0\n", "container": {"cgroup.procs": "12\n7\n"}}})
    assert first_pid_below(top / "pod") == 7
    assert pids_below(top / "pod") == {7, 12}


def test_where_nobody_is_there_is_none(tmp_path: Path) -> None:
    assert first_pid_below(make_tree(tmp_path, {"empty": {"cgroup.procs": ""}})) is None
    assert first_pid_below(tmp_path / "gone") is None
