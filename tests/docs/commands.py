"""Commands in the documents, and what is known of each program: ours, of the tree, or of others with the reason."""

import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import import_module

import click

from tests.docs.pages import Block

OURS: Mapping[str, str] = {
    "koordlet": "koordlet.__main__",
    "koord-detector": "detector.__main__",
    "koord-manager": "controllers.__main__",
    "koord-descheduler": "controllers.descheduler.__main__",
    "koord-yarn-copilot": "controllers.yarn.__main__",
    "koord-scheduler": "scheduler.__main__",
    "koord-runtime-proxy": "koordlet.runtime_proxy.__main__",
    "kubectl-koord": "kubectl_koord.__main__",
}
"""Program to the module with its `main`."""

OTHERS: Mapping[str, str] = {
    "apt": "installs packages",
    "apt-get": "installs packages",
    "buildah": "builds an image",
    "cat": "makes a file for the next command",
    "chrt": "needs a runtime to measure",
    "cp": "of the reader's machine",
    "curl": "needs a running agent or server",
    "docker": "needs a container engine",
    "duckdb": "needs DuckDB's own program, and exported tables",
    "git": "changes the reader's clone",
    "grpcurl": "needs a running agent",
    "ctr": "needs a node's runtime",
    "helm": "needs a cluster",
    "install": "changes the reader's machine",
    "kubectl": "needs a cluster",
    "make": "the target is looked up",
    "mkdir": "of the reader's machine",
    "mmdebstrap": "downloads packages",
    "openssl": "makes certificates for a cluster",
    "pip": "asks a registry",
    "pipx": "asks a registry",
    "podman": "needs a container engine",
    "python": "the module is looked up",
    "sed": "changes settings of the reader's machine",
    "spark-submit": "needs Spark",
    "skopeo": "needs a registry",
    "ssh": "needs another host",
    "sudo": "the command after it is looked at",
    "systemctl": "needs systemd",
    "touch": "stops a running agent",
    "vagrant": "needs a hypervisor",
}
"""Why a command of a program that is not ours is looked at and not run."""

_ASSIGNMENT = re.compile(r"^\w+=\S*$")


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block without language as words: comments, pipes and redirections taken off."""
    text = re.sub(r"<<'?(\w+)'?.*?\n\1$", "", block.text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"'[^'\n]*\n[^']*'", "''", text)  # a text of several lines is no command
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = re.split(r"\s{3,}", re.sub(r"(^|\s)#.*$", "", line).strip())[0]  # what follows wide space explains
        for part in re.split(r"&&|\|\||;|(?<!\\)\|(?!\|)", line):
            part = re.sub(r"\s[0-9]?[<>]+&?\s*\S+", " ", f" {part}").strip()
            if not part:
                continue
            try:
                words = shlex.split(part)
            except ValueError:  # a pipe inside quotes
                words = part.split()
            while words and (_ASSIGNMENT.match(words[0]) or words[0] == "sudo"):
                words = words[1:]
            if words:
                yield words


def program_of(words: list[str]) -> tuple[str, list[str]]:
    """The program of a command and its arguments, as our entry points name it."""
    name = words[0].removeprefix(".venv/bin/")
    if name == "kubectl" and words[1:2] == ["koord"]:
        return "kubectl-koord", words[2:]
    return name, words[1:]


def unknown(program: str, arguments: list[str]) -> str:
    """What a command of ours says that the program does not know; empty where it knows all."""
    command: click.Command = import_module(OURS[program]).main
    context = click.Context(command, info_name=program)
    known = {name for each in command.get_params(context) for name in each.opts + each.secondary_opts}
    takes_value = _value_options(command, context)
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        option = word.partition("=")[0]
        if word.startswith("-") and len(word) > 1:
            if option not in known and option not in ("--help", "-h", "--version"):
                return f"{command.name} has no option {option}"
            position += option in takes_value and "=" not in word
        elif isinstance(command, click.Group) and not word.startswith("["):
            found = command.get_command(context, word)
            if found is None:
                return f"{command.name} has no command {word}"
            command, context = found, click.Context(found, parent=context, info_name=word)
            known |= {name for each in command.get_params(context) for name in each.opts + each.secondary_opts}
            takes_value |= _value_options(command, context)
    return ""


def _value_options(command: click.Command, context: click.Context) -> set[str]:
    return {
        name
        for each in command.get_params(context)
        if isinstance(each, click.Option) and not each.is_flag and not each.count
        for name in each.opts
    }
