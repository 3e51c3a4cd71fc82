"""Loader of programs that BCC compiles in a child process: their descriptors, maps and attachments."""

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from api.plugin import Unsupported
from probes.bcc.compiler import PACKAGES
from probes.bpf_map import Map
from probes.build import PLAIN_C
from probes.libbpf import BpfError, ProgramStats, open_raw_tracepoint, program_stats, version

SOURCES = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 300.0
"""Limit of one compilation; it takes 2 s on a server and a minute on an emulated CPU."""
MAX_DESCRIPTORS = 64
_REMEDY = "check that the headers are those of the running kernel"


@dataclass(frozen=True, slots=True)
class Source:
    """A program to compile: `<stem>.c` here, its functions with the raw tracepoint of each, its maps, its constants."""

    stem: str
    programs: Mapping[str, str]
    maps: tuple[str, ...]
    constants: Mapping[str, int]


def headers() -> Path | None:
    """Return the directory of the running kernel's headers, or None."""
    place = Path("/lib/modules", platform.release(), "build")
    return place if (place / "include").is_dir() else None


def require() -> None:
    """Raise Unsupported with the package to install where BCC, libbpf or the kernel's headers are missing."""
    version()
    if not (PACKAGES / "bcc").is_dir():
        raise Unsupported(f"BCC is not installed below {PACKAGES}", "install python3-bpfcc")
    if headers() is None:
        release = platform.release()
        raise Unsupported(f"there are no headers at /lib/modules/{release}/build", f"install linux-headers-{release}")


class BccObject:
    """Loaded programs and maps, by name; the same calls as a loaded BpfObject. All of it goes with `close`."""

    def __init__(self, source: Source, program_fds: list[int], map_fds: list[int]) -> None:
        self.name = f"{source.stem}.c"
        self._tracepoints = source.programs
        self._programs = dict(zip(source.programs, program_fds, strict=True))
        self._maps = dict(zip(source.maps, map_fds, strict=True))
        self._links: list[int] = []

    def map(self, name: str, key_dtype: np.dtype[Any], value_dtype: np.dtype[Any]) -> Map:
        """Return a map as arrays; raises ValueError when the sizes differ from the kernel's."""
        return Map(self._maps[name], key_dtype, value_dtype)

    def attach(self, program: str) -> int:
        """Attach one program to its tracepoint; returns the link's descriptor. Raises BpfError."""
        link = open_raw_tracepoint(self._tracepoints[program], self._programs[program])
        self._links.append(link)
        return link

    def release(self, link_fd: int) -> None:
        """Undo one `attach`; the program stays loaded."""
        self._links.remove(link_fd)
        os.close(link_fd)

    def stats(self) -> tuple[ProgramStats, ...]:
        """Run time and count of each program."""
        return tuple(program_stats(name, fd) for name, fd in self._programs.items())

    def close(self) -> None:
        """Detach and free everything; idempotent."""
        for fd in (*self._links, *self._programs.values(), *self._maps.values()):
            os.close(fd)
        self._links.clear()
        self._programs.clear()
        self._maps.clear()


def load(source: Source) -> BccObject:
    """Compile and load. Raises Unsupported with the last errors of compiler or verifier."""
    require()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-m", "probes.bcc.compiler", str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
            cwd=SOURCES.parents[1],
            text=True,
        )
        with child:
            try:
                _, messages = child.communicate(_request(source), timeout=TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired as error:
                child.kill()
                raise Unsupported(f"compiling {source.stem}.c took over {TIMEOUT_SECONDS:.0f} s") from error
        if child.returncode != 0:
            raise Unsupported(f"BCC cannot load {source.stem}.c: {_last_errors(messages)}", _REMEDY)
        _, fds, _, _ = socket.recv_fds(ours, 16, MAX_DESCRIPTORS)
    return BccObject(source, fds[: len(source.programs)], fds[len(source.programs) :])


def _request(source: Source) -> str:
    text = (SOURCES / "prelude.h").read_text() + (SOURCES / f"{source.stem}.c").read_text()
    flags = [f"-I{PLAIN_C}", *(f"-D{name}={value}" for name, value in source.constants.items())]
    return json.dumps({"text": text, "flags": flags, "programs": list(source.programs), "maps": list(source.maps)})


def _last_errors(messages: str) -> str:
    """Errors of compiler or verifier, without the traceback between them and the exception's own line."""
    tools, _, traceback = messages.partition("Traceback (most recent call last):")
    lines = [line.strip() for line in tools.splitlines() if line.strip()]
    errors = [line for line in lines if ": error: " in line]
    return "; ".join([*(errors[:2] or lines[-2:]), *traceback.strip().splitlines()[-1:]]) or "no reason given"


def attach(bcc: BccObject, *programs: str) -> None:
    """Attach in order; a refusal is Unsupported, and everything is closed."""
    for program in programs:
        try:
            bcc.attach(program)
        except BpfError as error:
            bcc.close()
            raise Unsupported(f"{bcc.name}: {program} cannot be attached: {error.strerror}") from error
