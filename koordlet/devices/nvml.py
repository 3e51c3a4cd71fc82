"""NVIDIA GPUs through NVML: identity, memory, links, health and use. The only module that imports `pynvml`.

Health: a GPU does not answer while it is lost. One for which the driver reported a critical XID is at fault until the
agent starts again, as it must after a reset of the GPU. XIDs that a program causes (page fault, stopped channel) say
nothing of the GPU.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any, TypeVar

from api.kube.device import DeviceInfo
from api.plugin import Unsupported
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordlet.devices.inventory import GPU_TYPE, FoundDevice
from koordlet.devices.pci import bus_id, location
from koordlet.host.files import HostTree

_log = logging.getLogger(__name__)

T = TypeVar("T")

VENDOR = "nvidia"
WHOLE = 100
"""Percent of a GPU."""
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a program causes: engine exception, page fault, stopped channel, clean-up, video, context switch."""
MAX_GPUS = 256
_MAX_EVENTS = 256
"""Events read in one pass: a GPU in agony reports many."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Use of one GPU by one process, by its pid on the host."""

    pid: int
    minor: int
    core_percent: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Use of one GPU in all."""

    minor: int
    uuid: str
    core_percent: float
    memory_bytes: int
    total_bytes: int


@dataclass(slots=True)
class _Gpu:
    """One GPU with what was learned when it was first seen."""

    handle: Any
    found: FoundDevice
    seen_us: int = 0
    """Newest time stamp of its processes' samples."""


class Nvml:
    """NVML of this host, open until `close`; used by one thread."""

    def __init__(self, tree: HostTree) -> None:
        """Raises Unsupported without the library `pynvml`, the driver or a GPU."""
        self._tree = tree
        self._gpus: dict[str, _Gpu] = {}
        self._xids: dict[str, int] = {}
        self._nvml = _imported()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise Unsupported(f"NVML does not start: {error}", "install or load the driver of NVIDIA") from error
        self._open = True
        self._events = self._try(self._nvml.nvmlEventSetCreate)
        self.driver_version = _text(self._try(self._nvml.nvmlSystemGetDriverVersion) or "")
        self._learn()
        if not self._gpus:
            self.close()
            raise Unsupported("NVML finds no GPU that answers", "look for NVRM in the kernel log")

    def found(self) -> tuple[FoundDevice, ...]:
        """Return every GPU that was ever seen, in the order of minors, with its present health."""
        self._learn()
        self._read_events()
        gpus = sorted(self._gpus.values(), key=lambda gpu: gpu.found.minor)
        return tuple(self._with_health(gpu) for gpu in gpus)

    def use(self) -> tuple[GpuUse, ...]:
        """Return the use of each GPU that answers."""
        found = (self._try(partial(self._use_of, gpu)) for gpu in self._gpus.values())
        return tuple(sorted((use for use in found if use), key=lambda use: use.minor))

    def processes(self) -> tuple[ProcessUse, ...]:
        """Return the use of each GPU by process; compute percent since the last call, 0 where NVML tells none."""
        found = (self._try(partial(self._processes_of, gpu)) or () for gpu in self._gpus.values())
        return tuple(sorted((use for uses in found for use in uses), key=lambda use: (use.minor, use.pid)))

    def close(self) -> None:
        """Release NVML; idempotent."""
        if not self._open:
            return
        self._open = False
        if self._events is not None:
            self._try(partial(self._nvml.nvmlEventSetFree, self._events))
            self._events = None
        self._gpus.clear()
        self._try(self._nvml.nvmlShutdown)

    def _learn(self) -> None:
        """Add GPUs that are seen for the first time; those that do not answer are looked at again next time."""
        before = len(self._gpus)
        for index in range(min(self._try(self._nvml.nvmlDeviceGetCount) or 0, MAX_GPUS)):
            gpu = self._try(partial(self._described, index))
            if gpu is not None and gpu.found.info.id not in self._gpus:
                self._gpus[gpu.found.info.id] = gpu
                if self._events is not None:
                    watch = self._nvml.nvmlEventTypeXidCriticalError
                    self._try(partial(self._nvml.nvmlDeviceRegisterEvents, gpu.handle, watch, self._events))
        if len(self._gpus) != before:
            self._link()

    def _described(self, index: int) -> _Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        if uuid in self._gpus:
            return self._gpus[uuid]
        address = bus_id(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        info = DeviceInfo(
            type=GPU_TYPE,
            id=uuid,
            minor=int(nvml.nvmlDeviceGetMinorNumber(handle)),
            resources={
                GPU_CORE: WHOLE,
                GPU_MEMORY: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                GPU_MEMORY_RATIO: WHOLE,
            },
            topology=location(self._tree, address) if address else None,
        )
        model = _text(nvml.nvmlDeviceGetName(handle))
        return _Gpu(handle, FoundDevice(info=info, vendor=VENDOR, model=model, driver_version=self.driver_version))

    def _link(self) -> None:
        """Find the pairs of GPUs with a direct NVLink between them."""
        gpus = list(self._gpus.values())
        pairs = {
            (one.found.minor, other.found.minor)
            for one, other in permutations(gpus, 2)
            if self._try(partial(self._linked, one, other))
        }
        for gpu in gpus:
            peers = frozenset(other for one, other in pairs if one == gpu.found.minor)
            gpu.found = replace(gpu.found, peers=peers)

    def _linked(self, one: _Gpu, other: _Gpu) -> bool:
        status = self._nvml.nvmlDeviceGetP2PStatus(one.handle, other.handle, self._nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        return bool(status == self._nvml.NVML_P2P_STATUS_OK)

    def _read_events(self) -> None:
        """Note the GPUs for which the driver reported an XID since the last look."""
        if self._events is None:
            return
        for _ in range(_MAX_EVENTS):
            event = self._try(partial(self._nvml.nvmlEventSetWait, self._events, 1))
            if event is None:
                return
            xid = int(event.eventData)
            uuid = _text(self._try(partial(self._nvml.nvmlDeviceGetUUID, event.device)) or "")
            if event.eventType == self._nvml.nvmlEventTypeXidCriticalError and xid not in PROGRAM_XIDS:
                _log.warning("GPU %s: the driver reports XID %d; it is given to no more pods", uuid or "unknown", xid)
                self._xids.setdefault(uuid, xid)

    def _with_health(self, gpu: _Gpu) -> FoundDevice:
        """A GPU that was lost no longer tells its memory."""
        xid = self._xids.get(gpu.found.info.id)
        if xid is not None:
            return replace(gpu.found, fault_code=f"XID-{xid}", fault=f"the driver reported XID {xid}")
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(gpu.handle)
        except self._nvml.NVMLError as error:
            return replace(gpu.found, fault_code=f"NVML-{error.value}", fault=str(error))
        return gpu.found

    def _use_of(self, gpu: _Gpu) -> GpuUse:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(gpu.handle)
        busy = self._nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu
        info = gpu.found.info
        return GpuUse(info.minor, info.id, float(busy), int(memory.used), int(memory.total))

    def _processes_of(self, gpu: _Gpu) -> tuple[ProcessUse, ...]:
        memory: dict[int, int] = {}
        for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle):
            memory[int(process.pid)] = memory.get(int(process.pid), 0) + int(process.usedGpuMemory or 0)
        busy: dict[int, tuple[int, float]] = {}
        for sample in self._try(partial(self._nvml.nvmlDeviceGetProcessUtilization, gpu.handle, gpu.seen_us)) or ():
            stamp, pid = int(sample.timeStamp), int(sample.pid)
            if stamp > gpu.seen_us and pid in memory and (pid not in busy or stamp > busy[pid][0]):
                busy[pid] = (stamp, float(min(sample.smUtil, WHOLE)))
        gpu.seen_us = max((stamp for stamp, _ in busy.values()), default=gpu.seen_us)
        minor = gpu.found.minor
        return tuple(ProcessUse(pid, minor, busy.get(pid, (0, 0.0))[1], used) for pid, used in memory.items())

    def _try(self, call: Callable[[], T]) -> T | None:
        """The call's answer; None where NVML has none: a lost GPU, a call that this driver or GPU lacks, no event."""
        try:
            return call()
        except self._nvml.NVMLError as error:
            _log.debug("NVML: %s", error)
            return None


def _imported() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise Unsupported(f"NVIDIA's library for NVML is not installed: {error}", "pip install 'koord[gpu]'") from error


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
