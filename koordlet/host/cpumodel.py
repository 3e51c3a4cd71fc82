"""The CPU model; baselines are compared within one model only."""

import re

from koordlet.host.files import HostTree


def cpu_model(tree: HostTree) -> str:
    """`model name` of x86, implementer and part of Arm; empty where /proc/cpuinfo says neither."""
    fields = dict(re.findall(r"^([^:\n]+?)\s*:\s*(.+)$", tree.text("/proc/cpuinfo") or "", re.MULTILINE))
    if fields.get("model name"):
        return " ".join(fields["model name"].split())
    parts = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    return f"arm {' '.join(parts)}" if parts else ""
