"""The same tests on cgroup v2: kubelet, containerd and agent inside a guest of QEMU, the control plane outside.

An emulated machine is ten to twenty times slower than this one. The control plane would take most of it; here it costs
little, and the guest reaches it through QEMU's user network.
"""

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster_e2e.control_plane import CONTROL_PLANE, HOST, HOST_OF_GUEST, launch_control_plane
from tests.cluster_e2e.machine import DIRECTORIES
from tests.cluster_e2e.node import CONTROL_PLANE_BINARIES, NODE_BINARIES
from tests.cluster_e2e.processes import stop
from tests.cluster_e2e.programs import Programs
from tests.cluster_e2e.record import Record, guest_record, locked
from tests.vm import images
from tests.vm.debian import Suite
from tests.vm.machine import REPOSITORY, Boot, Guest, run
from tests.vm.matrix import MATRIX, Entry
from tests.vm.run import TEMPORARY_BYTES, default_cache

RESULTS = Path("/run/koord-vm/results")
"""The results' directory inside the guest."""
GUEST_ASSETS = Path("/run/koord-vm/assets")
MODULES = ("virtio_net", "bridge", "veth", "overlay")
MEMORY_MIB = 3072
PATIENCE = 15
TIMEOUT_SECONDS = 3600.0
FOLDER = Path("tests/cluster_e2e")
SHORTENED = (
    "test_outages.py",
    "test_enforcement.py::test_only_pods_of_class_be_and_their_directory_are_written",
    "test_pods.py",
    "test_nri.py",
    "test_node.py",
)
"""What is run for each of the kubelet's drivers, within one boot. An agent takes a minute to start there: what ends
and is undone is tried by the outages too, and evictions do not depend on the version of cgroups."""
AGENTS = RESULTS / "agents"
"""Logs, settings and audits of the agents of all tests."""
_KEPT = " -o ".join(f"-name {name}" for name in ("log", "audit.jsonl", "koordlet.toml", "journal"))
_FIND = f"find . -type f \\( {_KEPT} \\) -exec cp --parents -t {AGENTS} {{}} +"
_KEEP_LOGS = f"mkdir -p {AGENTS} && cd /tmp/pytest-of-root && {_FIND}"
LEFT = ("test_a_container_is_created_hardly_later", "test_the_doctor_reaches_everything")
"""Tests that measure time, which an emulated machine has none of, or that differ in nothing there."""


def run_in_guest(
    kernel: str, driver: str, assets: Path, output: Path, tests: Sequence[str], on_line: Callable[[str], None]
) -> int:
    """Boot a kernel of the matrix with a node in it and run the tests; return pytest's exit status, 3 without one.

    `driver` is the kubelet's cgroup driver; for `systemd` this machine's systemd is the guest's first process.

    Raises UnavailableError where the kernel cannot be had, and AssertionError for missing binaries.
    """
    entry = next(each for each in MATRIX if each.name == kernel)
    missing = [name for name in (*CONTROL_PLANE_BINARIES, *NODE_BINARIES) if not os.access(assets / name, os.X_OK)]
    assert not missing, f"{assets} lacks {', '.join(missing)}"
    name = f"{kernel}-{driver}"
    results, file = output / name, guest_record(name)
    shutil.rmtree(results, ignore_errors=True)
    (results / "control").mkdir(parents=True)
    with locked(file) as left_over, tempfile.TemporaryDirectory() as scratch:
        if left_over is not None:
            _end(left_over)
        record = Record(str(results / "control"), file=str(file))
        try:
            guest = _guest(entry, driver, assets, Path(scratch))
            begun = time.monotonic()
            control = launch_control_plane(Programs(record, os.environ), assets, HOST)
            on_line(f"control plane after {time.monotonic() - begun:.0f} s; booting {guest.kernel.release}")
            url = control.url.replace(HOST, HOST_OF_GUEST)
            boot = run(guest, command(tests, url, driver), results, on_line)
        finally:
            _end(record)
    on_line(summary(boot))
    return 3 if boot.status is None else boot.status


def command(tests: Sequence[str], url: str, driver: str) -> str:
    """Return the guest's command line."""
    variables = {
        "KOORD_CGROUP_DRIVER": driver,
        CONTROL_PLANE: f"{RESULTS / 'control'}={url}",
        "KUBEBUILDER_ASSETS": str(GUEST_ASSETS),
        "KOORD_TEST_PATIENCE": str(PATIENCE),
    }
    chosen = list(tests) or [str(FOLDER / name) for name in SHORTENED]
    words = [sys.executable, "-m", "pytest", "-v", "-s", "--color=no", "-p", "no:cacheprovider", "--durations=0"]
    words += ["-p", "tests.vm.result_lines", "--result-lines", str(RESULTS / "outcomes.jsonl")]
    words += [f"--timeout={300 * PATIENCE}", f"--junitxml={RESULTS / 'junit.xml'}", *chosen]
    words += ["-k", " and ".join(f"not {name}" for name in LEFT)]
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    # The root below is this machine's, where another node may come and go.
    own = "; ".join(f"mkdir -p {name} && mount -t tmpfs own {name}" for name in DIRECTORIES)
    uptime = "cut -d. -f1 /proc/uptime"
    run_tests = f"{settings} {shlex.join(words)}; status=$?"
    return f"{own}; {uptime}; {run_tests}; {uptime}; {_KEEP_LOGS}; exit $status"


def summary(boot: Boot) -> str:
    """Return what became of the guest."""
    end = boot.failure or f"pytest ended with status {boot.status}"
    return f"{end}; {boot.seconds:.0f} s from power-on to power-off"


def _guest(entry: Entry, driver: str, assets: Path, scratch: Path) -> Guest:
    cache = default_cache()
    kernel = Suite(entry.suite, cache).kernel()
    programs = cache / "node-programs"
    _stage(assets, programs)
    replaced = (
        (Path("/tmp"), images.empty(scratch, TEMPORARY_BYTES)),
        (REPOSITORY, images.snapshot(REPOSITORY, scratch)),
        *((path, images.image_of(path, cache)) for path in images.python_directories()),
        (GUEST_ASSETS, images.image_of(programs, cache)),
    )
    return Guest(
        kernel,
        entry.cgroup,
        TIMEOUT_SECONDS,
        replaced,
        memory_mib=MEMORY_MIB,
        threads_per_core=entry.threads_per_core,
        modules=MODULES,
        init="systemd" if driver == "systemd" else "shell",
        has_network=True,
    )


def _stage(assets: Path, folder: Path) -> None:
    """Copy the node's programs, with their times: the image is made anew only when one of them changed."""
    for name in NODE_BINARIES:
        wanted = folder / name
        wanted.parent.mkdir(parents=True, exist_ok=True)
        if not wanted.exists() or wanted.stat().st_mtime != (assets / name).stat().st_mtime:
            shutil.copy2(assets / name, wanted)


def _end(record: Record) -> None:
    for process in reversed(record.started):
        stop(process)
    Path(record.file).unlink(missing_ok=True)
