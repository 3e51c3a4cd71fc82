"""Fifty cgroups as nodes have them, each far within what the machine can give."""

from bench.detect import loads
from bench.detect.services import free_port, is_listening
from bench.detect.stage import Stage


def ordinary_work(stage: Stage) -> int:
    """Start it all; returns the number of cgroups. Raises OSError where the host cannot stage it."""
    before = len(stage.paths)
    for number in range(4):
        port = free_port()
        stage.start(f"web-{number}", loads.nginx(port, stage.folder()), stage.near)
        stage.until(lambda port=port: is_listening(port))  # type: ignore[misc]
        stage.start(f"web-clients-{number}", loads.paced_requests(port, 20), stage.far)
    for number in range(2):
        port, backend = free_port(), free_port()
        stage.start(f"backend-{number}", loads.nginx(backend, stage.folder()), stage.far)
        stage.start(f"proxy-{number}", loads.nginx_proxy(port, backend, stage.folder()), stage.near)
        stage.until(lambda port=port, backend=backend: is_listening(port) and is_listening(backend))  # type: ignore[misc]
        stage.start(f"proxy-clients-{number}", loads.paced_requests(port, 20), stage.far)
    disk = stage.disk()
    for number in range(2):
        loads.lay_out(disk.mount / f"database-{number}", 32)
        syncs = ("--rw=randwrite", "--bs=8k", "--ioengine=psync", "--size=32m", "--fdatasync=1", "--rate_iops=4")
        stage.start(f"database-{number}", loads.fio("database", disk.mount / f"database-{number}", *syncs), stage.near)
    namespaces = stage.namespaces()
    namespaces.shape("20mbit", "200kb")
    stage.start("receiver", loads.iperf_server(5301), stage.far, namespace=namespaces.far)
    stage.wait(0.5)
    stage.start("sender", loads.iperf(5301, "--parallel", "2"), stage.near, namespace=namespaces.near)
    for number in range(12):
        stage.start(f"tailed-{number}", loads.tailed_service(2 + number, 1.0, 0.003, connections=2), stage.near)
    for number in range(12):
        stage.start(f"paced-{number}", loads.sysbench(rate=2, primes=2_000), stage.far)
    for number in range(8):
        stage.start(f"cron-{number}", loads.every(5 + number, loads.short_job()), stage.far)
    for number in range(2):
        stage.set_cpu_idle(f"be-batch-{number}")
        stage.start(f"be-batch-{number}", loads.stress("--cpu", "1", "--cpu-load", "20"), stage.far)
    return len(stage.paths) - before
