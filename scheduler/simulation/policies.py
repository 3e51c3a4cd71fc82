"""Placement policies by name, as settings of the same scheduler: what packs, what spreads, what saves whole GPUs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from api.kube.resources import CPU
from api.protocol import GPU
from scheduler.profile import SchedulerSettings, available
from scheduler.simulation.trace import PodShape

POLICIES = ("best-fit", "packing", "spreading", "gradient", "look-ahead")

GPU_STRATEGIES = {
    "best-fit": "BestFit",
    "packing": "MostAllocated",
    "spreading": "LeastAllocated",
    "gradient": "Fragmentation",
    "look-ahead": "Fragmentation",
}
LOOK_AHEAD_NODES = 8
"""Nodes of the least gradient that `look-ahead` fills up."""


def mix_of(pods: Sequence[PodShape]) -> list[dict[str, Any]]:
    """The distribution of task types of these pods, as DeviceShare's setting `workload`."""
    kinds = Counter((pod.cpu_millicores, pod.gpus, pod.gpu_percent, pod.models) for pod in pods)
    return [
        {"cpu_millicores": cpu, "gpus": gpus, "gpu_percent": percent, "models": list(models), "weight": float(count)}
        for (cpu, gpus, percent, models), count in kinds.items()
    ]


def gpu_policy(name: str, pods: Sequence[PodShape], *, seed: int = 0, learn: bool = False) -> SchedulerSettings:
    """Settings under which GPUs alone decide the score, by one policy of POLICIES.

    `learn` lets gradient and look-ahead find the mix from arrivals instead of taking the mix of `pods`.
    """
    device: dict[str, Any] = {"scoring_strategy": GPU_STRATEGIES[name], "weight": 1}
    if GPU_STRATEGIES[name] == "Fragmentation" and not learn:
        device["workload"] = mix_of(pods)
    if name == "look-ahead":
        device["look_ahead"] = LOOK_AHEAD_NODES
    fit: dict[str, Any] = {"weight": 0}
    if name in ("packing", "spreading"):
        fit = {"weight": 1, "strategy": GPU_STRATEGIES[name], "resources": {CPU: 1, GPU: 1}}
    return SchedulerSettings(plugins=only({"deviceshare": device, "noderesourcesfit": fit}), seed=seed)


ESSENTIAL = frozenset(
    {"prioritysort", "defaultbinder", "nodeaffinity", "nodename", "nodeunschedulable", "tainttoleration"}
)
"""Plugins of every policy beside those that it names: the queue's order, selectors and the binding."""


def only(plugins: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """`plugins` and the essential ones, whose scores do not count; everything else is off."""
    rest = {module: {"weight": 0} if module in ESSENTIAL else {"enabled": False} for module in available()}
    return rest | plugins


DAY_WEIGHTS = {
    "request-only": (0, 0),
    "load-aware": (1, 0),
    "load-aware, interference": (1, 1),
    "load-aware x16, interference": (16, 1),
}
"""Weights of LoadAwareScheduling and InterferenceAware; 0 turns the plugin off. The two pull apart: equal load puts
batch work beside services. The last line gives up part of what interference saves for nodes as even as by load."""

DAY_POLICIES = tuple(DAY_WEIGHTS)

REPORT_EXPIRES_SECONDS = 900.0
"""Simulated nodes report less often than real ones."""


def day_policy(name: str, *, seed: int = 0) -> SchedulerSettings:
    """The scheduler as shipped, with the load and interference weights of a policy of DAY_POLICIES."""
    load, interference = DAY_WEIGHTS[name]
    plugins: dict[str, dict[str, Any]] = {
        "loadaware": {
            "enabled": load > 0,
            "weight": load,
            "node_metric_expiration_seconds": REPORT_EXPIRES_SECONDS,
        },
        "interference": {"enabled": interference > 0, "weight": interference},
    }
    return SchedulerSettings(plugins=plugins, seed=seed)
