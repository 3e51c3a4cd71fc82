"""What a node changes on its machine: a bridge, sysctls, directories, mounts and cgroups; and how that is undone."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cluster_e2e.record import RECORD, Record

BRIDGE = "koordtest0"
NODE_ADDRESS = "10.245.7.1"
POD_SUBNET = "10.245.7.0/24"
CGROUP_ROOT = Path("/sys/fs/cgroup")
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
)
"""Settings that kubelet and CNI plugins change."""
DIRECTORIES = (
    "/var/lib/kubelet",
    "/run/containerd",
    "/var/log/containers",
    "/var/log/pods",
    "/var/lib/cni",
    "/run/netns",
    "/etc/cni",
)
"""Directories that kubelet, containerd and CNI plugins use whatever their settings say."""
TOP_CGROUPS = ("kubepods", "kubepods.slice", "k8s.io")


class MachineBusyError(Exception):
    """A kubelet of someone else runs here."""


def prepare(record: Record) -> None:
    """Note the machine's state, then make the bridge. Raises MachineBusyError."""
    populated = [path for path in _top_cgroups(TOP_CGROUPS) if _has_processes(path)]
    if populated:
        raise MachineBusyError(f"a kubelet runs on this machine already: {populated[0]} has processes")
    record.sysctls = {name: Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}
    record.remove = [name for name in DIRECTORIES if not Path(name).exists()]
    record.bridge, record.cgroups = BRIDGE, list(TOP_CGROUPS)
    record.save()
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{NODE_ADDRESS}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def restore(record: Record) -> None:
    """Undo everything, with all processes gone; what is not there any more is no error."""
    below = (record.directory, *record.remove)
    for mount in sorted(_mounts(), reverse=True):
        if any(mount == root or mount.startswith(f"{root}/") for root in below):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
    if record.bridge:
        subprocess.run(["ip", "link", "delete", record.bridge], check=False, capture_output=True)
    for top in _top_cgroups(record.cgroups):
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
    for name, value in record.sysctls.items():
        Path("/proc/sys", name).write_text(value)
    for name in below:
        shutil.rmtree(name, ignore_errors=True)
    RECORD.unlink(missing_ok=True)


def leftovers(record: Record) -> list[str]:
    """Return what of the node is still on the machine: empty after `restore`."""
    found = [f"cgroup {path}" for path in _top_cgroups(record.cgroups)]
    found += [f"mount {mount}" for mount in _mounts() if mount.startswith(f"{record.directory}/")]
    found += [f"link {record.bridge}"] if Path("/sys/class/net", record.bridge or "-").exists() else []
    found += [f"directory {name}" for name in (record.directory, *record.remove) if Path(name).exists()]
    changed = {name: Path("/proc/sys", name).read_text().strip() for name in record.sysctls}
    found += [f"sysctl {name}" for name, value in record.sysctls.items() if changed[name] != value]
    return found + [f"process {each.name}" for each in record.started if each.is_alive]


def may_lower_oom_score() -> bool:
    """Return whether this machine grants CAP_SYS_RESOURCE, which the oom_score_adj of a pause container needs."""
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> 24 & 1)


def _top_cgroups(names: tuple[str, ...] | list[str]) -> list[Path]:
    roots = [CGROUP_ROOT, *(path for path in CGROUP_ROOT.iterdir() if path.is_dir())]
    return [path for root in roots for name in names if (path := root / name).is_dir()]


def _has_processes(top: Path) -> bool:
    # A kubelet that has ended leaves its cgroups behind, empty; they are no hindrance.
    return any(path.read_text().strip() for path in top.rglob("cgroup.procs"))


def _mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        yield line.split()[4].encode().decode("unicode_escape")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
