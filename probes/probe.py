"""Base classes of probes: BPF programs, or other kernel interfaces, that are read as columns by cgroup.

Adding a probe
--------------

A probe `x` is four files:

- `probes/bpf/x.bpf.c`, its programs and maps;
- `probes/x.py`, one class derived from `BpfProbe` (or from `Probe` where there is no program), found by file name;
- `tests/probes/test_x.py`, which holds the decoding of records on made-up maps (as test_irq.py does);
- `tests/kernel/test_x.py`, which holds the probe against a known count on the running kernel, in cgroups made by
  the fixture `tree` (tests/cgroups.py).

`python -m probes.build` compiles the first. Nothing else names the probe: it is opened by every agent whose kernel can
serve it, and its columns are in frames, deltas and metrics. `make docs` writes them into docs/metrics.md (a test
compares), and README's table of probes takes a row. docs/extending.md shows a whole probe.

*The program.* Include `kernel.bpf.h` (kernel types with the fields that are read, found by CO-RE; add missing ones
there or in the file), `maps.bpf.h` (`lookup_or_init`, `LOST_MAP`, `count_lost`) and `cgroup.bpf.h` (`task_cgroup`, the
id that all tables are keyed by). Measure in `tp_btf` programs where there is a tracepoint; a traced function (fentry)
needs another way where the host refuses it. Sum with `COUNT` in a per-CPU hash by `sharded(cgroup)`: on machines of
many CPUs it is a hash that CPUs share (`probes/shared_maps.py`). An event that fits no map is counted by `count_lost`,
never dropped in silence. Every record is a C struct of u64 fields. The verifiers of all kernels from 6.1 on must accept
it: bounded loops, `__noinline` where inlined copies grow too large.

    struct exits_cgroup { u64 exits; };

    struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
        __uint(max_entries, 2048);
        __type(key, u64);
        __type(value, struct exits_cgroup);
    } cgroups SEC(".maps");

    SEC("tp_btf/sched_process_exit")
    int BPF_PROG(on_exit, struct task_struct *task) { ... }

*The class.* `records` maps each C struct to its numpy dtype; a test compares them with the object's BTF. `metrics`
declares the columns with `counter`, `gauge` and `histogram` of `api.metrics`; their names begin with the probe's.
`open` asks for what it needs (`kernel.require_tracepoints`), sizes the maps by `limits`, loads, and attaches ends
before beginnings, so that no interval is half seen. It raises `Unsupported(reason, remedy)` where the host cannot
serve; a part that is missing is a line in `kernel.refusals`, and its columns are absent.

    bpf = open_object(cls.image(), kernel)
    share(bpf, limits.shards, by_cgroup={"cgroups": limits.max_cgroups})
    load(bpf)
    attach(bpf, "on_exit")
    return cls(bpf)

*Reading.* `read` runs once a tick and gives totals since `open` that never shrink, as numpy columns in native units
(ns, bytes, events). `Map.read` reuses its buffers: copy keys that are kept. `forget` deletes the keys of cgroups that
are gone. Losses are in `Reading.lost` by a name of the form `x.place`. A column that was not measured is left out,
never zero.

*Cost.* Measure an event with `python -m bench.probe_cost x` and put the figure into the module's docstring. A probe
that is expensive at every switch sets `focusable` and implements `focus`. Settings of a single probe are `options`.

*From another distribution.* A class named by the entry point group `koord.probes` is used like one of this package.
Its `image` returns the path of its own object.
"""

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from api.frame import Reading
from api.metrics import Metric
from api.plugin import Unsupported
from api.settings import SettingsError
from probes.bpf_object import BpfObject, LoadedBpf
from probes.btf import Btf
from probes.build import object_path
from probes.libbpf import BpfError, ProgramStats, possible_cpus
from probes.page_shares import PageShares
from probes.pairs import PairLedger
from probes.shared_maps import shards_of_machine

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
AGAIN = "_again"
"""Suffix of the name of a second program on the same tracepoint. The kernel does not run a program on a CPU where it is
running already, and from 7.0 on may preempt it: events of other tasks are missed meanwhile. The second program runs
after the first, and acts only where that did not."""

Option = bool | int | float | str
OptionT = TypeVar("OptionT", bool, int, float, str)


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Sizes that bound every probe's maps."""

    max_cgroups: int = 2048
    """Cgroups a probe can hold at once; what does not fit is counted as lost."""
    max_pairs: int = 16384
    """Victim-culprit pairs between two reads."""
    options: Mapping[str, Mapping[str, Option]] = field(default_factory=dict)
    """Options of single probes, by probe name; each probe's class says which it takes."""
    shards: tuple[int, ...] = field(default_factory=shards_of_machine)
    """Shard of each CPU in maps that CPUs share; empty for per-CPU maps."""

    def option(self, probe: str, key: str, default: OptionT) -> OptionT:
        """Return one option of a probe; raises SettingsError naming it when its type is not the default's."""
        return cast(OptionT, self.checked_option(probe, key, default))

    def checked_option(self, probe: str, key: str, default: Option) -> Option:
        """Return an option as `option` does, for a default of any type."""
        value = self.options.get(probe, {}).get(key, default)
        if type(default) is float and type(value) is int:
            return float(value)
        if type(value) is not type(default):
            problem = f"{value!r} is not a {type(default).__name__}"
            raise SettingsError("settings", f"[probes.options.{probe}] {key}", problem)
        return value


class Kernel:
    """Capabilities of the running kernel, read once and shared by all probes."""

    def __init__(self, btf_path: Path = KERNEL_BTF) -> None:
        self._btf_path = btf_path
        self.refusals: dict[str, str] = {}

    @cached_property
    def btf(self) -> Btf:
        """The kernel's BTF; raises Unsupported where it has none."""
        try:
            return Btf(self._btf_path.read_bytes())
        except OSError as error:
            raise Unsupported(
                f"the kernel offers no BTF at {self._btf_path}",
                "use a kernel built with CONFIG_DEBUG_INFO_BTF",
            ) from error

    @cached_property
    def preempts_tracepoints(self) -> bool:
        """True when a program on a tracepoint can be preempted: SRCU guards tracepoints, as since 7.0.

        Fast SRCU (6.15) sets these kernels apart from those before 6.13, which used SRCU there too.
        """
        guarded = "tracepoint_srcu_srcu_data" in self.btf.variables(".data..percpu")
        return guarded and self.btf.struct_size("srcu_ctr") is not None

    def require_tracepoints(self, *names: str) -> None:
        """Raise Unsupported naming the first tracepoint the kernel lacks."""
        for name in names:
            if not self.btf.has_tracepoint(name):
                raise Unsupported(f"the kernel has no tracepoint {name}", "use a newer kernel")


class Probe(ABC):
    """One source of columns. Built by `open`, read each tick, closed once."""

    name: ClassVar[str]
    pairs: PairLedger | None = None
    """Victims and culprits, where the probe names them."""
    page_shares: PageShares | None = None
    """Who takes pages while the node is short, where the probe counts that."""
    options: ClassVar[Mapping[str, Option]] = {}
    """Options under `[probes.options.<name>]`, with their defaults."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Columns declared by the probe itself, in place of lines in `api/metrics.py`."""
    focusable: ClassVar[bool] = False
    """True when `focus` reduces the cost."""
    records: ClassVar[Mapping[str, np.dtype[Any]]] = {}
    """C struct name to numpy record, for every map record; a test holds them against the object's BTF."""

    @classmethod
    @abstractmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Probe":
        """Start measuring. Raises Unsupported(reason) where this host cannot."""

    @abstractmethod
    def read(self) -> Reading:
        """Return the cumulative columns."""

    @abstractmethod
    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Drop what is kept for cgroups that are gone."""

    def reserve(self, ids: NDArray[np.uint64]) -> int:  # noqa: ARG002
        """Keep room for cgroups that have no columns yet; return for how many there is none. 0 where it cannot be
        kept."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Stop measuring; idempotent."""

    def follow_pages(self, shares: PageShares) -> None:  # noqa: B027 - few probes see what reclaim does
        """Share out by these what the probe sees reclaim of the whole node do. Does nothing by default."""

    def focus(self, ids: NDArray[np.uint64] | None) -> None:  # noqa: B027 - most probes have nothing to spare
        """Measure only these cgroups, or all with None; none at all is allowed. Raises BpfError.

        Cgroups that are not measured have no rows, or columns are left out: never a zero. Does nothing by default.
        """

    def stats(self) -> tuple[ProgramStats, ...]:
        """Run time of the probe's programs, empty where it has none."""
        return ()

    def missed(self) -> dict[str, int]:
        """Return missed events by program, an upper bound: the program was running on their CPU already.

        An event that the second program saw is not missed. Cumulative; programs that missed nothing are absent.
        """
        counts = {program.name: program.missed_count for program in self.stats()}
        firsts = {name: count for name, count in counts.items() if not name.endswith(AGAIN)}
        missed = {name: min(count, counts.get(name + AGAIN, count)) for name, count in firsts.items()}
        return {name: count for name, count in missed.items() if count}


def check_options(limits: ProbeLimits, kinds: Mapping[str, type[Probe]]) -> None:
    """Raise SettingsError for an option that no probe takes, or of another type than its default."""
    for probe, given in limits.options.items():
        known = kinds[probe].options if probe in kinds else {}
        for key in given:
            if key not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                problem = f"unknown option; {takes}" if probe in kinds else "there is no such probe"
                raise SettingsError("settings", f"[probes.options.{probe}] {key}", problem)
            limits.checked_option(probe, key, known[key])


class BpfProbe(Probe):
    """A probe whose programs come from `bpf/<name>.bpf.c`."""

    def __init__(self, bpf: LoadedBpf) -> None:
        self._bpf = bpf

    def forget(self, ids: NDArray[np.uint64]) -> None:
        """Nothing is kept by default."""

    def close(self) -> None:
        self._bpf.close()

    def stats(self) -> tuple[ProgramStats, ...]:
        return self._bpf.stats()

    @classmethod
    def image(cls) -> Path:
        """The probe's object for this machine; raises Unsupported if it has not been built."""
        return image_of(cls.name)


def image_of(name: str) -> Path:
    """Return the path of a program's object for this machine; raises Unsupported if it has not been built."""
    path = object_path(name)
    if not path.exists():
        raise Unsupported(f"{path} is not built", "run `make setup` or `python -m probes.build`")
    return path


def open_object(path: Path, kernel: Kernel) -> BpfObject:
    """Open an object file; an unusable one is Unsupported with its path."""
    _ = kernel.btf
    try:
        return BpfObject.open(path)
    except BpfError as error:
        raise Unsupported(
            f"{path} is not a usable BPF object: {error}", "rebuild it: python -m probes.build"
        ) from error


def load(bpf: BpfObject) -> None:
    """Load; a refusal by the kernel is Unsupported with the verifier's last lines, and the object is closed."""
    try:
        bpf.load()
    except BpfError as error:
        bpf.close()
        raise Unsupported(f"{bpf.name} was refused by the kernel: {_last_lines(error)}", _remedy(error)) from error


def again(*programs: str) -> tuple[str, ...]:
    """Return the names of the second programs."""
    return tuple(program + AGAIN for program in programs)


def in_turn(*programs: str) -> tuple[str, ...]:
    """Return each program followed by its second one, the order in which they must be attached."""
    return tuple(name for program in programs for name in (program, program + AGAIN))


def attach(bpf: BpfObject, *programs: str) -> list[int]:
    """Attach in order and return the links' descriptors; a refusal is Unsupported, and the object is closed."""
    links = []
    for program in programs:
        try:
            links.append(bpf.attach(program))
        except BpfError as error:
            bpf.close()
            raise Unsupported(f"{bpf.name}: {program} cannot be attached: {error.strerror}", _remedy(error)) from error
    return links


def _last_lines(error: BpfError) -> str:
    lines = [line.strip() for line in error.log.splitlines() if line.strip() and not line.startswith("processed")]
    noise = ("libbpf: --", "libbpf: failed to load object", "libbpf: permission error while running as root")
    telling = [line for line in lines if not line.startswith(noise) and ": failed to load: " not in line]
    return "; ".join(telling[-3:]) or str(error)


def _remedy(error: BpfError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return "run as root, or with CAP_BPF and CAP_PERFMON, and check kernel lockdown"
    return ""


def sum_per_cpu(values: NDArray[Any], dtype: np.dtype[Any]) -> dict[str, NDArray[np.uint64]]:
    """Sum per-CPU records of all-u64 fields: shape (n, cpus) to field name -> (n,) or (n, width).

    One pass over a plain u64 view; the record must consist of u64 fields and u64 array fields only.
    """
    count, cpus = values.shape if values.ndim == 2 else (len(values), possible_cpus())
    words = dtype.itemsize // 8
    flat = np.ascontiguousarray(values).view(np.uint64).reshape(count, cpus, words)
    total = flat[:, 0, :].copy() if cpus else np.zeros((count, words), dtype=np.uint64)
    for cpu in range(1, cpus):
        total += flat[:, cpu, :]
    columns: dict[str, NDArray[np.uint64]] = {}
    for name in dtype.names or ():
        field_dtype, offset = dtype.fields[name][:2]  # type: ignore[index]
        width = field_dtype.itemsize // 8
        column = total[:, offset // 8 : offset // 8 + width]
        columns[name] = column[:, 0] if field_dtype.shape == () else column
    return columns
