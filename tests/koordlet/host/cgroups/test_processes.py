"""Processes below a cgroup, from made files."""

import os
import subprocess
from pathlib import Path

import pytest

from koordlet.host.cgroups.processes import first_pid_below, on_cpus_of, pids_below
from tests.trees import make_tree


def test_the_first_process_is_found_without_reading_every_cgroup(tmp_path: Path) -> None:
    unreadable = {"cgroup.procs": "not a number\n"}
    top = make_tree(tmp_path, {"pod": {"cgroup.procs": "12\n7\n", "container": unreadable}})
    assert first_pid_below(top / "pod") == 7


def test_of_a_cgroup_that_only_holds_others_it_is_one_of_theirs(tmp_path: Path) -> None:
    top = make_tree(tmp_path, {"pod": {"cgroup.procs": "0\n", "container": {"cgroup.procs": "12\n7\n"}}})
    assert first_pid_below(top / "pod") == 7
    assert pids_below(top / "pod") == {7, 12}


def test_a_cgroup_without_processes_has_no_first_one(tmp_path: Path) -> None:
    assert first_pid_below(make_tree(tmp_path, {"empty": {"cgroup.procs": ""}})) is None
    assert first_pid_below(tmp_path / "gone") is None


def test_work_on_a_cgroup_is_done_where_it_runs_and_then_anywhere_again(tmp_path: Path) -> None:
    own = os.sched_getaffinity(0)
    if len(own) < 2:
        pytest.skip("there is one CPU")
    theirs = {max(own)}
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            os.sched_setaffinity(sleeper.pid, theirs)
            top = make_tree(tmp_path, {"pod": {"cgroup.procs": f"{sleeper.pid}\n"}, "empty": {"cgroup.procs": ""}})
            with on_cpus_of(top / "empty"):
                assert os.sched_getaffinity(0) == own
            with on_cpus_of(top / "pod"):
                assert os.sched_getaffinity(0) == theirs
            with pytest.raises(ValueError, match="on the way"), on_cpus_of(top / "pod"):
                raise ValueError("on the way")
            assert os.sched_getaffinity(0) == own
        finally:
            sleeper.kill()
