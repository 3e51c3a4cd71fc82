"""The table lists failures, and skips with their reasons."""

from pathlib import Path

import msgspec

from tests.vm.__main__ import exit_status
from tests.vm.outcomes import Outcome, Row, failed_last, read_lines, rows_of, table


def outcome(test: str, result: str, reason: str = "") -> Outcome:
    return Outcome(f"tests/kernel/{test}", result, reason, 1.5)


def test_group_passes_with_what_it_does_not_support_named() -> None:
    (row,) = rows_of(
        "6.1",
        [
            outcome("test_pmu.py::test_cycles", "skipped", "no PMU"),
            outcome("test_pmu.py::test_misses", "skipped", "no PMU"),
            outcome("test_pmu.py::test_software", "passed"),
        ],
    )
    assert (row.group, row.result, row.summary) == ("pmu", "pass", "1 passed, 2 unsupported in 4 s")
    assert row.notes == ("unsupported (no PMU): test_cycles, test_misses",)


def test_what_a_passed_test_measured_is_named() -> None:
    measured = msgspec.structs.replace(outcome("test_cpu.py::test_cost", "passed"), figure="3 MiB")
    (row,) = rows_of("6.1", [measured])
    assert row.notes == ("measured test_cost: 3 MiB",)
    (row,) = rows_of("6.1", [msgspec.structs.replace(measured, outcome="failed")])
    assert row.notes == ("FAIL test_cost: ",)


def test_group_of_skips_only_is_unsupported() -> None:
    (row,) = rows_of("6.1", [outcome("test_pmu.py::test_cycles", "skipped", "no PMU")])
    assert row.result == "unsupported"


def test_failure_in_teardown_after_a_passed_call_fails_the_test() -> None:
    passed, failed = outcome("test_cpu.py::test_wait", "passed"), outcome("test_cpu.py::test_wait", "failed", "busy")
    (row,) = rows_of("6.1", [passed, failed])
    assert (row.result, row.summary) == ("FAIL", "1 failed in 3 s")
    assert row.notes == ("FAIL test_wait: busy",)


def test_uncollectable_file_fails_its_group() -> None:
    (row,) = rows_of("6.1", [outcome("test_cpu.py", "failed", "ImportError")])
    assert (row.group, row.result) == ("cpu", "FAIL")


def test_line_cut_short_by_a_crash_is_left_out(tmp_path: Path) -> None:
    whole = outcome("test_cpu.py::test_wait", "passed")
    (tmp_path / "lines").write_bytes(msgspec.json.encode(whole) + b'\n{"nodeid": "tests/ker')
    assert read_lines(tmp_path / "lines") == [whole]
    assert read_lines(tmp_path / "absent") == []


def test_table_aligns_columns_and_indents_notes() -> None:
    rows = [Row("6.1", "cpu", "pass", "2 passed"), Row("newest", "-", "unavailable", "(no network)", ("note",))]
    assert table(rows).splitlines() == [
        "kernel  test group  result",
        "6.1     cpu         pass         2 passed",
        "newest  -           unavailable  (no network)",
        "    note",
    ]


def test_what_failed_is_said_again_after_the_table() -> None:
    passed = Row("6.1", "cpu", "pass", "2 passed")
    assert failed_last([passed]) == table([passed])
    failed = Row("newest", "net", "FAIL", "1 failed", ("FAIL test_drop: busy",))
    assert failed_last([failed, passed]).splitlines()[-3:] == [
        "kernel  test group  result",
        "newest  net         FAIL    1 failed",
        "    FAIL test_drop: busy",
    ]


def test_exit_status() -> None:
    passed, failed = Row("6.1", "cpu", "pass", ""), Row("6.1", "io", "FAIL", "")
    unavailable = Row("newest", "-", "unavailable", "(no network)")
    assert exit_status([passed], is_forced=True) == 0
    assert exit_status([passed, failed], is_forced=False) == 1
    assert exit_status([passed, unavailable], is_forced=False) == 0
    assert exit_status([passed, unavailable], is_forced=True) == 1
    assert exit_status([unavailable], is_forced=False) == 3


def test_a_test_that_passed_on_a_further_attempt_passes_and_says_so() -> None:
    first, then = outcome("test_cpu.py::test_wait", "rerun", "noise"), outcome("test_cpu.py::test_wait", "passed")
    (row,) = rows_of("6.1", [first, then])
    assert (row.result, row.summary) == ("pass", "1 passed, 1 tried again in 3 s")
    assert row.notes == ("tried again (emulated) test_wait: noise",)
