"""Kernels and test groups of a run, and the rows for those that are unavailable."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm import beside, debian, images, machine, run
from tests.vm.__main__ import exit_status
from tests.vm.machine import Boot
from tests.vm.matrix import KERNELS_OF_GROUP, MATRIX, Entry
from tests.vm.outcomes import Row

IMAGE_OF = images.image_of


def test_matrix_has_a_cgroup_v1_boot_and_v2_everywhere_else() -> None:
    layouts = [entry.cgroup for entry in MATRIX]
    assert layouts.count("v1") == 1
    assert {entry.suite for entry in MATRIX if entry.cgroup == "v2"} == {"bookworm", "trixie", "sid"}


def test_unknown_group_names_the_known_ones() -> None:
    with pytest.raises(LookupError, match=r"no test group nonsense; there are .*cgroups"):
        run.files_of(("nonsense",))


def test_each_group_is_one_file() -> None:
    files = [path.name for path in run.KERNEL_TESTS.rglob("test_*.py")]
    assert len(files) == len(set(files)) == len(run.files_of(()))
    assert run.files_of(("enforcer_kill", "traffic")) == [
        "tests/kernel/koordlet/test_enforcer_kill.py",
        "tests/kernel/koordlet/test_traffic.py",
    ]


def test_what_pytest_compiles_for_guests_is_kept_whatever_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(run, "KERNEL_TESTS", tmp_path)
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert True\n")
    run.compile_sources()
    assert list((tmp_path / "__pycache__").glob("test_it.*-pytest-*.pyc"))


def test_a_guest_tries_any_failed_test_again() -> None:
    assert f"--reruns={run.RERUNS}" in run.pytest_command(["tests/kernel/test_cpu.py"]).split()


def test_every_group_runs_under_cgroup_v2_somewhere_and_the_others_say_that_they_leave_it() -> None:
    layouts = {entry.name: entry.cgroup for entry in MATRIX}
    assert run.files_of(tuple(KERNELS_OF_GROUP))
    for group, kernels in KERNELS_OF_GROUP.items():
        assert kernels
        assert "v2" in {layouts[name] for name in kernels}
        for name in layouts:
            left = [row.group for row in run.rows_left(name, name, ())]
            assert (group in run.groups_of(name, ())) == (name in kernels) == (group not in left)


def test_a_row_names_the_kernels_that_run_a_left_group() -> None:
    (row,) = (row for row in run.rows_left("newest", "newest (7.0)", ()) if row.group == "traffic")
    assert (row.kernel, row.result, row.summary) == (
        "newest (7.0)",
        "left",
        "to 6.1 and 6.12 and to the running kernel",
    )


def test_what_is_asked_for_runs_everywhere_and_what_no_row_limits_too() -> None:
    for entry in MATRIX:
        assert run.groups_of(entry.name, ("traffic", "churn")) == ("traffic", "churn")
        assert run.rows_left(entry.name, entry.name, ("traffic",)) == []
        assert {"cpu", "memory", "throttle", "cgroup_facts"} <= set(run.groups_of(entry.name, ()))


def test_kernel_that_cannot_be_had_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debian, "archive_uri", lambda: "file:///nonexistent/debian")
    plan = run.Plan((Entry("next", "no-such-suite", "v2"),), (), tmp_path, tmp_path, 1.0)
    (row,) = run.run(plan, lambda _line: None)
    assert (row.kernel, row.result) == ("next", "unavailable")
    assert "nonexistent" not in row.summary


@pytest.mark.parametrize(
    ("boot", "group", "summary"),
    [
        pytest.param(Boot(None, "timeout after 9 s", 9), "boot", "timeout after 9 s", id="no status"),
        pytest.param(Boot(5, "", 9), "pytest", "no test was collected", id="nothing collected"),
        pytest.param(Boot(3, "", 9), "pytest", "pytest ended with status 3", id="internal error"),
        pytest.param(Boot(0, "", 9, ("a.bpf.o",)), "objects", "recompiled in the guest: a.bpf.o", id="recompiled"),
    ],
)
def test_what_no_test_tells_fails_the_kernel(boot: Boot, group: str, summary: str) -> None:
    (row,) = run.boot_rows("6.1", boot)
    assert (row.group, row.result, row.summary) == (group, "FAIL", summary)


def test_what_the_kernel_printed_of_its_end_is_shown() -> None:
    (row,) = run.boot_rows("6.1", Boot(None, "locked up after 9 s", 9, trace=("BUG: soft lockup", "RIP: 0010:spin")))
    assert row.notes == ("BUG: soft lockup", "RIP: 0010:spin")


def test_what_qemu_says_of_a_guest_that_never_started_is_shown(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo qemu-system-x86_64: Could not open one; printf two >&2"]
    lines: list[str] = []
    end, last = machine._run_qemu(command, 30.0, tmp_path, lines.append, threading.Event())
    assert (end, last) == ("powered off early", ("qemu-system-x86_64: Could not open one", "two"))


@pytest.mark.parametrize("status", [0, 1])
def test_outcomes_speak_for_a_finished_pytest(status: int) -> None:
    assert run.boot_rows("6.1", Boot(status, "", 9)) == []


def test_missing_headers_are_a_row_and_the_tests_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debian, "archive_uri", lambda: "file:///nonexistent/debian")
    sources, (row,) = run._sources(debian.Suite("no-such-suite", tmp_path), "6.1.0-1-amd64", "6.1")
    assert sources == []
    assert (row.group, row.result) == ("headers", "unavailable")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> run.Plan:
    """A plan for two kernels that are there, without images."""
    kernel = debian.Kernel("linux-image", "6.1", tmp_path / "vmlinuz", tmp_path)
    monkeypatch.setattr(debian.Suite, "kernel", lambda _suite: kernel)
    for maker in ("empty", "snapshot", "image_of"):
        monkeypatch.setattr(images, maker, lambda *_: tmp_path)
    entries = (Entry("first", "bookworm", "v2"), Entry("second", "trixie", "v2"))
    return run.Plan(entries, (), tmp_path / "cache", tmp_path / "output", 1.0, jobs=2)


def test_modules_compiled_meanwhile_leave_the_images_of_all_kernels_in_place(
    monkeypatch: pytest.MonkeyPatch, two: run.Plan, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    kernel = debian.Kernel("linux-image", "6.1", tmp_path / "vmlinuz", tmp_path)

    def compiled_meanwhile(suite: debian.Suite) -> debian.Kernel:
        (library / f"{suite.name}.pyc").write_text("compiled")
        return kernel

    def needs_its_images(guest: machine.Guest, *_: object) -> Boot:
        missing = [image for _, image in guest.images if not image.exists()]
        return Boot(None, f"no {missing}", 1) if missing else Boot(0, "", 1)

    monkeypatch.setattr(debian.Suite, "kernel", compiled_meanwhile)
    monkeypatch.setattr(images, "image_of", IMAGE_OF)
    monkeypatch.setattr(images, "python_directories", lambda: (library,))
    monkeypatch.setattr(machine, "run", needs_its_images)
    assert [row.summary for row in run.run(two, lambda _line: None) if row.result == "FAIL"] == []


def test_kernels_run_side_by_side_and_report_in_order(monkeypatch: pytest.MonkeyPatch, two: run.Plan) -> None:
    together = threading.Barrier(2, timeout=30)
    second_is_done = threading.Event()

    def boot(
        guest: machine.Guest, command: str, results: Path, on_line: Callable[[str], None], stop: threading.Event
    ) -> Boot:
        together.wait()
        if results.name == "first":
            assert second_is_done.wait(30)
        on_line("booted")
        second_is_done.set()
        return Boot(None, f"{results.name} failed", 1)

    monkeypatch.setattr(machine, "run", boot)
    lines: list[str] = []
    rows = [row for row in run.run(two, lines.append) if row.result != "left"]
    assert [row.summary for row in rows] == ["first failed", "second failed"]
    assert [line for line in lines if line.endswith("booted")] == ["second: booted", "first: booted"]


def test_interrupt_stops_the_others(monkeypatch: pytest.MonkeyPatch, two: run.Plan) -> None:
    def boot(
        guest: machine.Guest, command: str, results: Path, on_line: Callable[[str], None], stop: threading.Event
    ) -> Boot:
        if results.name == "first":
            raise KeyboardInterrupt
        assert stop.wait(30)
        return Boot(None, "stopped", 1)

    monkeypatch.setattr(machine, "run", boot)
    with pytest.raises(KeyboardInterrupt):
        run.run(two, lambda _line: None)


def test_the_longest_kernels_start_first(monkeypatch: pytest.MonkeyPatch, two: run.Plan) -> None:
    started: list[str] = []

    def boot(
        guest: machine.Guest, command: str, results: Path, on_line: Callable[[str], None], stop: threading.Event
    ) -> Boot:
        started.append(results.name)
        return Boot(None, results.name, 1)

    monkeypatch.setattr(machine, "run", boot)
    monkeypatch.setattr(run, "_sources", lambda *_: ([], []))
    entries = tuple(reversed(MATRIX))
    rows = run.run(dataclasses.replace(two, entries=entries, jobs=1), lambda _line: None)
    assert started == [entry.name for entry in sorted(entries, key=lambda entry: entry.minutes, reverse=True)]
    assert started[0] == "6.1", "programs are compiled in it"
    assert [row.summary for row in rows if row.result == "FAIL"] == [entry.name for entry in entries]


@pytest.mark.parametrize(("status", "result"), [(0, "pass"), (3, "FAIL")])
def test_a_command_beside_the_guests_has_a_row_and_its_lines_are_printed(
    monkeypatch: pytest.MonkeyPatch, two: run.Plan, status: int, result: str
) -> None:
    monkeypatch.setattr(machine, "run", lambda *_: Boot(None, "failed", 1))
    lines: list[str] = []
    first, *others = run.run(dataclasses.replace(two, beside=f"echo said; exit {status}"), lines.append)
    assert (first.kernel, first.group, first.result) == ("this machine", "other tests", result)
    assert "this machine: said" in lines
    assert {row.kernel for row in others} == {"first (6.1, cgroup v2)", "second (6.1, cgroup v2)"}


def test_a_command_beside_guests_that_cannot_be_had_is_no_kernel() -> None:
    rows = beside.run("exit 0", lambda _line: None, threading.Event())
    assert exit_status([*rows, Row("newest", "-", "unavailable", "")], is_forced=False) == 3
    assert exit_status([*rows, Row("newest", "cpu", "pass", "")], is_forced=False) == 0


def test_what_failed_beside_the_guests_is_in_its_row() -> None:
    said = "FAILED tests/a.py::test_b - assert 1 == 2"
    (row,) = beside.run(f"echo '{said}'; echo 1 failed; exit 1", lambda _line: None, threading.Event())
    assert (row.result, row.notes) == ("FAIL", (said,))


def test_a_command_beside_is_killed_with_its_process_group() -> None:
    stop = threading.Event()

    def on_line(line: str) -> None:
        if line.endswith("begun"):
            stop.set()

    (row,) = beside.run("sleep 1000 & echo begun; wait; sleep 1000", on_line, stop)
    assert row.result == "FAIL"
