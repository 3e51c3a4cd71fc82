"""A pytest plugin for the guest: each outcome is a JSON line on the results share at once, so that it outlives a crash.

pytest -p tests.vm.result_lines --result-lines FILE
"""

from pathlib import Path

import msgspec
import pytest

from tests.vm.outcomes import Outcome


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--result-lines", type=Path, required=True, help="Append one JSON line per outcome.")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ResultLines(config.getoption("--result-lines")))


class ResultLines:
    """Writes a line when a test is decided: after its call, or when setup or teardown decides otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._set_up_seconds = 0.0
        """Of the test that is under way: where a probe is loaded for each, as long as the test itself."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self._set_up_seconds = 0.0
        if report.when == "call" or report.outcome != "passed":
            figure = next((str(value) for name, value in report.user_properties if name == "figure"), "")
            self._write(report.nodeid, report.outcome, _reason(report), self._set_up_seconds + report.duration, figure)
        if report.when == "setup":
            self._set_up_seconds = report.duration

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._write(report.nodeid, report.outcome, _reason(report), 0.0)

    def _write(self, nodeid: str, outcome: str, reason: str, seconds: float, figure: str = "") -> None:
        with self._path.open("ab") as stream:
            stream.write(msgspec.json.encode(Outcome(nodeid, outcome, reason, round(seconds, 3), figure)) + b"\n")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason of a skip, or the line on which a failure ended."""
    if report.outcome == "passed" or report.longrepr is None:
        return ""
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).removeprefix("reason: ")
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).strip().splitlines()[0]
