"""The wheelhouse: the project's wheel and one for each locked package, from which pip and pipx install offline."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deploy.release.locked import PROJECT, Pin, locked
from deploy.release.wheel import ReleaseError, sha256

EXTRAS = ("analysis", "cluster", "grpc", "gpu")
"""All that are not for development."""
INSTALLED = ("node", "analysis", "all")
"""Extras that `check` resolves."""
_ALONE = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | {
    "PIP_CONFIG_FILE": os.devnull
}
"""Without further places to find packages at."""


def fill(folder: Path, extras: Iterable[str], wheel: Path) -> None:
    """Have exactly the locked wheels and the project's own there; download what is missing. Raises ReleaseError."""
    folder.mkdir(parents=True, exist_ok=True)
    pins = locked(extras)
    if not is_complete(folder, pins):
        for path in folder.iterdir():
            path.unlink()
        _download(folder, pins)
    for path in folder.glob(f"{PROJECT}-*.whl"):
        path.unlink()
    shutil.copy2(wheel, folder / wheel.name)


def is_complete(folder: Path, pins: Iterable[Pin]) -> bool:
    """Return whether the folder has a file of every pin, by its hash, and no other but the project's."""
    waiting = {each: pin.name for pin in pins for each in pin.hashes}
    wanted, found = set(waiting.values()), set()
    for path in folder.iterdir():
        if path.name.startswith(f"{PROJECT}-"):
            continue
        name = waiting.get(f"sha256:{sha256(path)}")
        if name is None:
            return False
        found.add(name)
    return found == wanted


def check(folder: Path, version: str) -> None:
    """Install a node's programs from the folder alone, run one, and resolve the other extras. Raises ReleaseError."""
    with tempfile.TemporaryDirectory(prefix="koord-offline-") as made:
        environment = Path(made) / "environment"
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", environment], check=True)
        python = environment / "bin" / "python"
        for extra in INSTALLED:
            trial = [] if extra == "node" else ["--dry-run"]
            wanted = f"{PROJECT}[{extra}]=={version}"
            _pip(
                ["--python", str(python), "install", *trial, "--no-index", "--find-links", str(folder), wanted], _ALONE
            )
        done = subprocess.run(
            [environment / "bin" / "koordlet", "--version"], capture_output=True, text=True, check=False
        )
        if version not in done.stdout:
            raise ReleaseError(f"koordlet from the wheelhouse does not start: {done.stderr.strip()[-2000:]}")


def _download(folder: Path, pins: Iterable[Pin]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write("".join(pin.line for pin in pins))
        requirements.flush()
        options = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--dest", str(folder)]
        _pip(["download", *options, "-r", requirements.name], os.environ)


def _pip(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run this interpreter's pip. Raises ReleaseError."""
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise ReleaseError(f"pip {' '.join(arguments[:4])}: {done.stderr.strip()[-2000:]}")
