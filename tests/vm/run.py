"""Runs the kernel tests in every kernel of the matrix, one on each CPU at a time, and prints the table of results.

An emulated machine runs in one thread. Everything it needs is made ready before the first one starts. A command for
this machine can take the place of one of them.

python -m tests.vm                                  the whole matrix
python -m tests.vm --kernel 6.1,newest --group cpu  part of it
"""

import fcntl
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from tests.vm import beside, images, machine
from tests.vm.debian import Suite, UnavailableError
from tests.vm.matrix import KERNELS_OF_GROUP, Entry
from tests.vm.outcomes import Row, read_lines, rows_of

KERNEL_TESTS = Path("tests/kernel")
GUEST_RESULTS = Path("/run/koord-vm/results")
TEMPORARY_BYTES = 4 << 30
RERUNS = 3  # see outcomes.RERUN_REASON
PYTEST_STATUSES = {0: "", 1: "", 5: "no test was collected"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: kernels, test groups, and directories for images and results.

    Empty `groups` means what the matrix says; `output` gets a directory per kernel. `beside` is a shell command for
    this machine.
    """

    entries: tuple[Entry, ...]
    groups: tuple[str, ...]
    cache: Path
    output: Path
    timeout_seconds: float
    jobs: int = 1
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel that can be booted now, and the guest's `command`.

    `rows` say what of it could not be had, and what it leaves to others.
    """

    entry: Entry
    label: str
    guest: machine.Guest
    command: str
    rows: tuple[Row, ...]


def default_cache() -> Path:
    """Return the directory for packages and images: below XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koord" / "vm"


def files_of(groups: tuple[str, ...]) -> list[str]:
    """Return the test files of `groups`. Raises LookupError naming those that have none."""
    known = {path.stem.removeprefix("test_"): path for path in sorted(KERNEL_TESTS.rglob("test_*.py"))}
    unknown = [group for group in groups if group not in known]
    if unknown:
        raise LookupError(f"no test group {', '.join(unknown)}; there are {', '.join(known)}")
    return [str(known[group]) for group in groups or known]


def groups_of(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the entry of this name runs of `groups`, where none means what the matrix says."""
    return groups or tuple(
        group
        for group in (Path(file).stem.removeprefix("test_") for file in files_of(()))
        if name in KERNELS_OF_GROUP.get(group, (name,))
    )


def rows_left(entry: str, label: str, groups: tuple[str, ...]) -> list[Row]:
    """Return a row for each group that this entry leaves to others."""
    if groups:
        return []
    return [
        Row(label, group, "left", f"to {' and '.join(kernels)} and to the running kernel")
        for group, kernels in KERNELS_OF_GROUP.items()
        if entry not in kernels
    ]


def pytest_command(files: list[str]) -> str:
    """Return the guest's command line."""
    words = [sys.executable, "-m", "pytest", "-m", "kernel", "-v", "--color=no", "-p", "no:cacheprovider"]
    words += [f"--reruns={RERUNS}", "--reruns-delay=1"]
    words += ["-p", "tests.vm.result_lines", "--result-lines", str(GUEST_RESULTS / "outcomes.jsonl")]
    words += [f"--junitxml={GUEST_RESULTS / 'junit.xml'}", *files]
    return shlex.join(words)


def build_objects() -> None:
    """Build the BPF objects once, for all kernels. Raises RuntimeError with the compiler's words."""
    done = subprocess.run([sys.executable, "-m", "probes.build"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"python -m probes.build: {(done.stderr or done.stdout).strip()}")


def compile_sources() -> None:
    """Have Python and pytest keep what they compile of the kernel tests and of all that these import, whatever is set.

    What fails to be collected is for the guests to tell.
    """
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "kernel", "-p", "no:cacheprovider"]
    subprocess.run([*command, str(KERNEL_TESTS)], env=environment, capture_output=True, check=False)


def run(plan: Plan, on_line: Callable[[str], None]) -> list[Row]:
    """Boot each kernel, the longest first; raises LookupError for an unknown group.

    Every row of the table comes back in the order of the matrix, of unavailable kernels too, after that of the command
    beside them.
    """
    # Before the snapshot is taken: a file that comes later is not in it.
    commands = {entry.name: pytest_command(files_of(groups_of(entry.name, plan.groups))) for entry in plan.entries}
    stop = threading.Event()
    with (
        _alone(plan.cache, on_line),
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(plan.jobs) as pool,
    ):
        common_images = cache(partial(_common_images, plan.cache, Path(scratch)))
        # Before the command beside them: modules that it compiles in these directories would make images of the
        # kernels prepared later other ones, and those of the earlier ones stale. Each kernel's row tells a failure.
        with suppress(UnavailableError):
            common_images()
        try:
            here = [pool.submit(beside.run, plan.beside, on_line, stop)] if plan.beside else []
            prepared = {
                entry.name: _prepare(plan, entry, commands[entry.name], common_images, on_line)
                for entry in plan.entries
            }
            longest_first = sorted(plan.entries, key=lambda entry: entry.minutes, reverse=True)
            boots = {e.name: pool.submit(_boot, plan, prepared[e.name], on_line, stop) for e in longest_first}
            return [row for job in (*here, *(boots[name] for name in prepared)) for row in job.result()]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _alone(cache: Path, on_line: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other run uses the cache: more machines than CPUs starve each other's timing tests."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_line("== another run is booting a kernel; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _common_images(cache_directory: Path, scratch: Path) -> tuple[tuple[Path, Path], ...]:
    """Return what stands in for directories in every guest of a run. Raises UnavailableError."""
    return (
        # On a disk, as on most hosts: page cache of files on a tmpfs cannot be reclaimed.
        (Path("/tmp"), images.empty(scratch, TEMPORARY_BYTES)),
        (machine.REPOSITORY, images.snapshot(machine.REPOSITORY, scratch)),
        *((path, images.image_of(path, cache_directory)) for path in images.python_directories()),
    )


def _prepare(
    plan: Plan,
    entry: Entry,
    command: str,
    common_images: Callable[[], tuple[tuple[Path, Path], ...]],
    on_line: Callable[[str], None],
) -> Prepared | Row:
    """Download and build what the cache lacks; the row has the reason where a kernel is unavailable."""
    on_line(f"== {entry.name}: preparing")
    suite = Suite(entry.suite, plan.cache)
    try:
        kernel = suite.kernel()
        label = f"{entry.name} ({kernel.release}, cgroup {entry.cgroup})"
        sources, missing = _sources(suite, kernel.release, label) if entry.headers else ([], [])
        replaced = (
            *common_images(),
            *((Path("/usr/src"), images.image_of(source, plan.cache)) for source in sources),
        )
    except UnavailableError as error:
        return Row(entry.name, "-", "unavailable", f"({error})")
    guest = machine.Guest(
        kernel,
        entry.cgroup,
        plan.timeout_seconds,
        replaced,
        threads_per_core=entry.threads_per_core,
        possible_cpus=entry.possible_cpus,
    )
    return Prepared(entry, label, guest, command, (*missing, *rows_left(entry.name, label, plan.groups)))


def _boot(plan: Plan, prepared: Prepared | Row, on_line: Callable[[str], None], stop: threading.Event) -> list[Row]:
    if isinstance(prepared, Row):
        return [prepared]
    name = prepared.entry.name
    results = plan.output / name
    results.mkdir(parents=True, exist_ok=True)
    for stale in results.iterdir():
        stale.unlink()
    on_line(f"== {prepared.label}")
    try:
        boot = machine.run(prepared.guest, prepared.command, results, partial(_prefixed, name, on_line), stop)
    except UnavailableError as error:
        return [Row(name, "-", "unavailable", f"({error})")]
    on_line(f"== {name}: powered off after {boot.seconds:.0f} s")
    outcomes = read_lines(results / "outcomes.jsonl")
    return [*prepared.rows, *rows_of(prepared.label, outcomes), *boot_rows(prepared.label, boot)]


def _prefixed(name: str, on_line: Callable[[str], None], line: str) -> None:
    on_line(f"{name}: {line}")


def _sources(suite: Suite, release: str, label: str) -> tuple[list[Path], list[Row]]:
    """Return the kernel's header files; without them the other tests still run, and a row says why."""
    try:
        return [suite.headers(release)], []
    except UnavailableError as error:
        return [], [Row(label, "headers", "unavailable", f"({error})")]


def boot_rows(label: str, boot: machine.Boot) -> list[Row]:
    """Return rows for failures outside of tests: a crash, a timeout, recompiled objects."""
    rows = []
    if boot.status is None:
        rows.append(Row(label, "boot", "FAIL", boot.failure, boot.trace))
    elif PYTEST_STATUSES.get(boot.status, "unknown"):
        reason = PYTEST_STATUSES.get(boot.status) or f"pytest ended with status {boot.status}"
        rows.append(Row(label, "pytest", "FAIL", reason))
    if boot.rebuilt_objects:
        names = ", ".join(sorted(set(boot.rebuilt_objects)))
        rows.append(Row(label, "objects", "FAIL", f"recompiled in the guest: {names}"))
    return rows
