"""Blocks of the documents: data parses, commands exist with their options, and what can run here runs."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.commands import OTHERS, OURS, commands, program_of, unknown
from tests.docs.pages import ROOT, Block, blocks

BLOCKS = list(blocks())
SHELL = [block for block in BLOCKS if block.language in ("", "sh", "bash", "console")]
RUNS = {
    "koordlet doctor": 0,
    "koordlet actions --log 20": 0,
    "koordlet run --check-config --config /etc/koord/koordlet.toml": 0,
    "koord-scheduler --help": 0,
    "koord-runtime-proxy --help": 0,
}
"""Commands that need neither a cluster nor a running agent nor minutes; all others are looked up, word by word."""


def is_commands(block: Block) -> bool:
    """Whether a block without language is commands, and no drawing: its first word is a program."""
    first = None if "──>" in block.text else next(commands(block), None)
    return first is not None and (program_of(first)[0] in OURS or program_of(first)[0] in OTHERS)


COMMANDS = [block for block in SHELL if is_commands(block)]


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in ("toml", "yaml", "json")], ids=lambda b: b.place)
def test_data_parses(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "yaml":
        assert list(yaml.safe_load_all(block.text))
    else:
        json.loads(re.sub(r"\s//.*$", "", block.text, flags=re.MULTILINE).replace("...", ""))


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "python"], ids=lambda b: b.place)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.place, "exec")


@pytest.mark.parametrize("block", COMMANDS, ids=lambda b: b.place)
def test_commands_are_known_with_all_their_options(block: Block) -> None:
    for words in commands(block):
        program, arguments = program_of(words)
        if program in OURS:
            problem = unknown(program, arguments)
            assert not problem, f"{block.place}: {' '.join(words)}: {problem}"
        elif program.startswith("deploy/"):
            assert (ROOT / program).exists(), block.place
        elif program == "make":
            targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            named = [word for word in arguments if not re.search(r"[=/-]", word[:1] + word[-1:]) and "=" not in word]
            assert set(named) <= targets | {"/srv/koord"}, f"{block.place}: {' '.join(words)}"
        elif program.rpartition("/")[2] in ("python", "python3"):
            assert is_there(arguments), f"{block.place}: {' '.join(words)}"


def is_there(arguments: list[str]) -> bool:
    """Whether the module or file that Python is to run exists; `-c` and other programs' modules are not ours."""
    if arguments[:1] == ["-m"]:
        path = ROOT / arguments[1].replace(".", "/")
        ours = (ROOT / arguments[1].partition(".")[0]).is_dir()
        return not ours or path.with_suffix(".py").exists() or (path / "__main__.py").exists()
    return arguments[0].startswith("-") or (ROOT / arguments[0]).exists()


def test_every_program_is_ours_or_has_its_reason() -> None:
    known = OURS.keys() | OTHERS.keys()
    for block in COMMANDS:
        for words in commands(block):
            program = program_of(words)[0].rpartition("/")[2]
            assert program in known or program.endswith(".sh") or program in FILTERS, f"{block.place}: {program}"


FILTERS = frozenset({"jq", "grep", "head", "less", "tee", "test", "cd", "export", "python3", "for", "do", "done"})
"""Programs after a pipe, and words of the shell."""


@pytest.mark.parametrize("command", list(RUNS), ids=lambda command: command.replace(" ", "-")[:50])
def test_commands_that_can_run_here_run(command: str, tmp_path: Path) -> None:
    written = {
        " ".join([program_of(words)[0], *program_of(words)[1]]) for block in COMMANDS for words in commands(block)
    }
    assert command in written or command.endswith("--help"), f"no page has {command} any more"
    settings = tmp_path / "koordlet.toml"
    settings.write_text(
        (ROOT / "deploy/systemd/koordlet.toml").read_text()
        + f'[enforcer]\nstate_dir = "{tmp_path}/state"\naudit_file = "{tmp_path}/audit.jsonl"\n'
    )
    words = command.replace("/etc/koord/koordlet.toml", str(settings)).split()
    if words[1:2] == ["actions"]:
        words += ["--config", str(settings)]
    done = subprocess.run(
        [sys.executable, "-m", OURS[words[0]], *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == RUNS[command], done.stdout + done.stderr
    assert done.stdout.strip()
