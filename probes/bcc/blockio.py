"""Block IO from a program compiled on the node: the columns of `probes.blockio` but throttle time.

The cgroup on a bio and a limit's hold are private to the block layer. What a kernel thread submits for a cgroup
(writeback, IO that `io.max` held back) is charged to `KERNEL_ID`, and `Kernel.refusals` says so.
"""

from collections.abc import Mapping

from probes import blockio
from probes.bcc import loader
from probes.probe import Kernel, ProbeLimits

PROGRAMS: Mapping[str, str] = {program: point for point, program in blockio.TRACEPOINTS.items()}
WHY_UNMEASURED = (
    "header packages do not describe the cgroup of a bio; writeback and IO held by a limit are the kernel's"
)


class BccBlockIo(blockio.BlockIo):
    """Needs raw tracepoints and the block tracepoints as they are since 5.11."""

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "BccBlockIo":
        """Compile and attach; the end of an IO before its beginning."""
        constants = {
            "NUM_LOST_PLACES": len(blockio.LOST_PLACES),
            "MAX_CGROUPS": 2 * limits.max_cgroups,
            "MAX_PAIRS": limits.max_pairs,
        }
        maps = ("cgroups", "blame", "ios", "disks", "usual", "lost")
        bpf = loader.load(loader.Source("blockio", PROGRAMS, maps, constants))
        loader.attach(bpf, *PROGRAMS)
        kernel.refusals["blockio.throttle_ns"] = WHY_UNMEASURED
        return cls(bpf, throttle=False)
