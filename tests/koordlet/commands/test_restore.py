"""`koordlet restore --stay`: done with its work it holds its place, and ends in order when it is told to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import alive, wait_for


@pytest.mark.skipif(os.geteuid() != 0, reason="restoring needs root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stays_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    config, log = tmp_path / "koordlet.toml", tmp_path / "log"
    config.write_text(f'[enforcer]\nstate_dir = "{tmp_path / "state"}"\naudit_file = ""\n')
    command = [sys.executable, "-m", "koordlet", "restore", "--all", "--stay", "--config", str(config)]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        wait_for(lambda: "staying until told to end" in log.read_text(), check=alive(process, log))
        process.send_signal(number)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert "0 put back, 0 failed" in log.read_text()
