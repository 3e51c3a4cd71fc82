"""A place of its own for the guardian: out of the agent's cgroups, and its memory kept from being paged out.

A container's processes are killed with its first one, by their cgroup; so are those of a unit, and on cgroup v2 those
of a container that runs out of memory. Only the standard library: the process that imports it is to stay small.
"""

import contextlib
import ctypes
import os
import resource

CGROUP = "koord-guardian"
"""Below the top of the unified hierarchy, or of v1's memory hierarchy."""
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


def leave_cgroups(root: str) -> str:
    """Leave every cgroup of the agent; return why that failed, empty if it did not.

    In v1's hierarchies of other controllers the top is the place. On v2 a container with a cgroup namespace of its own
    may not leave it: the kernel says ENOENT where the hierarchy is mounted with nsdelegate.
    """
    reason = "no cgroup hierarchy is mounted"
    for mount, kind, options in _cgroup_mounts(root):
        of_its_own = kind == "cgroup2" or "memory" in options
        directory = f"{mount}/{CGROUP}" if of_its_own else mount
        try:
            if of_its_own:
                os.makedirs(directory, mode=0o755, exist_ok=True)
            with open(f"{directory}/cgroup.procs", "w") as stream:  # noqa: PTH123
                stream.write(str(os.getpid()))
        except OSError as error:
            return f"{directory}: {error.strerror}"
        reason = ""
    return reason


def _cgroup_mounts(root: str) -> list[tuple[str, str, list[str]]]:
    """Mount points of cgroup hierarchies, with type and options; the last mount of a hierarchy is the one in sight."""
    with open(f"{root.rstrip('/')}/proc/self/mountinfo", errors="replace") as stream:  # noqa: PTH123
        lines = [line.split() for line in stream]
    found: dict[str, tuple[str, str, list[str]]] = {}
    for fields in lines:
        after = fields[fields.index("-") + 1 :] if "-" in fields else []
        if after and after[0] in ("cgroup", "cgroup2"):
            options = after[2].split(",") if len(after) > 2 else []
            found[fields[2]] = (root.rstrip("/") + fields[4], after[0], options)
    return list(found.values())


def leave_nothing(root: str) -> None:
    """Remove the cgroup of the guardian, whose last process this is. Never raises."""
    try:
        for mount, kind, options in _cgroup_mounts(root):
            if kind == "cgroup2" or "memory" in options:
                with open(f"{mount}/cgroup.procs", "w") as stream:  # noqa: PTH123
                    stream.write(str(os.getpid()))
                os.rmdir(f"{mount}/{CGROUP}")
    except OSError:
        pass


def lock_memory() -> bool:
    """Keep the pages that are in memory there; return whether the kernel agreed."""
    with contextlib.suppress(OSError, ValueError):  # without CAP_SYS_RESOURCE the limit stays, and may suffice
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return bool(ctypes.CDLL(None).mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0)
