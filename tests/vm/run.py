"""Runs the kernel tests in every kernel of the matrix, one at a time, and prints what each supports.

python -m tests.vm                                  the whole matrix
python -m tests.vm --kernel 6.1,newest --group cpu  part of it
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.vm import images, machine
from tests.vm.debian import Suite, UnavailableError
from tests.vm.matrix import Entry
from tests.vm.outcomes import Row, read_lines, rows_of

KERNEL_TESTS = Path("tests/kernel")
GUEST_RESULTS = Path("/run/koord-vm/results")
TEMPORARY_BYTES = 4 << 30
PYTEST_STATUSES = {0: "", 1: "", 5: "no test was collected"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run and where to keep it. Empty `groups` means all; `output` gets a directory per kernel."""

    entries: tuple[Entry, ...]
    groups: tuple[str, ...]
    cache: Path
    output: Path
    timeout_seconds: float


def default_cache() -> Path:
    """Return the directory for packages and images: below XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koord" / "vm"


def files_of(groups: tuple[str, ...]) -> list[str]:
    """Return the test files of `groups`. Raises LookupError naming those that have none."""
    known = {path.stem.removeprefix("test_"): path for path in sorted(KERNEL_TESTS.glob("test_*.py"))}
    unknown = [group for group in groups if group not in known]
    if unknown:
        raise LookupError(f"no test group {', '.join(unknown)}; there are {', '.join(known)}")
    return [str(known[group]) for group in groups or known]


def pytest_command(files: list[str]) -> str:
    """Return the guest's command line."""
    words = [sys.executable, "-m", "pytest", "-m", "kernel", "-v", "--color=no", "-p", "no:cacheprovider"]
    words += ["-p", "tests.vm.result_lines", "--result-lines", str(GUEST_RESULTS / "outcomes.jsonl")]
    words += [f"--junitxml={GUEST_RESULTS / 'junit.xml'}", *files]
    return shlex.join(words)


def build_objects() -> None:
    """Build the BPF objects once, for all kernels. Raises RuntimeError with the compiler's words."""
    done = subprocess.run([sys.executable, "-m", "probes.build"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"python -m probes.build: {(done.stderr or done.stdout).strip()}")


def run(plan: Plan, on_line: Callable[[str], None]) -> list[Row]:
    """Boot each kernel in turn; every row of the table comes back, of unavailable kernels too."""
    command = pytest_command(files_of(plan.groups))
    rows: list[Row] = []
    for entry in plan.entries:
        try:
            with _alone(plan.cache, on_line):
                rows += _run_entry(plan, entry, command, on_line)
        except UnavailableError as error:
            rows.append(Row(entry.name, "-", "unavailable", f"({error})"))
    return rows


@contextmanager
def _alone(cache: Path, on_line: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other run uses the cache: two emulated machines at once starve each other's timing tests."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_line("== another run is booting a kernel; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run_entry(plan: Plan, entry: Entry, command: str, on_line: Callable[[str], None]) -> list[Row]:
    suite = Suite(entry.suite, plan.cache)
    kernel = suite.kernel()
    label = f"{entry.name} ({kernel.release}, cgroup {entry.cgroup})"
    sources, missing = _sources(suite, kernel.release, label) if entry.headers else ([], [])
    on_line(f"== {entry.name}: {kernel.release}, cgroup {entry.cgroup}")
    results = plan.output / entry.name
    results.mkdir(parents=True, exist_ok=True)
    for stale in results.iterdir():
        stale.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        guest = machine.Guest(
            kernel,
            entry.cgroup,
            plan.timeout_seconds,
            images=(
                # On a disk, as on most hosts: page cache of files on a tmpfs cannot be reclaimed.
                (Path("/tmp"), images.empty(Path(scratch), TEMPORARY_BYTES)),
                (machine.REPOSITORY, images.snapshot(machine.REPOSITORY, Path(scratch))),
                *((path, images.image_of(path, plan.cache)) for path in images.python_directories()),
                *((Path("/usr/src"), images.image_of(source, plan.cache)) for source in sources),
            ),
        )
        boot = machine.run(guest, command, results, on_line)
    on_line(f"== {entry.name}: powered off after {boot.seconds:.0f} s")
    return missing + rows_of(label, read_lines(results / "outcomes.jsonl")) + boot_rows(label, boot)


def _sources(suite: Suite, release: str, label: str) -> tuple[list[Path], list[Row]]:
    """Return the kernel's header files; without them the other tests still run, and a row says why."""
    try:
        return [suite.headers(release)], []
    except UnavailableError as error:
        return [], [Row(label, "headers", "unavailable", f"({error})")]


def boot_rows(label: str, boot: machine.Boot) -> list[Row]:
    """Return rows for what no test outcome tells: a crash, a timeout, recompiled objects."""
    rows = []
    if boot.status is None:
        rows.append(Row(label, "boot", "FAIL", boot.failure))
    elif PYTEST_STATUSES.get(boot.status, "unknown"):
        reason = PYTEST_STATUSES.get(boot.status) or f"pytest ended with status {boot.status}"
        rows.append(Row(label, "pytest", "FAIL", reason))
    if boot.rebuilt_objects:
        names = ", ".join(sorted(set(boot.rebuilt_objects)))
        rows.append(Row(label, "objects", "FAIL", f"recompiled in the guest: {names}"))
    return rows
