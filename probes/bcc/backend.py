"""Backend of a BPF probe: the CO-RE object, or a program that BCC compiles on the node."""

import importlib
from collections.abc import Mapping
from typing import Literal, cast

from api.plugin import Unsupported
from probes.probe import BpfProbe, Kernel, Probe, ProbeLimits

Backend = Literal["auto", "core", "bcc", "none"]

COMPILED: Mapping[str, tuple[str, str]] = {
    "cpu": ("probes.bcc.cpu", "BccCpu"),
    "memory": ("probes.bcc.memory", "BccMemory"),
    "blockio": ("probes.bcc.blockio", "BccBlockIo"),
}
"""Module and class of each probe that BCC can compile, imported when chosen."""


def open_probe(kind: type[Probe], kernel: Kernel, limits: ProbeLimits, backend: Backend) -> tuple[Probe, str]:
    """Open by the backend that the settings and the kernel leave; returns the probe and a description of its source.

    `auto` is CO-RE, or BCC where the kernel has no BTF. Raises Unsupported with the reasons against each backend tried.
    """
    if not issubclass(kind, BpfProbe):
        return kind.open(kernel, limits), "read from the host"
    if backend == "bcc":
        return _compiled(kind, kernel, limits), "measured in the kernel by BPF, compiled by BCC as set"
    try:
        _ = kernel.btf
    except Unsupported as no_btf:
        if backend == "core" or kind.name not in COMPILED:
            raise
        return _instead(
            kind, kernel, limits, no_btf
        ), f"measured in the kernel by BPF, compiled by BCC: {no_btf.reason}"
    return kind.open(kernel, limits), "measured in the kernel by BPF (CO-RE)"


def _instead(kind: type[BpfProbe], kernel: Kernel, limits: ProbeLimits, no_btf: Unsupported) -> Probe:
    try:
        return _compiled(kind, kernel, limits)
    except Unsupported as no_bcc:
        reason = f"{no_btf.reason}, and BCC cannot help: {no_bcc.reason}"
        raise Unsupported(reason, no_bcc.remedy or no_btf.remedy) from no_bcc


def _compiled(kind: type[BpfProbe], kernel: Kernel, limits: ProbeLimits) -> Probe:
    if kind.name not in COMPILED:
        raise Unsupported(f"BCC compiles only {', '.join(COMPILED)}", 'set [probes] backend = "auto"')
    module, name = COMPILED[kind.name]
    compiled = cast(type[Probe], getattr(importlib.import_module(module), name))
    return compiled.open(kernel, limits)
