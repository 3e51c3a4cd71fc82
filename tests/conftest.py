"""Shared by all tests: forced kernel tests fail instead of skipping."""

import os

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Under FORCE_KERNEL_TESTS=1 a kernel test that skips for want of root fails; other skips keep their reason."""
    outcome = yield
    report = outcome.get_result()
    forced = os.environ.get("FORCE_KERNEL_TESTS") == "1"
    if forced and report.skipped and item.get_closest_marker("kernel") and "needs root" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} skipped although kernel tests are forced"
