"""A whole run of the agent: files that others cannot write, and no secret in anything that came out of it."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.agent_run import ENVIRONMENT, MARK, TOKEN, Said, run_agent

MODES = {
    r"run": "755",
    r"run/hooks\.d": "755",
    r"run/hooks\.d/koordlet\.json": "644",
    r"state": "755",
    r"state/baselines\.json": "600",
    r"state/journal": "755",
    r"state/journal/(journal|lock)": "600",
    r"state/journal/node-?slo[^/]*": "600",
    r"state/log": "755",
    r"state/log/audit\.jsonl": "640",
    r"state/prediction": "700",
    r"state/prediction/[^/]+": "600",
    r"state/profiles": "700",
    r"state/profiles/verdicts": "700",
    r"state/profiles/(verdicts/)?[^/]+\.parquet": "600",
    r"state/recordings": "700",
    r"state/recordings/[^/]+": "600",
}
"""Every path that the agent writes below its state and run directories, and its mode; a new one belongs here."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Said]:
    yield run_agent(tmp_path_factory.mktemp("agent"))


def written(said: Said) -> dict[str, os.stat_result]:
    return {
        str(path.relative_to(said.folder)): path.lstat()
        for top in ("state", "run")
        for path in (said.folder / top, *(said.folder / top).rglob("*"))
    }


def expected(path: str) -> str:
    return next((mode for pattern, mode in MODES.items() if re.fullmatch(pattern, path)), "not in the table")


def test_every_file_has_the_mode_of_the_table_whatever_the_umask(said: Said) -> None:
    found = {path: f"{stat.S_IMODE(status.st_mode):o}" for path, status in written(said).items()}
    assert found == {path: expected(path) for path in found}
    assert not [path for path, status in written(said).items() if status.st_mode & 0o022]
    assert {status.st_uid for status in written(said).values()} == {os.geteuid()}
    assert {"state/journal/journal", "state/baselines.json", "state/profiles"} <= found.keys()


def test_sockets_are_their_owners_and_go_with_the_agent(said: Said) -> None:
    assert "koordlet.sock" in said.sockets
    assert {f"{stat.S_IMODE(mode):o}" for mode in said.sockets.values()} == {"600"}
    assert not list((said.folder / "run").glob("*.sock"))


def test_no_secret_is_told(said: Said) -> None:
    assert MARK in (said.folder / "kubeconfig").read_text()
    assert {"log", "/metrics", "/", "socket", "events", "nodemetrics"} <= said.texts.keys()
    assert any(name.startswith("state/recordings/") for name in said.texts)
    for secret in (TOKEN, ENVIRONMENT, MARK):
        assert not [name for name, text in said.texts.items() if secret in text]


def test_the_log_has_no_traceback(said: Said) -> None:
    assert "Traceback" not in said.texts["log"]


def test_what_the_agent_reads_it_may_not_write_elsewhere(said: Said) -> None:
    """The run made nothing outside of its directories and the host's tree."""
    assert sorted(path.name for path in Path(said.folder).iterdir()) == [
        "host", "koordlet.toml", "kubeconfig", "log", "run", "state",
    ]  # fmt: skip
