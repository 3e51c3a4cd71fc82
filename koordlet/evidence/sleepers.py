"""Threads that slept through a whole measurement in the kernel, uninterruptibly: a hung disk, a lost server.

No switch of theirs was seen, so the kernel is asked where they sleep. Threads that wait for events are left out: most
threads of a service do so, and it costs nothing.
"""

import re
from pathlib import Path

from koordlet.evidence.plan import NamedStack
from koordlet.evidence.symbolizer import KERNEL_SUFFIX
from koordlet.host.cgroups.processes import tids_below
from koordlet.host.files import HostTree
from koordlet.host.process_files import text_of
from probes.stacks import Sample, SampleKind, Samples

MAX_THREADS = 64
_FRAME = re.compile(r"^\[<[^>]*>\] ([^+\s]+)", re.MULTILINE)


def sleepers_below(tree: HostTree, directory: Path, cgroup: int, samples: Samples) -> list[NamedStack]:
    """A stack for each such thread of the cgroup at `directory`; it counts for `cgroup`."""
    unseen = sorted(tids_below(directory) - samples.seen_tids)
    found = []
    for tid in unseen:
        name, state, tgid = _status(tree, tid)
        if state != "D":
            continue
        frames = tuple(f"{function}{KERNEL_SUFFIX}" for function in reversed(kernel_functions(tree, tid)))
        sample = Sample(cgroup, tgid, SampleKind.BLOCKED, 1, round(samples.seconds * 1e9), (), (), taken=True)
        found.append(NamedStack(sample, (name, *frames), 0))
        if len(found) == MAX_THREADS:
            break
    return found


def kernel_functions(tree: HostTree, tid: int) -> list[str]:
    """Functions of a sleeping thread's kernel stack, innermost first; empty where the kernel does not say."""
    return _FRAME.findall(text_of(tree, tid, "stack"))


def _status(tree: HostTree, tid: int) -> tuple[str, str, int]:
    """Name, state and process of a thread; empty where it is gone."""
    fields = dict(line.split(":\t", 1) for line in text_of(tree, tid, "status").splitlines() if ":\t" in line)
    return fields.get("Name", ""), fields.get("State", "")[:1], int(fields.get("Tgid", "0"))
