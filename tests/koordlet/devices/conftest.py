"""The stand-in for NVIDIA's library, built and loaded once; `pynvml` finds it by its name among the loaded ones."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

GIB = 1 << 30
SOURCE = Path(__file__).parent / "nvml_standin.c"


class Standin:
    """A machine with GPUs as NVML describes it; GPU i has minor i and the bus id 0000:(3a+i):00.0."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def reset(self, gpus: int, memory_bytes: int = 8 * GIB) -> None:
        """Start anew with idle GPUs without links."""
        self._library.standin_reset(gpus, ctypes.c_ulonglong(memory_bytes))

    def lose(self, gpu: int, *, lost: bool = True) -> None:
        """Let a GPU answer no more, or again."""
        self._library.standin_lose(gpu, int(lost))

    def link(self, *groups: tuple[int, ...]) -> None:
        """Link the members of each group among themselves."""
        masks: dict[int, int] = {}
        for group in groups:
            for gpu in group:
                masks[gpu] = masks.get(gpu, 0) | sum(1 << other for other in group if other != gpu)
        for gpu, mask in masks.items():
            self._library.standin_link(gpu, mask)

    def busy(self, gpu: int, percent: int, used_bytes: int) -> None:
        """Set a GPU's use."""
        self._library.standin_busy(gpu, percent, ctypes.c_ulonglong(used_bytes))

    def process(self, gpu: int, pid: int, percent: int, memory_bytes: int, stamp_us: int) -> None:
        """Add a process that uses a GPU."""
        self._library.standin_process(gpu, pid, percent, ctypes.c_ulonglong(memory_bytes), ctypes.c_ulonglong(stamp_us))

    def xid(self, gpu: int, xid: int) -> None:
        """Let the driver report an XID."""
        self._library.standin_xid(gpu, xid)

    def without_driver(self) -> None:
        """Let NVML find no driver."""
        self._library.standin_driver_missing()

    def without_process_utilization(self) -> None:
        """Let NVML know no utilization by process."""
        self._library.standin_utilization_missing()

    @property
    def open_count(self) -> int:
        """Initialisations that were not shut down."""
        return int(self._library.standin_open_count())


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    target = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *options, "-o", target, SOURCE], check=True)
    return ctypes.CDLL(str(target), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def standin(nvml_library: ctypes.CDLL) -> Iterator[Standin]:
    found = Standin(nvml_library)
    found.reset(gpus=8)
    yield found
    assert found.open_count == 0, "NVML was not shut down"
