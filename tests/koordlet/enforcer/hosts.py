"""Hosts made of plain files: cgroup v1 and v2 trees below a directory, and an enforcer on them."""

import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.frame import CgroupInfo
from api.intents import Intent, Knob, Setting
from api.qos import QoSClass
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks, EnforcerEvent
from koordlet.enforcer.journal import Journal
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.enforcer.writer import Writer
from koordlet.host.files import HostTree
from tests.frames import cgroup_info
from tests.trees import make_tree

V1_FILES = {
    "cpu": {
        "cpu.shares": "1024\n",
        "cpu.cfs_quota_us": "-1\n",
        "cpu.cfs_period_us": "100000\n",
        "cpu.cfs_burst_us": "0\n",
        "cpu.idle": "0\n",
        "cgroup.procs": "",
    },
    "cpuset": {"cpuset.cpus": "0-7\n", "cpuset.mems": "0\n"},
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712\n",
        "memory.usage_in_bytes": "104857600\n",
        "memory.stat": "total_rss 0\ntotal_inactive_file 104857600\n",
        "cgroup.procs": "",
    },
    "blkio": {
        "blkio.bfq.weight": "100\n",
        "blkio.bfq.weight_device": "",
        "blkio.throttle.read_bps_device": "",
        "blkio.throttle.write_bps_device": "",
        "blkio.throttle.read_iops_device": "",
        "blkio.throttle.write_iops_device": "",
    },
    "freezer": {"freezer.state": "THAWED\n"},
}
V2_FILES = {
    "cpu.weight": "100\n",
    "cpu.max": "max 100000\n",
    "cpu.max.burst": "0\n",
    "cpu.idle": "0\n",
    "cpuset.cpus": "\n",
    "cpuset.mems": "\n",
    "cgroup.procs": "",
    "cgroup.freeze": "0\n",
    "memory.min": "0\n",
    "memory.low": "0\n",
    "memory.high": "max\n",
    "memory.max": "max\n",
    "memory.reclaim": "",
    "io.max": "",
    "io.weight": "default 100\n",
}


@dataclass
class Disk:
    """A disk that the journal is written to, as its `write` fault; it may be full."""

    is_full: bool = False

    def write(self, fd: int, content: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "full")
        os.write(fd, content)


@dataclass
class FakeHost:
    """`version` is that of every controller."""

    root: Path
    version: int = 2
    clock: Clocks = field(default_factory=lambda: Clocks(1000.0, 1_800_000_000.0))

    def __post_init__(self) -> None:
        mounts = (
            ["30 25 0:26 / /cg rw - cgroup2 cgroup2 rw"]
            if self.version == 2
            else [f"3{i} 25 0:2{i} / /cg/{name} rw - cgroup cgroup rw,{name}" for i, name in enumerate(V1_FILES)]
        )
        make_tree(
            self.root,
            {
                "proc/self/mountinfo": "\n".join(mounts) + "\n",
                "proc/self/cgroup": "0::/agent\n" if self.version == 2 else "4:cpu:/agent\n",
                "proc/sys/kernel/random/boot_id": "boot-1\n",
                "proc/sys/vm/min_free_kbytes": "1000\n",
                "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            },
        )
        self.make("/")

    @property
    def tree(self) -> HostTree:
        return HostTree(self.root)

    def make(self, path: str) -> None:
        if self.version == 2:
            make_tree(self.root / "cg" / path.strip("/"), V2_FILES)
        else:
            for controller, files in V1_FILES.items():
                make_tree(self.root / "cg" / controller / path.strip("/"), files)

    def file(self, path: str, name: str) -> Path:
        controller = {"freezer": "freezer", "blkio": "blkio"}.get(name.partition(".")[0], name.partition(".")[0])
        below = "cg" if self.version == 2 else f"cg/{controller}"
        return self.root / below / path.strip("/") / name

    def text(self, path: str, name: str) -> str:
        return self.file(path, name).read_text().strip()

    def later(self, seconds: float, *, wall: float | None = None) -> Clocks:
        """Let time pass; `wall` lets the wall clock jump to somewhere else."""
        now = self.clock
        self.clock = Clocks(now.monotonic_seconds + seconds, now.wall_seconds + seconds if wall is None else wall)
        return self.clock

    def settings(self, **changes: Any) -> EnforcerSettings:
        given: dict[str, Any] = {
            "enabled": True,
            "strategies": ("*",),
            "state_dir": str(self.root / "state"),
            "audit_file": str(self.root / "audit.jsonl"),
        }
        return EnforcerSettings(**(given | changes))

    def journal(self, **faults: Any) -> Journal:
        """The journal for an enforcer that is to die, or with injected faults."""
        return Journal(self.root / "state", "boot-1", **faults)

    def enforcer(self, *, journal: Journal | None = None, writer: Writer | None = None, **changes: Any) -> Enforcer:
        return open_enforcer(self.settings(**changes), self.tree, journal=journal, writer=writer, now=self.clock)


def want(knob: Knob, value: str, target: str = "/pod", strategy: str = "calm", **fields: Any) -> Setting:
    return Setting(strategy=strategy, target=target, knob=knob, value=value, reason="because", **fields)


def infos(**classes: QoSClass) -> tuple[CgroupInfo, ...]:
    """Cgroups by path, slashes spelled as two underscores: `kube__pod=QoSClass.BE`."""
    return tuple(
        cgroup_info(number, "/" + name.replace("__", "/"), name, qos.value)
        for number, (name, qos) in enumerate(classes.items(), 1)
    )


def outcomes(events: list[EnforcerEvent]) -> list[tuple[str, str, str]]:
    """(knob, outcome, after) of all that is not merely standing."""
    return [(event.knob, event.outcome.value, event.after) for event in events if event.outcome != Outcome.UNCHANGED]


Intents = list[Intent]


QUOTA = want(Knob.CPU_MAX, "20000 100000")
NO_QUOTA = {1: "-1", 2: "max"}
"""No quota as each version writes it."""


def quota(host: FakeHost, path: str = "/pod") -> str:
    return host.text(path, "cpu.cfs_quota_us" if host.version == 1 else "cpu.max").partition(" ")[0]


def put_quota(host: FakeHost, text: str) -> None:
    name = "cpu.cfs_quota_us" if host.version == 1 else "cpu.max"
    host.file("/pod", name).write_text(text if host.version == 1 else f"{text} 100000")


def audit(host: FakeHost) -> list[dict[str, Any]]:
    path = host.root / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
