"""Scratch cgroups for demos, benches and tests: made, filled with programs, emptied and removed."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.files import HostTree

_V1 = ("cpu", "cpuacct", "memory", "blkio", "freezer")
_V2 = ("cpu", "memory", "io")
_JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 125; shift; done; shift; exec "$@"'
_EMPTY_SECONDS = 10.0


class ScratchCgroup:
    """A cgroup below the roots of all hierarchies that matter, under the same path in each."""

    def __init__(self, path: str, host: HostTree | None = None) -> None:
        """Make it, with its parents; raises OSError where that is refused."""
        v1, unified = find_mounts(host or HostTree(Path("/")))
        self.path = path
        self.directories = tuple(dict.fromkeys(mount / path.lstrip("/") for mount in _mounts(v1, unified)))
        self._made_above = [
            above for directory in self.directories for above in directory.parents if not above.exists()
        ]
        self._delegated: list[tuple[Path, str]] = []
        if "cpu" not in v1 and unified is not None:
            self._delegated = _delegate_controllers(unified, path)
        for directory in self.directories:
            directory.mkdir(parents=True, exist_ok=True)

    @property
    def identity(self) -> int:
        """Kernfs id in the cpu hierarchy, which is the first."""
        return self.directories[0].stat().st_ino

    def spawn(
        self, argv: Sequence[str], *, stdout: int | IO[bytes] | None = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start a program inside, in a session of its own; exit status 125 means that joining was refused."""
        gates = [str(directory / "cgroup.procs") for directory in self.directories]
        return subprocess.Popen(
            ["/bin/sh", "-c", _JOIN, "join", *gates, "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            start_new_session=True,
        )

    def write(self, name: str, text: str) -> None:
        """Set one of its files, in whichever hierarchy has it; raises FileNotFoundError where none has."""
        for directory in self.directories:
            if (directory / name).exists():
                (directory / name).write_text(text)
                return
        raise FileNotFoundError(f"{self.path} has no {name}")

    def read(self, name: str) -> str:
        """Return one of its files, from whichever hierarchy has it; empty where none has."""
        for directory in self.directories:
            with contextlib.suppress(FileNotFoundError):
                return (directory / name).read_text()
        return ""

    def write_shares(self, shares: int) -> None:
        """Set its weight in the unit of cpu.shares; converted as the kubelet does where cpu.weight carries it."""
        if any((directory / "cpu.shares").exists() for directory in self.directories):
            self.write("cpu.shares", str(shares))
        else:
            self.write("cpu.weight", str(1 + (shares - 2) * 9999 // 262_142))

    def kill(self) -> None:
        """Kill whatever runs inside and wait until it is empty; raises TimeoutError naming the processes that stay."""
        deadline = time.monotonic() + _EMPTY_SECONDS
        while pids := self._pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path}: still busy, processes {sorted(pids)}")
            time.sleep(0.01)

    def remove(self) -> None:
        """Kill what is inside and remove the directories, those above too that were made for it; safe to call twice."""
        self.kill()
        for directory in self.directories:
            with contextlib.suppress(FileNotFoundError):
                directory.rmdir()
        for above in self._made_above:
            with contextlib.suppress(OSError):  # another cgroup is in it by now
                above.rmdir()
        for directory, enabled in reversed(self._delegated):
            with contextlib.suppress(OSError):  # another program enables it further down by now
                (directory / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in enabled.split()))
        self._delegated = []

    def _pids(self) -> set[int]:
        found: set[int] = set()
        for directory in self.directories:
            with contextlib.suppress(FileNotFoundError):
                found.update(int(word) for word in (directory / "cgroup.procs").read_text().split())
        return found


def _mounts(v1: dict[str, Path], unified: Path | None) -> list[Path]:
    if "cpu" not in v1:
        return [unified] if unified is not None else []
    return [v1[name] for name in _V1 if name in v1] + ([unified] if unified is not None else [])


def _delegate_controllers(unified: Path, path: str) -> list[tuple[Path, str]]:
    """Enable the controllers in every level above the cgroup; return the levels and what was not enabled there."""
    directory, enabled = unified, []
    for part in path.strip("/").split("/"):
        directory.mkdir(exist_ok=True)
        offered = (directory / "cgroup.controllers").read_text().split()
        present = (directory / "cgroup.subtree_control").read_text().split()
        wanted = [name for name in _V2 if name in offered and name not in present]
        if wanted:
            (directory / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
            enabled.append((directory, " ".join(wanted)))
        directory = directory / part
    return enabled
