"""The classifiers of traffic classes: BPF programs of a few instructions, one for each class.

A program says -1 (the class that its filter names) for packets of its cgroup and 0 (ask the next) for others. It has no
map: what stands in the kernel says all, whoever put it there. The kernel frees it with its filter.
"""

import os
import struct
from functools import cache

from api.plugin import Unsupported
from probes.libbpf import BpfError, load_classifier

_MOV_IMM, _MOV32_IMM, _CALL, _EXIT, _LOAD_64, _JUMP_IF_EQUAL = 0xB7, 0xB4, 0x85, 0x95, 0x18, 0x1D
_GET_CGROUP_CLASSID, _SKB_ANCESTOR_CGROUP_ID = 17, 83
"""Helpers' numbers in include/uapi/linux/bpf.h."""
_R0, _R1, _R2 = 0, 1, 2


def of_cgroup(cgroup_id: int, level: int) -> bytes:
    """Takes packets of sockets made in the v2 cgroup of that id or below; `level` is its depth, the root's is 0."""
    wanted = _load_64(_R1, cgroup_id)
    return _instruction(_MOV_IMM, _R2, value=level) + _says_if_equal(_SKB_ANCESTOR_CGROUP_ID, wanted)


def of_mark(classid: int) -> bytes:
    """Takes packets of cgroups whose net_cls.classid is that."""
    return _says_if_equal(_GET_CGROUP_CLASSID, _instruction(_MOV32_IMM, _R1, value=classid))


def _says_if_equal(helper: int, wanted_in_r1: bytes) -> bytes:
    return b"".join(
        (
            _instruction(_CALL, value=helper),
            wanted_in_r1,
            _instruction(_JUMP_IF_EQUAL, _R0, _R1, offset=2),
            _instruction(_MOV_IMM, _R0, value=0),
            _instruction(_EXIT),
            _instruction(_MOV_IMM, _R0, value=-1),
            _instruction(_EXIT),
        )
    )


def _load_64(register: int, value: int) -> bytes:
    low, high = struct.unpack("=ii", struct.pack("=Q", value))
    return _instruction(_LOAD_64, register, value=low) + _instruction(0, value=high)


def _instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """`struct bpf_insn`."""
    return struct.pack("=BBhi", code, target | source << 4, offset, value)


def load(instructions: bytes) -> int:
    """A descriptor of the loaded program, for the caller to close. Raises BpfError, or Unsupported without libbpf."""
    return load_classifier("koord_traffic", instructions)


@cache
def lack(*, by_mark: bool) -> Unsupported | None:
    """Why packets cannot be told apart by cgroup here; None if they can. Loads a program and lets it go."""
    try:
        os.close(load(of_mark(0) if by_mark else of_cgroup(0, 1)))
    except BpfError as error:
        reason = f"the kernel refuses a classifier by cgroup ({error.strerror})"
        return Unsupported(
            reason, "needs CAP_BPF, CAP_NET_ADMIN and CONFIG_CGROUP_NET_CLASSID or CONFIG_SOCK_CGROUP_DATA"
        )
    except Unsupported as missing:
        return missing
    return None
