"""Policing of what arrives for a cgroup: a BPF program on the cgroup drops packets beyond a rate.

Where a packet arrives at the link (clsact, or a queue on an IFB) the socket that will receive it is not known yet, and
behind the veth of a pod never will be (on cgroup v1, where sockets know no cgroup, `veth_policer` polices there). A
program on the cgroup (`cgroup_skb/ingress`) runs when it is, in every network
namespace, for the cgroup and all below it; to a sender it makes no difference where its packet was dropped. No qdisc or
filter is touched, and programs of others on the cgroup run beside it (BPF_F_ALLOW_MULTI, which links imply). The
loopback interface does not count.

The program ends with the agent, which holds its link, and by itself when it was not looked at for the time of `LEASE`:
then it passes everything. So the journal only says that there was one.
"""

import errno
import os
import struct
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.files import HostError
from koordlet.host.traffic.classes import LEAST_RATE_BYTES
from koordlet.host.traffic.instructions import INSTRUCTION_BYTES, instruction, load_64

MAX = "max"
_LEAST_LEASE_SECONDS = 30.0
_LEASE_STEPS = 6
"""Looks at actions are at most five steps apart."""
_BURST_NS = 50_000_000
"""What may come at once: that of 50 ms, and one packet more."""
_SHIFT = 20
"""Binary places of the time that a byte takes."""

_MOV, _MOV_IMM, _ADD, _MULTIPLY, _SHIFT_RIGHT_IMM = 0xBF, 0xB7, 0x0F, 0x2F, 0x77
_LOAD_32, _LOAD_64, _STORE_64, _ADD_ATOMIC = 0x61, 0x79, 0x7B, 0xDB
_JUMP, _JUMP_IF_SAME_IMM, _JUMP_IF_GREATER, _JUMP_IF_NOT_LESS = 0x05, 0x15, 0x2D, 0x3D
_CALL, _EXIT = 0x85, 0x95
_KTIME_GET_NS = 5
"""Number of the helper in include/uapi/linux/bpf.h."""
_LENGTH, _INTERFACE = 0, 40
"""Offsets in `struct __sk_buff`."""
_LOOPBACK = 1
"""LOOPBACK_IFINDEX of every network namespace."""
_MAP_VALUE = 2
"""BPF_PSEUDO_MAP_VALUE: the address of the value of an array's first element."""
_R0, _R1, _R2, _R3, _PACKET, _NOW, _BUCKET = 0, 1, 2, 3, 6, 7, 8


@dataclass(frozen=True, slots=True)
class Answers:
    """Return values of a program: to let a packet go on, and to drop it."""

    passing: int
    dropping: int


OF_CGROUPS = Answers(1, 0)
"""Of programs on cgroups."""
OF_LINKS = Answers(-1, 2)
"""Of classifiers on interfaces: TC_ACT_UNSPEC, which lets the next program decide, and TC_ACT_SHOT."""


def policer_program(rate: int, bucket: int, lease: int, answers: Answers = OF_CGROUPS) -> bytes:
    """Program that passes `rate` bytes a second: a virtual clock that each packet puts forward by its time.

    `bucket` and `lease` are arrays of one u64: the clock, and the nanosecond of CLOCK_MONOTONIC until which it polices.
    Packets on two CPUs at once may both find room; the clock counts both.
    """
    nanoseconds = (10**9 << _SHIFT) // rate
    body: list[bytes | tuple[str, int, int, int, int]] = [
        instruction(_MOV, _PACKET, _R1),
        instruction(_LOAD_32, _R1, _PACKET, offset=_INTERFACE),
        ("pass", _JUMP_IF_SAME_IMM, _R1, 0, _LOOPBACK),
        instruction(_CALL, value=_KTIME_GET_NS),
        instruction(_MOV, _NOW, _R0),
        load_64(_R1, lease, source=_MAP_VALUE),
        instruction(_LOAD_64, _R1, _R1),
        ("pass", _JUMP_IF_GREATER, _NOW, _R1, 0),
        load_64(_BUCKET, bucket, source=_MAP_VALUE),
        instruction(_LOAD_64, _R1, _BUCKET),
        instruction(_JUMP_IF_NOT_LESS, _R1, _NOW, offset=2),
        instruction(_STORE_64, _BUCKET, _NOW),
        instruction(_MOV, _R1, _NOW),
        load_64(_R2, _BURST_NS),
        instruction(_ADD, _R2, _NOW),
        ("drop", _JUMP_IF_GREATER, _R1, _R2, 0),
        instruction(_LOAD_32, _R2, _PACKET, offset=_LENGTH),
        load_64(_R3, nanoseconds),
        instruction(_MULTIPLY, _R2, _R3),
        instruction(_SHIFT_RIGHT_IMM, _R2, value=_SHIFT),
        instruction(_ADD_ATOMIC, _BUCKET, _R2),
    ]
    end = {"pass": b"", "drop": b""}
    end["pass"] = instruction(_MOV_IMM, _R0, value=answers.passing) + instruction(_EXIT)
    end["drop"] = instruction(_MOV_IMM, _R0, value=answers.dropping) + instruction(_EXIT)
    places = [0]
    for one in body:
        places.append(places[-1] + (len(one) // INSTRUCTION_BYTES if isinstance(one, bytes) else 1))
    targets = {"pass": places[-1], "drop": places[-1] + 2}
    program = b""
    for place, one in zip(places, body, strict=False):
        if isinstance(one, bytes):
            program += one
        else:
            label, code, target, source, value = one
            program += instruction(code, target, source, targets[label] - place - 1, value)
    return program + end["pass"] + end["drop"]


@cache
def missing_support() -> Unsupported | None:
    """Reason why nothing can be policed here; None if it can. Loads a program and closes it."""
    opened: list[int] = []
    try:
        from probes.libbpf import create_array, load_cgroup_filter

        opened += [create_array("koord_bucket", 8), create_array("koord_lease", 8)]
        opened.append(load_cgroup_filter("koord_police", policer_program(LEAST_RATE_BYTES, opened[0], opened[1])))
    except Unsupported as missing:
        return missing
    except OSError as error:
        reason = f"the kernel refuses a program on what arrives for a cgroup ({error.strerror})"
        return Unsupported(reason, "needs CAP_BPF, CAP_NET_ADMIN and CONFIG_CGROUP_BPF")
    finally:
        for fd in opened:
            os.close(fd)
    return None


@dataclass(slots=True)
class Lease:
    """Time without a look in which programs police."""

    seconds: float = _LEAST_LEASE_SECONDS

    def follow(self, interval_seconds: float) -> None:
        """Be longer than the time between two looks, for steps that are so far apart."""
        self.seconds = max(_LEAST_LEASE_SECONDS, _LEASE_STEPS * interval_seconds)


LEASE = Lease()
"""Of this process."""


@dataclass(frozen=True, slots=True)
class _Policer:
    inode: int
    rate: int
    link: int
    lease: int

    def close(self) -> None:
        for fd in (self.link, self.lease):
            os.close(fd)


_policers: dict[str, _Policer] = {}
"""Of this process, by the directory of the cgroup."""


@dataclass(frozen=True, slots=True)
class CgroupPolicer:
    """What arrives for the cgroup `directory` of the unified hierarchy."""

    directory: Path

    def end_unless(self, inode: int) -> None:
        """End the program of a cgroup that was here before the one of this inode, 0 for none."""
        policer = _policers.get(str(self.directory))
        if policer is not None and policer.inode != inode:
            _policers.pop(str(self.directory)).close()

    def read(self) -> frozenset[str] | None:
        """The rate in bytes a second, `max` where this process polices nothing; None if the cgroup is gone.

        Each look renews the program's lease.
        """
        try:
            inode = self.directory.stat().st_ino
        except OSError:
            inode = 0
        self.end_unless(inode)
        if not inode:
            return None
        policer = _policers.get(str(self.directory))
        if policer is None:
            return frozenset((MAX,))
        renew(policer.lease)
        return frozenset((str(policer.rate),))

    def write(self, value: str) -> None:
        """Police, at another rate, or no more for `max`. Raises HostError."""
        key, old = str(self.directory), _policers.get(str(self.directory))
        if value == MAX:
            if old is not None:
                _policers.pop(key).close()
            return
        fresh = self._attach(int(value))
        _policers[key] = fresh
        if old is not None:
            old.close()

    def _attach(self, rate: int) -> _Policer:
        from probes.libbpf import attach_to_cgroup_arrivals, create_array, load_cgroup_filter

        opened: list[int] = []
        try:
            directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.append(directory)
            for name in ("koord_bucket", "koord_lease"):
                opened.append(create_array(name, 8))
            _, bucket, lease = opened
            renew(lease)
            opened.append(load_cgroup_filter("koord_police", policer_program(rate, bucket, lease)))
            link = attach_to_cgroup_arrivals(opened[-1], directory)
            opened.remove(lease)
            return _Policer(os.fstat(directory).st_ino, rate, link, lease)
        except OSError as error:
            raise HostError(self.directory, "police what arrives for", error.errno or errno.EIO) from error
        finally:
            for fd in opened:
                os.close(fd)


def renew(lease: int) -> None:
    """Let programs with this lease police on; `lease` is the array's descriptor."""
    from probes.libbpf import set_array_value

    until = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(LEASE.seconds * 1e9)
    set_array_value(lease, struct.pack("=Q", until))
