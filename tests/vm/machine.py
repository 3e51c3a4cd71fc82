"""One boot of one kernel under QEMU, with the host's root below it and one command to run."""

import os
import selectors
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from tests.vm import initramfs
from tests.vm.debian import Kernel, UnavailableError
from tests.vm.matrix import CgroupLayout

REPOSITORY = Path(__file__).resolve().parents[2]
QEMU = "qemu-system-x86_64"
GUEST_STAGES = Path(__file__).parent / "guest"
GUEST_MODULES = ("virtio_blk", "loop", "ext4", "fuse", "null_blk", "virtio_rng")
DISK_BYTES = 512 << 20
PANIC_MARKS = ("Kernel panic", "koord-vm:", "BUG:", "Oops:")
LOCKUP = "soft lockup"
MAX_LOCKUPS = 3
"""That many with no line in between are a kernel that is stuck: a host that is away for half a minute is one, too."""
TRACE_LINES = 20


@dataclass(frozen=True, slots=True)
class Guest:
    """A machine to boot. `timeout_seconds` counts from power-on to power-off.

    `images` pairs a directory with an ext4 image that stands in for it in the guest, parents first.
    """

    kernel: Kernel
    cgroup: CgroupLayout
    timeout_seconds: float
    images: tuple[tuple[Path, Path], ...] = ()
    memory_mib: int = 1536
    cpus: int = 2
    threads_per_core: int = 1
    possible_cpus: int = 2
    """CPUs that the kernel makes room for; those beyond `cpus` are offline for good."""
    modules: tuple[str, ...] = ()
    """Kernel modules to load besides those of every guest."""
    init: Literal["shell", "systemd"] = "shell"
    """First process of the guest's user space; systemd with nothing but the command's unit."""
    has_network: bool = False
    """With eth0 at 10.0.2.15, from which 10.0.2.2 is this machine's loopback."""


@dataclass(frozen=True, slots=True)
class Boot:
    """Result of a boot: the command's exit status, or None with the reason in `failure`.

    `trace` is what the kernel printed of its last crash or lockup, or else the last that came from QEMU.
    """

    status: int | None
    failure: str
    seconds: float
    rebuilt_objects: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()


def run(
    guest: Guest, command: str, results: Path, on_line: Callable[[str], None], stop: threading.Event | None = None
) -> Boot:
    """Boot, run the shell `command` in the repository, power off; every line it prints goes to `on_line`.

    Setting `stop` pulls the plug.

    `results` is shared with the guest as /run/koord-vm/results; console.log in it is the kernel's console.
    Raises UnavailableError where QEMU is not installed.
    """
    if shutil.which(QEMU) is None:
        raise UnavailableError(f"{QEMU} is not installed")
    started = time.monotonic()
    _write_parameters(guest, command, results)
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        initramfs.build(guest.kernel, scratch / "initramfs")
        with (scratch / "disk").open("wb") as disk:
            disk.truncate(DISK_BYTES)
        qemu = _qemu_command(guest, results, scratch)
        end, last_lines = _run_qemu(qemu, guest.timeout_seconds, results, on_line, stop or threading.Event())
    seconds = time.monotonic() - started
    status = _read(results / "status")
    if status is None:
        trace = _last_panic(_read(results / "console.log") or "") or last_lines
        return Boot(None, f"{end} after {seconds:.0f} s", seconds, trace=trace)
    return Boot(int(status), "", seconds, tuple((_read(results / "rebuilt") or "").split()))


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _last_panic(console: str) -> tuple[str, ...]:
    lines = console.splitlines()
    marked = [at for at, line in enumerate(lines) if any(mark in line for mark in PANIC_MARKS)]
    return tuple(lines[marked[-1] : marked[-1] + TRACE_LINES]) if marked else ()


def _write_parameters(guest: Guest, command: str, results: Path) -> None:
    for name in ("main.sh", "last.sh", "koord-vm.service"):
        shutil.copy(GUEST_STAGES / name, results)
    (results / "command").write_text(command + "\n")
    parameters = {
        "KOORD_VM_REPOSITORY": str(REPOSITORY),
        "KOORD_VM_RELEASE": guest.kernel.release,
        "KOORD_VM_MODULES": str(guest.kernel.modules),
        "KOORD_VM_LOAD_MODULES": " ".join((*GUEST_MODULES, *guest.modules)),
        "KOORD_VM_INIT": guest.init,
        "KOORD_VM_NETWORK": "10.0.2.15/24" if guest.has_network else "",
        "KOORD_VM_CGROUP": guest.cgroup,
        "KOORD_VM_IMAGES": " ".join(str(directory) for directory, _ in guest.images),
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in parameters.items()]
    (results / "environment").write_text("".join(lines))


def _qemu_command(guest: Guest, results: Path, scratch: Path) -> list[str]:
    append = "console=ttyS0 loglevel=5 panic=-1 psi=1 net.ifnames=0 mitigations=off nokaslr no_hash_pointers"
    # An emulated CPU clears and moves pages so slowly that the watchdog takes a pass of kcompactd for a lockup.
    append += " init_on_alloc=0 sysctl.vm.compaction_proactiveness=0 watchdog_thresh=30"
    shares = (("host", Path("/"), ",readonly=on,multidevs=remap"), ("results", results, ""))
    share_options = [
        option
        for tag, path, more in shares
        for option in ("-virtfs", f"local,path={path},mount_tag={tag},security_model=none,id={tag}{more}")
    ]
    drives = [f"file={scratch / 'disk'},if=virtio,format=raw,cache=none"]
    network = ("-netdev", "user,id=network", "-device", "virtio-net-pci,netdev=network") if guest.has_network else ()
    # What the guest writes to an image goes to a temporary file.
    drives += [f"file={image},if=virtio,format=raw,snapshot=on,cache=unsafe" for _, image in guest.images]
    # One thread runs both CPUs in turn: with a thread each, a CPU can miss that the other patched its code, and
    # spins on a breakpoint that is gone. QEMU 7.2 emulates AVX2 wrongly: numpy's argsort returns an unsorted order.
    return [
        QEMU,
        *("-machine", "pc", "-cpu", "max,-avx2", "-accel", "tcg,thread=single,tb-size=512"),
        *("-smp", f"{guest.cpus},maxcpus={guest.possible_cpus},sockets=1,threads={guest.threads_per_core}"),
        *("-m", str(guest.memory_mib)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-kernel", str(guest.kernel.vmlinuz), "-initrd", str(scratch / "initramfs"), "-append", append),
        *("-serial", f"file:{results / 'console.log'}", "-serial", "stdio"),
        *(option for drive in drives for option in ("-drive", drive)),
        *("-device", "virtio-rng-pci"),
        *network,
        *share_options,
    ]


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start QEMU and make sure that it is gone afterwards."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _run_qemu(
    command: list[str], timeout_seconds: float, results: Path, on_line: Callable[[str], None], stop: threading.Event
) -> tuple[str, tuple[str, ...]]:
    """Pass on what guest and QEMU print until it ends or has to be killed; returns which, and the last lines."""
    deadline = time.monotonic() + timeout_seconds
    with _started(command) as process, selectors.DefaultSelector() as selector:
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ)
        lines = _LineReader(process.stdout)
        lockups_before = 0
        while time.monotonic() < deadline:
            if stop.is_set():
                return "stopped", lines.last()
            if not selector.select(timeout=5.0):
                if _lockups(results) - lockups_before >= MAX_LOCKUPS:
                    return "locked up", lines.last()
            elif not lines.read_into(on_line):
                return "powered off early", lines.last()
            else:
                lockups_before = _lockups(results)
    return "timeout", lines.last()


def _lockups(results: Path) -> int:
    return (_read(results / "console.log") or "").count(LOCKUP)


class _LineReader:
    """Splits what is readable of a stream into lines, without blocking for more."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._rest = b""
        self._last: deque[str] = deque(maxlen=TRACE_LINES)

    def read_into(self, on_line: Callable[[str], None]) -> bool:
        """Read once; False at the end of the stream."""
        chunk = os.read(self._stream.fileno(), 65536)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._last.append(_shown(line))
            on_line(self._last[-1])
        return bool(chunk)

    def last(self) -> tuple[str, ...]:
        """Return the last lines that were read, the one without an end too."""
        return (*self._last, _shown(self._rest)) if self._rest else tuple(self._last)


def _shown(line: bytes) -> str:
    """Return what a terminal shows of a line: what follows the last carriage return."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
