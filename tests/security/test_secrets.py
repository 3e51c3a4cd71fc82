"""Credentials that do not serve: what a program says of them has no part of them."""

import base64
import io
import logging
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from controllers.__main__ import main as manager
from controllers.descheduler.__main__ import main as descheduler
from controllers.yarn.__main__ import main as copilot
from kubectl_koord.__main__ import main as kubectl_koord
from scheduler.__main__ import main as scheduler
from tests.security.agent_run import MARK, TOKEN

COMMANDS: dict[str, tuple[click.Command, tuple[str, ...]]] = {
    "koord-manager": (manager, ("--kubeconfig", "{}", "plan")),
    "koord-descheduler": (descheduler, ("--kubeconfig", "{}", "plan")),
    "koord-scheduler": (scheduler, ("--kubeconfig", "{}", "why", "a/b")),
    "koord-yarn-copilot": (copilot, ("--kubeconfig", "{}", "plan")),
    "kubectl-koord": (kubectl_koord, ("--kubeconfig", "{}", "top")),
}
KEY = base64.b64encode(f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----\n".encode()).decode()
MARKS = (MARK, base64.b64encode(MARK.encode()).decode().rstrip("="), KEY[40:60])


def document(server: str, **user: object) -> str:
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
        }
    )


DAMAGES: dict[str, str] = {
    "no server": document("https://127.0.0.1:1", token=TOKEN),
    "a key that is none": document(
        "https://127.0.0.1:1", **{"client-key-data": KEY, "client-certificate-data": KEY, "token": TOKEN}
    ),
    "a key that is no base64": document("https://127.0.0.1:1", **{"client-key-data": f"%{MARK}%"}),
    "torn": document("https://127.0.0.1:1", token=TOKEN)[:-3] + f"\n    {TOKEN}: [\n",
    "a token in a list": document("https://127.0.0.1:1", token=[TOKEN]),
    "a token with a line break": document("https://127.0.0.1:1", token=f"{TOKEN}\r\nX: y"),
    "a password": document("https://127.0.0.1:1", username="u", password=TOKEN),
    "a server with a password": document(f"https://u:{TOKEN}@127.0.0.1:1"),
    "no YAML": f"{{{TOKEN}",
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_what_is_said_of_credentials_has_none_of_them(
    name: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(DAMAGES[damage])
    monkeypatch.setenv("KOORD_SECRET", TOKEN)
    command, arguments = COMMANDS[name]
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    logging.getLogger().addHandler(handler)
    try:
        done = CliRunner().invoke(command, [argument.replace("{}", str(path)) for argument in arguments])
    finally:
        logging.getLogger().removeHandler(handler)
    text = done.output + told.getvalue()
    assert done.exit_code != 0
    assert text.strip(), "it says what is wrong"
    assert "Traceback" not in text
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    for mark in MARKS:
        assert mark not in text
