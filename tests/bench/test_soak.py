"""What counts as flat, and which lines of a log are errors."""

import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from bench.soak import Program, a_pending_pod, all_but, summary


@pytest.fixture
def program(tmp_path: Path):  # type: ignore[no-untyped-def]
    log = tmp_path / "log"
    log.write_text("2027-01-15 08:00:00,000 I controllers leading\nkoordlet: WARNING one column is absent\n")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield Program("one", process, log)
    process.kill()
    process.wait()


def fill(program: Program, megabytes: list[float], descriptors: list[float]) -> None:
    for place, (mb, count) in enumerate(zip(megabytes, descriptors, strict=True)):
        row = {"seconds": place * 10.0, "mb": mb, "descriptors": count, "threads": 9.0, "cpu_seconds": place * 1.0}
        program.rows.append(row)


def test_a_start_that_grows_is_no_fault(program: Program) -> None:
    fill(program, [50, 90, 100, 100, 101, 101, 102, 102], [20, 20, 21, 21, 22, 22, 23, 23])
    assert program.faults() == []
    assert "100.0" in summary([program], 1.0)


@pytest.mark.parametrize(
    ("megabytes", "descriptors", "said"),
    [
        ([100, 100, 100, 100, 104, 104, 108, 108], [20] * 8, "memory went from 100.0 to 108.0 MB"),
        ([100] * 8, [20, 20, 21, 21, 25, 25, 29, 29], "descriptors went from 21 to 29"),
    ],
    ids=["memory", "descriptors"],
)
def test_what_grows_all_the_time_is_one(
    program: Program, megabytes: list[float], descriptors: list[float], said: str
) -> None:
    fill(program, megabytes, descriptors)
    assert any(said in fault for fault in program.faults())


def test_a_program_that_ended_is_told_with_its_last_line(program: Program) -> None:
    fill(program, [100.0] * 8, [20.0] * 8)
    program.log.write_text("cannot listen on port 9316\n")
    program.process.kill()
    program.process.wait()
    assert program.faults() == ["one ended with -9: cannot listen on port 9316"]


@pytest.mark.parametrize(
    "line",
    ["Traceback (most recent call last):", "2027-01-15 08:00:00,000 E controllers plan of x", "koordlet ERROR lost"],
    ids=["traceback", "letter", "word"],
)
def test_errors_in_the_log_are_found(program: Program, line: str) -> None:
    fill(program, [100.0] * 8, [20.0] * 8)
    program.log.write_text(f"{program.log.read_text()}{line}\n")
    assert program.faults() == [f"one: {line}"]


def test_a_program_that_ended_is_a_fault(program: Program) -> None:
    fill(program, [100.0] * 8, [20.0] * 8)
    program.process.kill()
    program.process.wait()
    assert any("ended with" in fault for fault in program.faults())


def test_pods_name_the_scheduler() -> None:
    assert a_pending_pod(3)["spec"]["schedulerName"] == "koord-scheduler"


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        ("/", True),
        ("/soak-1", True),
        ("/soak-1/kubepods/burstable", True),
        ("/soak", False),
        ("/soak-2", False),
        ("/kubepods/burstable", False),
    ],
)
def test_the_cgroups_of_other_programs_are_ignored(path: str, is_ours: bool) -> None:
    assert any(fnmatchcase(path, pattern) for pattern in all_but("/soak-1")) != is_ours
