"""Ways to protect, compared by the benchmark. Each is set up on two cgroups, called once a second, and removed."""

import contextlib
import os
import time
from abc import ABC
from typing import IO, ClassVar

from koordlet.demo.stage import Stage
from koordlet.host.cgroups.scratch import ScratchCgroup
from tests.waiting import wait_for

PERIOD_US = 100_000
START_SECONDS = 60.0
THRESHOLD_RATIO = 0.65
"""Koordinator's default for the utilization of the node."""


class Column(ABC):
    """One way to protect."""

    name: ClassVar[str]
    with_batch: ClassVar[bool] = True

    def set_up(self, stage: Stage) -> None:  # noqa: B027
        """Set up before the best-effort work starts; by default nothing."""

    def look_after(self, stage: Stage) -> None:  # noqa: B027
        """Adjust, about once a second."""

    def take_down(self, stage: Stage) -> None:
        """Restore the cgroups."""
        lever = ScratchCgroup(stage.layout.batch_lever)
        lever.write_shares(stage.layout.shares.get(lever.path, 1024))
        set_quota(stage.batch, None)


class Alone(Column):
    """No best-effort work."""

    name = "alone"
    with_batch = False


class Unprotected(Column):
    """The weights of the layout: equal ones, but for a pod of the BestEffort class."""

    name = "unprotected"


class Weights(Column):
    """Lowest weight, as the kubelet gives to best-effort pods."""

    name = "static weights"

    def set_up(self, stage: Stage) -> None:
        ScratchCgroup(stage.layout.batch_lever).write_shares(2)


class Idle(Column):
    """The kernel's idle class from start to end, set by hand: what the agent's first rung can reach at most."""

    name = "static idle"

    def set_up(self, stage: Stage) -> None:
        _write_idle(stage, 1)

    def take_down(self, stage: Stage) -> None:
        _write_idle(stage, 0)
        super().take_down(stage)


class Quota(Column):
    """Fixed quota: the rest of the threshold beside a service whose load is known."""

    name = "fixed quota"

    def __init__(self, load: float) -> None:
        self._cores = max((THRESHOLD_RATIO - load) * (os.cpu_count() or 1), 0.1)

    def set_up(self, stage: Stage) -> None:
        set_quota(stage.batch, int(self._cores * PERIOD_US))


class Agent(Column):
    """The agent with some strategies, told only the classes of the two cgroups."""

    strategies: ClassVar[tuple[str, ...]] = ()
    """Strategies whose intents it applies; those of the stage if empty."""
    more_settings: ClassVar[str] = ""

    def __init__(self) -> None:
        self._said: IO[bytes] | None = None

    def set_up(self, stage: Stage) -> None:
        before = stage.strategies, stage.more_settings
        if self.strategies:
            stage.strategies, stage.more_settings = self.strategies, self.more_settings
        log = stage.directory / "koordlet.log"
        already = log.stat().st_size if log.exists() else 0
        self._said = stage.start_agent(acts=True)
        stage.strategies, stage.more_settings = before
        wait_for(lambda: b"measuring with" in log.read_bytes()[already:], START_SECONDS)
        time.sleep(2.0)
        stage.check()

    def look_after(self, stage: Stage) -> None:
        stage.check()
        if self._said is not None:
            self._said.read()

    def take_down(self, stage: Stage) -> None:
        """Stop the agent, which restores what it set."""


class Suppress(Agent):
    """Koordinator's CPU suppress with its cfsQuota policy, as the agent's strategy applies it."""

    name = "suppress rule"
    strategies = ("cpu_suppress",)
    more_settings = """\
[strategies.node_slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
"""


class Ours(Agent):
    """The agent, told only the classes of the two cgroups."""

    name = "koord"


def _write_idle(stage: Stage, value: int) -> None:
    ScratchCgroup(stage.layout.batch_lever).write("cpu.idle", str(value))


def _shares(cgroup: ScratchCgroup) -> str:
    return (
        "cpu.shares" if any((directory / "cpu.shares").exists() for directory in cgroup.directories) else "cpu.weight"
    )


def set_quota(cgroup: ScratchCgroup, quota_us: int | None) -> None:
    """Set a quota for each 100 ms; None removes it."""
    if _shares(cgroup) == "cpu.weight":
        cgroup.write("cpu.max", f"{'max' if quota_us is None else quota_us} {PERIOD_US}")
    else:
        cgroup.write("cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))


def usage_seconds(cgroup: ScratchCgroup) -> float:
    """Return the CPU time of a cgroup so far."""
    for directory in cgroup.directories:
        if (directory / "cpuacct.usage").exists():
            return int((directory / "cpuacct.usage").read_text()) / 1e9
    words = dict(line.split() for line in (cgroup.directories[0] / "cpu.stat").read_text().splitlines())
    return int(words["usage_usec"]) / 1e6


class DiskLimit(Column):
    """Fixed limit on the reads of the best-effort work: a tenth of the disk's rate."""

    name = "fixed quota"

    def __init__(self, device: str, bytes_per_second: int) -> None:
        """`device` is major:minor."""
        self._device, self._limit = device, bytes_per_second

    def set_up(self, stage: Stage) -> None:
        if _shares(stage.batch) == "cpu.weight":
            stage.batch.write("io.max", f"{self._device} rbps={self._limit}")
        else:
            stage.batch.write("blkio.throttle.read_bps_device", f"{self._device} {self._limit}")

    def take_down(self, stage: Stage) -> None:
        if _shares(stage.batch) == "cpu.weight":
            stage.batch.write("io.max", f"{self._device} rbps=max")
        else:
            stage.batch.write("blkio.throttle.read_bps_device", f"{self._device} 0")


class DiskWeights(Column):
    """The lowest IO weight, set by hand: without a scheduler that heeds weights it does nothing."""

    name = "static weights"

    def set_up(self, stage: Stage) -> None:
        _write_io_weight(stage, 1)

    def take_down(self, stage: Stage) -> None:
        _write_io_weight(stage, 100)


def _write_io_weight(stage: Stage, weight: int) -> None:
    """Set the weight of the best-effort work in bfq; nothing where no disk has this scheduler."""
    for name in ("io.bfq.weight", "blkio.bfq.weight"):
        with contextlib.suppress(FileNotFoundError):
            stage.batch.write(name, str(weight))


def disk_columns(device: str, bytes_per_second: int) -> list[Column]:
    """Columns for a disk victim; the suppress rule acts on CPUs only and is shown doing nothing."""
    return [Alone(), Unprotected(), DiskWeights(), Suppress(), DiskLimit(device, bytes_per_second), Ours()]


def columns(load: float) -> list[Column]:
    """All columns, the service alone first."""
    return [Alone(), Unprotected(), Weights(), Idle(), Suppress(), Quota(load), Ours()]
