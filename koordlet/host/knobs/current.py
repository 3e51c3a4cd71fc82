"""Present values of knobs, in the syntax of cgroup v2 whatever the host has."""

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.files import KeptFiles
from koordlet.host.knobs.knobs import CgroupGone, Knobs


def current(knobs: Knobs, knob: Knob, target: str) -> str:
    """`cpu.max` or `cpuset.cpus` of a cgroup.

    Raises Unsupported, CgroupGone, OSError, and ValueError for other knobs.
    """
    if knob is Knob.CPUSET_CPUS:
        return (knobs.directory("cpuset", target) / "cpuset.cpus").read_text().strip()
    if knob is not Knob.CPU_MAX:
        raise ValueError(f"{knob} is not read here")
    directory = knobs.directory("cpu", target)
    unified = directory / "cpu.max"
    if unified.exists():
        return unified.read_text().strip()
    return _quota((directory / "cpu.cfs_quota_us").read_text(), (directory / "cpu.cfs_period_us").read_text())


class CurrentKnobs:
    """The same of many cgroups, tick by tick: their files stay open, and each read is one system call."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self._files: dict[str, KeptFiles] = {}
        self._known: set[str] = set()
        weakref.finalize(self, _close, self._files)

    def read(self, knob: Knob, target: str) -> str:
        """As `current`; raises the same."""
        self._known.add(target)
        if knob is Knob.CPUSET_CPUS:
            return self._text("cpuset", "cpuset.cpus", target)
        if knob is not Knob.CPU_MAX:
            raise ValueError(f"{knob} is not read here")
        if not self._knobs.is_v1("cpu"):
            return self._text("cpu", "cpu.max", target)
        return _quota(self._text("cpu", "cpu.cfs_quota_us", target), self._text("cpu", "cpu.cfs_period_us", target))

    def of(self, target: str, knobs: Sequence[Knob]) -> Mapping[Knob, str]:
        """Return these knobs of a cgroup, each read when it is asked for first; one that cannot be read is absent."""
        return _OnDemand(self, target, knobs)

    def keep(self, targets: Collection[str]) -> None:
        """Close the files of all other cgroups."""
        for gone in self._known.difference(targets):
            for files in self._files.values():
                files.drop(gone)
        self._known.intersection_update(targets)

    def _text(self, controller: str, name: str, target: str) -> str:
        files = self._files.get(name)
        if files is None:
            files = self._files[name] = KeptFiles(self._knobs.directory(controller, "/"), name)
        content = files.read(target)
        if content is None:  # a file that was kept may be of a cgroup that was removed and made anew
            content = files.read(target)
        if content is None:
            raise CgroupGone(target)
        return content.decode(errors="replace").strip()


class _OnDemand(Mapping[Knob, str]):
    __slots__ = ("_current", "_knobs", "_read", "_target")

    def __init__(self, current: CurrentKnobs, target: str, knobs: Sequence[Knob]) -> None:
        self._current, self._target, self._knobs = current, target, knobs
        self._read: dict[Knob, str | None] = {}

    def __getitem__(self, knob: Knob) -> str:
        if knob not in self._read:
            self._read[knob] = self._ask(knob)
        value = self._read[knob]
        if value is None:
            raise KeyError(knob)
        return value

    def _ask(self, knob: Knob) -> str | None:
        if knob not in self._knobs:
            return None
        try:
            return self._current.read(knob, self._target)
        except (Unsupported, CgroupGone, OSError, ValueError):
            return None

    def __iter__(self) -> Iterator[Knob]:
        return (knob for knob in self._knobs if knob in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _close(files: Mapping[str, KeptFiles]) -> None:
    for each in files.values():
        each.close()


def _quota(quota: str, period: str) -> str:
    return f"{quota.strip() if int(quota) > 0 else 'max'} {int(period)}"
