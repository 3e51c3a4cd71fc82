"""The classifiers of traffic classes: BPF programs of a few instructions, with no maps.

On the link each class has one. It returns -1 (the class that its filter names) for packets of its cgroup and 0 (go on
to the next filter) for others; the kernel frees it with its filter, so no state outlives the filter.

A packet out of another network namespace is routed, and the kernel forgets its socket before it comes to the link. At
the host's end of a namespace's veth it still has it: there a tap writes the class into `tc_index`, which lasts.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from api.plugin import Unsupported
from koordlet.host.traffic.instructions import instruction, load_64

_MOV, _MOV_IMM, _MOV32_IMM, _CALL, _EXIT = 0xBF, 0xB7, 0xB4, 0x85, 0x95
_LOAD_32, _STORE_32, _JUMP_IF_DIFFERENT = 0x61, 0x63, 0x5D
_GET_CGROUP_CLASSID, _SKB_ANCESTOR_CGROUP_ID = 17, 83
"""Helpers' numbers in include/uapi/linux/bpf.h."""
_TC_INDEX = 44
"""Its offset in `struct __sk_buff`."""
_R0, _R1, _R2, _PACKET = 0, 1, 2, 6


@dataclass(frozen=True, slots=True)
class CgroupMatch:
    """Packets of sockets made in a v2 cgroup or below; `level` is its depth, the root's is 0."""

    cgroup_id: int
    level: int

    def instructions(self) -> bytes:
        """Instructions that leave two equal numbers in r0 and r1 for a packet of the cgroup."""
        return b"".join(
            (
                instruction(_MOV, _R1, _PACKET),
                instruction(_MOV_IMM, _R2, value=self.level),
                instruction(_CALL, value=_SKB_ANCESTOR_CGROUP_ID),
                load_64(_R1, self.cgroup_id),
            )
        )


@dataclass(frozen=True, slots=True)
class ClassidMatch:
    """Packets of cgroups with that net_cls.classid."""

    classid: int
    level: int = 0

    def instructions(self) -> bytes:
        """As `CgroupMatch.instructions`."""
        return b"".join(
            (
                instruction(_MOV, _R1, _PACKET),
                instruction(_CALL, value=_GET_CGROUP_CLASSID),
                instruction(_MOV32_IMM, _R1, value=self.classid),
            )
        )


PacketMatch = CgroupMatch | ClassidMatch


def classifier_program(match: PacketMatch, minor: int) -> bytes:
    """Program of a class's filter: takes packets that match, and those that a tap gave to the class."""
    taken = instruction(_MOV_IMM, _R0, value=-1) + instruction(_EXIT)
    return b"".join(
        (
            instruction(_MOV, _PACKET, _R1),
            match.instructions(),
            instruction(_JUMP_IF_DIFFERENT, _R0, _R1, offset=2),
            taken,
            instruction(_LOAD_32, _R0, _PACKET, offset=_TC_INDEX),
            instruction(_MOV_IMM, _R1, value=minor),
            instruction(_JUMP_IF_DIFFERENT, _R0, _R1, offset=2),
            taken,
            instruction(_MOV_IMM, _R0, value=0),
            instruction(_EXIT),
        )
    )


def tap_program(tests: Mapping[int, PacketMatch]) -> bytes:
    """Program of a tap: writes the minor of the first match, the deepest cgroup first, and passes all packets."""
    going_on = instruction(_MOV_IMM, _R0, value=-1) + instruction(_EXIT)
    program = instruction(_MOV, _PACKET, _R1)
    for minor, match in sorted(tests.items(), key=lambda item: (-item[1].level, item[0])):
        program += match.instructions()
        program += instruction(_JUMP_IF_DIFFERENT, _R0, _R1, offset=4)
        program += instruction(_MOV_IMM, _R2, value=minor)
        program += instruction(_STORE_32, _PACKET, _R2, offset=_TC_INDEX)
        program += going_on
    return program + going_on


def load_program(instructions: bytes) -> int:
    """Load a program; return a descriptor for the caller to close. Raises BpfError, or Unsupported without libbpf."""
    from probes.libbpf import load_classifier  # large, and the guardian needs it for no other knob

    return load_classifier("koord_traffic", instructions)


@cache
def missing_support(*, by_classid: bool) -> Unsupported | None:
    """Reason why packets cannot be matched by cgroup here; None if they can. Loads a program and closes it."""
    from probes.libbpf import BpfError

    try:
        os.close(load_program(classifier_program(ClassidMatch(0) if by_classid else CgroupMatch(0, 1), 0)))
    except BpfError as error:
        reason = f"the kernel refuses a classifier by cgroup ({error.strerror})"
        return Unsupported(
            reason, "needs CAP_BPF, CAP_NET_ADMIN and CONFIG_CGROUP_NET_CLASSID or CONFIG_SOCK_CGROUP_DATA"
        )
    except Unsupported as missing:
        return missing
    return None
