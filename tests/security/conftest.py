"""What all servers are held to."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No error and no traceback in the log or on stderr, whatever clients send."""
    with caplog.at_level(logging.INFO):
        yield
    loud = [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert not loud, [record.getMessage() for record in loud]
    assert "Traceback" not in capfd.readouterr().err
