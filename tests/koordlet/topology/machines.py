"""Machines of tests, as their CPUs."""

from api.kube.numa import CpuDetail


def machine(sockets: int, nodes: int, cores: int, threads: int) -> tuple[CpuDetail, ...]:
    """Sockets, NUMA nodes each, cores each, threads each; siblings have neighbouring numbers."""
    places = [
        (socket, socket * nodes + node, ((socket * nodes + node) * cores + core))
        for socket in range(sockets)
        for node in range(nodes)
        for core in range(cores)
        for _thread in range(threads)
    ]
    return tuple(
        CpuDetail(id=cpu, core=core, socket=socket, node=node) for cpu, (socket, node, core) in enumerate(places)
    )
