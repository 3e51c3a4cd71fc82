"""Emulated CPUs, on which tests of real time do not apply."""

from pathlib import Path


def why_no_real_time() -> str:
    """Return why limits in real seconds cannot be kept here; empty on a real CPU."""
    if "QEMU TCG" in Path("/proc/cpuinfo").read_text():
        return "an emulated CPU is twenty times slower than limits in real seconds allow for"
    return ""
