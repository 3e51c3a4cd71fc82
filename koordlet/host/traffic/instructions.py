"""BPF instructions as bytes, for the few programs that are made at run time. Pure."""

import struct

INSTRUCTION_BYTES = 8
_LOAD_64 = 0x18


def instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """`struct bpf_insn`."""
    return struct.pack("=BBhi", code, target | source << 4, offset, value)


def load_64(register: int, value: int, source: int = 0) -> bytes:
    """The one instruction of two slots: a number of 64 bits, or what `source` says that a descriptor stands for."""
    low, high = struct.unpack("=ii", struct.pack("=Q", value))
    return instruction(_LOAD_64, register, source, value=low) + instruction(0, value=high)
