"""Specification of a knob: its values, scope, files, write order and remedies. The rows are in `table.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from api.cgroup_path import path_text
from api.plugin import Unsupported
from koordlet.host.attribute_formats import Format, Layout, canonical
from koordlet.host.attributes import KernelFile, ProcessFiles
from koordlet.host.cgroups.controllers import Assignment, ControllerDirectories
from koordlet.host.files import HostTree
from koordlet.host.knobs.traffic import TrafficKnob
from koordlet.host.knobs.values import Amount, ValueSyntax


class Scope(Enum):
    """Kind of object that a setting's target names, and that its value applies to."""

    CGROUP = "cgroup"
    ROOT_CGROUP = "root cgroup"
    """Only the root cgroup has it, for the whole host."""
    PROCESSES = "processes"
    """Of the target cgroup and of all below it."""
    RESCTRL_GROUP = "resctrl group"
    HOST = "host"
    NODE = "node object"


class Order(Enum):
    """Relation between the size of a value and what it grants its target."""

    LARGER_IS_WIDER = "larger is wider"
    SMALLER_IS_WIDER = "smaller is wider"
    UNORDERED = "unordered"


class WritePhase(Enum):
    """Turn of a knob among the writes of one step."""

    BY_LEVEL = "by level"
    """Widened parents first, then tightened children first."""
    TIGHTENED_FIRST = "tightened first"
    """Before everything else when it tightens, after everything else when it widens."""
    WIDENED_FIRST = "widened first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class KnobFile:
    """A kernel file of a knob and the format of its text."""

    name: str
    format: Format


@dataclass(frozen=True, slots=True)
class Lack:
    """Reason and remedy where a kernel or host has no such knob."""

    reason: str
    remedy: str

    def error(self) -> Unsupported:
        """The exception to raise."""
        return Unsupported(self.reason, self.remedy)


@dataclass(frozen=True, slots=True)
class KnobHost:
    """The parts of a host that knobs are looked up in."""

    tree: HostTree
    directories: ControllerDirectories
    resctrl: Path
    """Mount point of resctrl."""
    traffic: TrafficKnob


Assign = Callable[[KnobHost, "KnobSpec", str, str], tuple[Assignment, ...]]
"""From target and value to the assignments; raises Unsupported, CgroupGone, ValueError or HostError."""


def assign_file(host: KnobHost, spec: "KnobSpec", target: str, value: str) -> tuple[Assignment, ...]:
    """The knob's one file, whole."""
    (file,) = spec.files(host)
    return (Assignment(spec.kernel_file(host, target, file), canonical(file.format, value)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSpec:
    """One row of the table of knobs."""

    values: ValueSyntax
    order: Order
    controller: str
    """Cgroup controller in whose hierarchy the files or the processes are; empty where the knob is of no cgroup."""
    v2: tuple[KnobFile, ...]
    """Files under cgroup v2, or wherever they are; empty where the agent cannot set it."""
    v1: tuple[KnobFile, ...]
    probe: str
    """Valid value that tests for support on a host; it is never written."""
    scope: Scope = Scope.CGROUP
    write_phase: WritePhase = WritePhase.LAST
    may_widen_protected: bool = False
    """True if a protected cgroup may be given more by it."""
    assign: Assign = assign_file
    lack: Lack | None = None
    """None: the message names the missing file and its controller."""
    lack_v1: Lack | None = None
    """In place of `lack` where the controller is on cgroup v1."""

    @property
    def targets_cgroup(self) -> bool:
        """Return whether a setting's target is the path of a cgroup."""
        return self.scope in (Scope.CGROUP, Scope.ROOT_CGROUP, Scope.PROCESSES)

    def amount(self, text: str) -> Amount:
        """Size of a valid value, larger for one that grants more; None where values have no order."""
        if self.order == Order.UNORDERED:
            return None
        size = self.values.amount(text)
        return -size if self.order == Order.SMALLER_IS_WIDER and isinstance(size, float) else size

    def files(self, host: KnobHost) -> tuple[KnobFile, ...]:
        """Files under the version of cgroups that the controller is mounted with."""
        return self.v1 if host.directories.is_v1(self.controller) else self.v2

    def kernel_file(
        self, host: KnobHost, target: str, file: KnobFile, layout: Layout = Layout.WHOLE, item: str = ""
    ) -> KernelFile:
        """A file of the target cgroup; raises Unsupported where the kernel does not offer it, or CgroupGone."""
        path = host.directories.directory(self.controller, target) / file.name
        if not path.exists():
            lack = (self.lack_v1 if host.directories.is_v1(self.controller) else None) or self.lack
            raise (lack or Lack(f"there is no {path}", f"enable the {self.controller} controller there")).error()
        return KernelFile(path_text(str(path)), file.format, layout, item)


def assign_process_file(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """`/proc/<pid>/<name>` of every process below the target."""
    (file,) = spec.files(host)
    directory = host.directories.directory(spec.controller, target)
    attribute = ProcessFiles(path_text(str(directory)), str(host.tree.path("/proc")), file.name.rpartition("/")[2])
    return (Assignment(attribute, canonical(file.format, value)),)


def assign_nothing(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:  # noqa: ARG001
    """Raise Unsupported: no kernel file sets the knob."""
    raise (spec.lack or Lack("the agent cannot set it", "")).error()
