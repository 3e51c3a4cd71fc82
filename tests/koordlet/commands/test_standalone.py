"""--standalone and [cluster] enabled contradict each other: that is said before anything starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from koordlet.commands.run import run


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["--standalone"], "error: {file}: [cluster] enabled is true", id="run"),
        pytest.param(["--standalone", "--check-config"], "hint: leave --standalone out", id="check"),
    ],
)
def test_a_standalone_agent_refuses_to_report(tmp_path: Path, arguments: list[str], told: str) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text("[cluster]\nenabled = true\n")
    done = CliRunner().invoke(run, [*arguments, "--config", str(file)])
    assert done.exit_code == 2
    assert told.format(file=file) in done.output


@pytest.mark.parametrize("text", ["", "[cluster]\nenabled = false\n"], ids=["unset", "off"])
def test_a_standalone_agent_that_does_not_report_is_valid(tmp_path: Path, text: str) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(text)
    done = CliRunner().invoke(run, ["--standalone", "--check-config", "--config", str(file)])
    assert done.exit_code == 0, done.output
