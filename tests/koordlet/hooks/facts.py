"""Pods and nodes in few words, as rules see them."""

import json
from collections.abc import Mapping
from typing import Any

from api.kube.numa import CpuDetail
from api.protocol import ANNOTATION_RESOURCE_STATUS
from api.qos import QoSClass
from koordlet.hooks.node import NodeFacts
from koordlet.identity.pods import PodContainer, PodFacts
from koordlet.strategies.strategy import Strategy, make_strategies
from koordlet.strategies.view import CpuThread, NodeInfo
from koordlet.topology.share_pools import share_pools

GIB = 1 << 30
KUBE_QOS = {QoSClass.LSE: "Guaranteed", QoSClass.LSR: "Guaranteed", QoSClass.BE: "BestEffort"}


def machine(cpus: int = 8, numa_nodes: int = 1) -> tuple[CpuThread, ...]:
    """Cores of two threads with adjacent numbers; NUMA nodes of equal size."""
    return tuple(CpuThread(cpu, cpu // 2, 0, cpu * numa_nodes // cpus) for cpu in range(cpus))


def node(
    cpus: int = 8,
    pods: tuple[PodFacts, ...] = (),
    *,
    numa_nodes: int = 1,
    strategies: Mapping[str, Strategy[Any]] | None = None,
    rdma_nodes: Any = None,
    **info: Any,
) -> NodeFacts:
    """A node with the pools that its pods leave."""
    threads = machine(cpus, numa_nodes)
    details = [CpuDetail(id=cpu.id, core=cpu.core, socket=cpu.socket, node=cpu.node) for cpu in threads]
    return NodeFacts(
        info=NodeInfo(cpus=threads, memory_bytes=64 * GIB, **info),
        pools=share_pools(details, pods=pods),
        strategies=strategies or {},
        rdma_nodes=rdma_nodes or {},
    )


def container(name: str = "main", **more: Any) -> PodContainer:
    """A container; keywords are fields of PodContainer."""
    return PodContainer(name, **more)


def pod(qos: QoSClass | str = QoSClass.NONE, *containers: PodContainer, **more: Any) -> PodFacts:
    """A pod of one container unless others are given."""
    qos = QoSClass(qos)
    more.setdefault("kube_qos", KUBE_QOS.get(qos, "Burstable"))
    amounts = (more.get("requests"), more.get("limits"), *(each.requests or each.limits for each in containers))
    if not any(amounts):  # as the runtime tells of it, before its spec is known
        more = {"spec_known": False, "kube_qos": "BestEffort", **more}
    return PodFacts(more.pop("name", "default/web"), qos, uid="u1", containers=containers or (container(),), **more)


def with_cpus(cpuset: str, qos: QoSClass | str = QoSClass.LSR, request: int | None = None, **more: Any) -> PodFacts:
    """A pod that the scheduler gave these CPUs."""
    amounts = {} if request is None else {"cpu": request}
    status = {ANNOTATION_RESOURCE_STATUS: json.dumps({"cpuset": cpuset})}
    return pod(qos, annotations=status, requests=amounts, limits=amounts, **more)


def strategies(features: Mapping[str, bool] | None = None, **settings: Mapping[str, Any]) -> dict[str, Strategy[Any]]:
    """All strategies, those named by keyword with these settings."""
    from koordlet.strategies.settings import settings_of

    made = make_strategies(features)
    for name, table in settings.items():
        kind = made[name].settings_type
        made[name].settings = settings_of(kind, "section", {"section": table}, "test")
    return made
