"""Tests that the machine's other work can fail: marked by name, tried again, and listed with reason and attempts.

    @noisy("the clock of a shared CPU: a neighbour's burst is longer than the measurement")
    def test_rate() -> None: ...

Every test of the running kernel is noisy: its figures come from a machine that others use meanwhile. A race of the test
or of the product is repaired instead: wait for a condition, count instead of timing, measure for longer. This file is a
pytest plugin too; it refuses pytest-rerunfailures' own mark, which asks for no reason.
"""

from collections import Counter

import pytest

RERUNS = 2
RERUNS_DELAY_SECONDS = 1
KERNEL_REASON = "figures of a kernel that others use meanwhile"

_reasons_key = pytest.StashKey[dict[str, str]]()


def noisy(reason: str) -> pytest.MarkDecorator:
    """Mark a test that the machine's noise can fail; `reason` names the noise. Raises ValueError without one."""
    if not reason.strip():
        raise ValueError("a noisy test needs a reason")
    return pytest.mark.noisy(reason=reason)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "noisy(reason): use tests.noisy.noisy(reason); tried again, and listed")
    config.stash[_reasons_key] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give noisy tests and those of the running kernel further attempts, which `-p no:rerunfailures` takes away."""
    reruns_known = config.pluginmanager.hasplugin("rerunfailures")
    for item in items:
        if item.get_closest_marker("flaky"):
            raise pytest.UsageError(f"{item.nodeid}: marked flaky; use tests.noisy.noisy(reason)")
        marker = item.get_closest_marker("noisy")
        if marker is None and item.get_closest_marker("kernel") is None:
            continue
        config.stash[_reasons_key][item.nodeid] = marker.kwargs["reason"] if marker else KERNEL_REASON
        if reruns_known:
            item.add_marker(pytest.mark.flaky(reruns=RERUNS, reruns_delay=RERUNS_DELAY_SECONDS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List each test that took more than one attempt, and why it may."""
    attempts = Counter(report.nodeid for report in terminalreporter.stats.get("rerun", ()))
    if not attempts:
        return
    terminalreporter.section("tried again")
    for nodeid, reruns in attempts.items():
        reason = config.stash[_reasons_key].get(nodeid, "--reruns")
        terminalreporter.line(f"{nodeid}: {reruns + 1} attempts: {reason}")
