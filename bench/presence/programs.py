"""What a request costs in BPF programs: runs and time of each, by the kernel's statistics."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from probes import libbpf


@dataclass(frozen=True, slots=True)
class Program:
    """One loaded program so far."""

    name: str
    run_time_ns: int
    runs: int


@dataclass(frozen=True, slots=True)
class Programs:
    """All loaded programs at one moment, by id."""

    by_id: dict[int, Program]

    @classmethod
    def now(cls) -> Self:
        """Ask the kernel."""
        listed = json.loads(subprocess.check_output(["bpftool", "prog", "show", "--json"]))
        return cls(
            {
                each["id"]: Program(each.get("name", ""), each.get("run_time_ns", 0), each.get("run_cnt", 0))
                for each in listed
            }
        )

    def since(self, before: "Programs") -> list[Program]:
        """Return what each program did since an earlier moment, that which took the longest first."""
        none = Program("", 0, 0)
        grown = []
        for identity, program in self.by_id.items():
            then = before.by_id.get(identity, none)
            if program.runs > then.runs:
                grown.append(Program(program.name, program.run_time_ns - then.run_time_ns, program.runs - then.runs))
        return sorted(grown, key=lambda each: -each.run_time_ns)


@contextmanager
def counted() -> Iterator[None]:
    """Have the kernel count runs and time of programs, at some cost for each run."""
    descriptor = libbpf.enable_stats()
    try:
        yield
    finally:
        os.close(descriptor)


def table(programs: list[Program], requests: int) -> str:
    """Return lines of time and runs a request, and time a run."""
    whole_us = sum(each.run_time_ns for each in programs) / 1e3 / requests
    runs = sum(each.runs for each in programs) / requests
    lines = [f"{whole_us:6.2f} us in {runs:5.2f} runs a request"]
    lines += [
        f"{each.run_time_ns / 1e3 / requests:6.2f} us in {each.runs / requests:5.2f} runs of {each.name},"
        f" {each.run_time_ns / each.runs:.0f} ns each"
        for each in programs
        if each.runs > 0.01 * requests
    ]
    return "\n".join(lines)
