"""The wheel: of the tree as committed and the BPF objects, with the commit's time, so that two builds are the same."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.release.locked import ROOT

OBJECTS = ROOT / "probes" / "objects"


class ReleaseError(Exception):
    """A release cannot be made; the message says why and what to do."""


def commit_seconds(commit: str = "HEAD") -> int:
    """Return the time of a commit, seconds since the epoch: SOURCE_DATE_EPOCH where it is set."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given.isdigit():
        return int(given)
    return int(_git("log", "-1", "--format=%ct", commit).strip())


def uncommitted() -> list[str]:
    """Return the files that a release would leave out or take as they were."""
    return [line[3:] for line in _git("status", "--porcelain").splitlines()]


def build(output: Path, commit: str = "HEAD") -> Path:
    """Build the wheel in a copy of the tree of a commit. Raises ReleaseError without BPF objects or where pip fails."""
    if not list(OBJECTS.glob("*/*.bpf.o")):
        raise ReleaseError("probes/objects has no BPF objects; run: make bpf")
    with tempfile.TemporaryDirectory(prefix="koord-wheel-") as folder:
        source, made = Path(folder) / "source", Path(folder) / "made"
        source.mkdir()
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
        shutil.copytree(OBJECTS, source / "probes" / "objects", dirs_exist_ok=True)
        for path in source.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(commit_seconds(commit)), "PYTHONHASHSEED": "0"}
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", *options, "--wheel-dir", made, source]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReleaseError(f"pip could not build the wheel: {done.stderr.strip()[-2000:]}")
        (wheel,) = made.glob("koord-*.whl")
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, output / wheel.name))


def build_twice(output: Path) -> Path:
    """Build the wheel twice and return it. Raises ReleaseError where the two differ."""
    commit = _git("rev-parse", "HEAD").strip()
    with tempfile.TemporaryDirectory(prefix="koord-again-") as folder:
        first, second = build(output, commit), build(Path(folder), commit)
        if sha256(first) != sha256(second):
            raise ReleaseError(f"two builds of {first.name} differ; compare with: diffoscope")
    return first


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout
