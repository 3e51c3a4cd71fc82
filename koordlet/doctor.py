"""Capabilities of this host: each with yes or no, the reason, and the remedy of each no."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.plugin import Unsupported
from detector.baselines.values import BaselinePolicy
from koordlet.agent.agent import Agent
from koordlet.agent.baseline_store import read_baselines, refused_files
from koordlet.agent.plugins import discover_collectors, discover_probes
from koordlet.config import AgentSettings, DetectionSettings
from koordlet.devices.settings import DeviceSettings
from koordlet.devices.sources import GPUS, NICS, DeviceSources
from koordlet.host.files import HostTree
from koordlet.kubelet.examination import examine_cluster
from koordlet.kubelet.opening import node_name
from probes import libbpf
from probes.probe import Kernel

_CPU_BLAME = "cpu"
_KERNEL = "kernel"
_SCHED_EXT = "/sys/kernel/sched_ext"
OLDEST_KERNEL = (6, 1)
"""The oldest one that the programs are tested on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One capability of this host."""

    name: str
    available: bool
    reason: str
    remedy: str = ""


def examine(settings: AgentSettings, *, node: str = "", kubeconfig: str = "") -> list[Finding]:
    """Query the kernel and the cluster, and open every probe and collector."""
    tree = HostTree(Path(settings.root))
    findings = [*_kernel_findings(tree), *_baseline_findings(settings.detection)]
    findings += _cluster_findings(settings, tree, node, kubeconfig)
    findings += device_findings(settings.devices, tree)
    try:
        agent = Agent(settings)
    except Unsupported as reason:
        return [*findings, Finding("cgroups", available=False, reason=reason.reason, remedy=reason.remedy)]
    try:
        version = (
            f"cgroup v{agent.hierarchies.version}{' with a v2 tree beside it' if agent.hierarchies.hybrid else ''}"
        )
        findings.append(
            Finding("cgroups", available=True, reason=f"{version}, cpu controller at {agent.hierarchies.cpu}")
        )
        for name in (*discover_probes(), *discover_collectors()):
            refused = agent.unsupported.get(name)
            if refused:
                findings.append(Finding(name, available=False, reason=refused.reason, remedy=refused.remedy))
            else:
                findings.append(Finding(name, available=True, reason=_source_of(agent, name)))
        findings.extend(Finding(name, available=False, reason=why) for name, why in sorted(agent.probes.partly.items()))
    finally:
        agent.close()
    return findings


def _source_of(agent: Agent, name: str) -> str:
    return agent.probes.sources.get(name, "read from kernel files")


def _kernel_findings(tree: HostTree) -> list[Finding]:
    findings = [kernel_finding((tree.text("/proc/sys/kernel/osrelease") or "unknown").strip())]
    root = os.geteuid() == 0
    findings.append(
        Finding(
            "privilege",
            available=root,
            reason="root" if root else f"uid {os.geteuid()}",
            remedy="" if root else "run as root",
        )
    )
    try:
        findings.append(Finding("libbpf", available=True, reason=libbpf.version()))
    except Unsupported as reason:
        findings.append(Finding("libbpf", available=False, reason=reason.reason, remedy=reason.remedy))
    try:
        _ = Kernel().btf
        findings.append(Finding("btf", available=True, reason="the kernel has BTF of its own types"))
    except Unsupported as reason:
        findings.append(Finding("btf", available=False, reason=reason.reason, remedy=reason.remedy))
    return [*findings, *scheduler_findings(tree)]


def kernel_finding(release: str) -> Finding:
    """Whether the programs are tested on a kernel of this release; one that names no version is not judged."""
    version = re.match(r"(\d+)\.(\d+)", release)
    if version is None or (int(version[1]), int(version[2])) >= OLDEST_KERNEL:
        return Finding(_KERNEL, available=True, reason=release)
    oldest = ".".join(map(str, OLDEST_KERNEL))
    reason = f"{release}: older than {oldest}, the oldest kernel that Koord is tested on"
    return Finding(_KERNEL, available=False, reason=reason, remedy=f"use Linux {oldest} or later")


def scheduler_findings(tree: HostTree) -> list[Finding]:
    """A scheduler in BPF in the place of the kernel's own: its queues are not known, so neither is who held them up."""
    if (tree.text(f"{_SCHED_EXT}/state") or "").strip() != "enabled":
        return []
    name = (tree.text(f"{_SCHED_EXT}/root/ops") or "").strip() or "of an unknown name"
    reason = f"a scheduler in BPF runs ({name}): a task may wait in a queue of several CPUs, and blame is of one CPU's"
    return [Finding("cpu-blame-by-cpu", available=False, reason=reason, remedy="end the scheduler to have blame right")]


def _cluster_findings(settings: AgentSettings, tree: HostTree, node: str, kubeconfig: str) -> list[Finding]:
    """What of the API server, the kubelet and the container runtime is reachable."""
    name = node_name(node or settings.cluster.node_name)
    file = kubeconfig or settings.cluster.kubeconfig
    return [
        Finding(each.name, each.available, each.reason, each.remedy)
        for each in examine_cluster(settings.kubelet, tree, node=name, kubeconfig=file)
    ]


def device_findings(settings: DeviceSettings, tree: HostTree) -> list[Finding]:
    """Devices for the scheduler: GPUs and RDMA NICs in any case, other kinds where there are some."""
    sources = DeviceSources(settings, tree)
    try:
        inventory = sources.look()
    finally:
        sources.close()
    findings = []
    for source in (GPUS, NICS):
        if source in inventory.unsupported:
            refused = inventory.unsupported[source]
            findings.append(Finding(source, available=False, reason=refused.reason, remedy=refused.remedy))
    for kind in sorted({device.info.type for device in inventory.devices}):
        devices = [device for device in inventory.devices if device.info.type == kind]
        ill = [f"{device.info.id}: {device.fault or device.fault_code}" for device in devices if not device.healthy]
        models = sorted({f"{device.model} ({device.vendor})" for device in devices if device.model})
        text = "; ".join([f"{len(devices)} found", *models, *ill])
        remedy = f"look at the kernel log for {kind} devices" if ill else ""
        findings.append(Finding(f"{kind}-devices", available=not ill, reason=text, remedy=remedy))
    return findings


def _baseline_findings(settings: DetectionSettings) -> list[Finding]:
    """State of the baseline file, which is only read."""
    if not settings.enabled or not settings.baselines_file:
        return []
    path = Path(settings.baselines_file)
    found, aside = read_baselines(path, time.time(), BaselinePolicy()), refused_files(path)
    more = f"; refused before: {', '.join(each.name for each in aside)}" if aside else ""
    if found.refused:
        remedy = "none needed: the agent renames the file and learns anew"
        return [Finding("baselines", available=False, reason=f"{path}: {found.refused}{more}", remedy=remedy)]
    if found.baselines is None:
        return [Finding("baselines", available=True, reason=f"none yet at {path}{more}")]
    return [Finding("baselines", available=True, reason=f"{len(found.baselines)} in {path}{more}")]


def has_cpu_blame(findings: list[Finding]) -> bool:
    """Return whether lost CPU time can be measured with cause and culprit, on a kernel where that is tested."""
    available = {finding.name for finding in findings if finding.available}
    return {_CPU_BLAME, _KERNEL} <= available


def as_json(findings: list[Finding]) -> dict[str, Any]:
    """The findings as one JSON object (`koord.doctor/v1`)."""
    return {
        "schema": "koord.doctor/v1",
        "cpu_blame_available": has_cpu_blame(findings),
        "capabilities": [
            {"name": f.name, "available": f.available, "reason": f.reason, "remedy": f.remedy or None} for f in findings
        ],
    }
