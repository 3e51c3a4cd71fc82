"""Views in few words: a node of so many CPUs, its directories, pods and containers."""

from dataclasses import replace
from typing import Any

from api.intents import Evict, Intent, Knob, Setting
from api.qos import QoSClass
from koordlet.strategies.view import CpuThread, Group, GroupKind, KubeQoS, NodeInfo, NodeView

GIB = 2**30
ROOT = "/kubepods.slice"
BURSTABLE = f"{ROOT}/kubepods-burstable.slice"
BEST_EFFORT = f"{ROOT}/kubepods-besteffort.slice"
_DIRECTORY = {QoSClass.LSE: ROOT, QoSClass.LSR: ROOT, QoSClass.BE: BEST_EFFORT}
_KUBE_QOS = {ROOT: KubeQoS.GUARANTEED, BURSTABLE: KubeQoS.BURSTABLE, BEST_EFFORT: KubeQoS.BEST_EFFORT}


def machine(sockets: int = 1, nodes: int = 1, cores: int = 4, threads: int = 2) -> tuple[CpuThread, ...]:
    """A regular machine whose siblings have adjacent numbers; `cores` for each NUMA node."""
    total = sockets * nodes * cores * threads
    return tuple(
        CpuThread(cpu, cpu // threads, cpu // threads // cores // nodes, cpu // threads // cores)
        for cpu in range(total)
    )


def node(cpus: int | tuple[CpuThread, ...] = 8, memory_bytes: int = 100 * GIB, **more: Any) -> NodeInfo:
    """A node; a number of CPUs is one socket of two-way cores."""
    if isinstance(cpus, int):
        cpus = machine(cores=-(-cpus // 2))[:cpus]
    return NodeInfo(cpus=cpus, memory_bytes=memory_bytes, **more)


def pod(name: str, qos: QoSClass | str = QoSClass.NONE, **more: Any) -> Group:
    """A pod in the directory of its class; `cores` is its usage."""
    qos = QoSClass(qos)
    directory = more.pop("directory", _DIRECTORY.get(qos, BURSTABLE))
    if "cores" in more:
        more["cpu_millicores"] = more.pop("cores") * 1000
    kube_qos = more.pop("kube_qos", _KUBE_QOS[directory])
    return Group(
        path=f"{directory}/pod{name}",
        kind=GroupKind.POD,
        name=f"default/{name}",
        uid=name,
        qos=qos,
        kube_qos=kube_qos,
        **more,
    )


def container(of: Group, name: str = "main", **more: Any) -> Group:
    """A container with its pod's class."""
    return replace(
        of,
        path=f"{of.path}/{name}",
        kind=GroupKind.CONTAINER,
        name=name,
        pod=of.path,
        **{"knobs": {}, "annotations": {}, "labels": {}, "bound_cpus": frozenset(), **more},
    )


def directory(path: str, **more: Any) -> Group:
    """One of the kubelet's directories."""
    return Group(path=path, kind=GroupKind.QOS_DIR, kube_qos=_KUBE_QOS[path], **more)


def app(name: str, qos: QoSClass | str, path: str = "", **more: Any) -> Group:
    """A host application."""
    if "cores" in more:
        more["cpu_millicores"] = more.pop("cores") * 1000
    return Group(path=path or f"/{name}", kind=GroupKind.HOST_APP, name=name, qos=QoSClass(qos), **more)


def view(*groups: Group, on: NodeInfo | None = None, cores: float | None = None, **more: Any) -> NodeView:
    """A view with the kubelet's three directories, unless the groups bring their own; `cores` is the node's usage."""
    paths = {group.path for group in groups}
    directories = [directory(path) for path in _KUBE_QOS if path not in paths]
    return NodeView(
        node=on or node(),
        groups=(*directories, *groups),
        cpu_millicores=None if cores is None else cores * 1000,
        **more,
    )


def settings(intents: list[Intent]) -> dict[tuple[str, Knob], str]:
    """Return the values asked for, by target and knob; fails where one is asked for twice."""
    wanted = [intent for intent in intents if isinstance(intent, Setting)]
    found = {(intent.target, intent.knob): intent.value for intent in wanted}
    assert len(found) == len(wanted), "one strategy wants one knob twice"
    return found


def evicted(intents: list[Intent]) -> list[str]:
    """Paths to be evicted, in order."""
    return [intent.target for intent in intents if isinstance(intent, Evict)]
