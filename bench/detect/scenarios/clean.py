"""Clean scenarios: no victim is harmed, so every verdict is false."""

from bench.detect import loads
from bench.detect.claims import Proof, Scenario, mutual
from bench.detect.measures import QUEUED_BYTES, WAIT
from bench.detect.services import PACED, free_port, is_listening, start_nginx, start_redis
from bench.detect.stage import HARM_SECONDS, RECOVER_SECONDS, SETTLE_SECONDS, Stage

QUIET_SECONDS = 60.0
_REPLICAS = 60


def _surge(stage: Stage) -> None:
    stage.start("victim", loads.sysbench(rate=60, primes=20_000), stage.near)
    stage.wait(SETTLE_SECONDS)
    stage.start("victim", loads.sysbench(rate=400, primes=20_000), stage.near)
    stage.wait(HARM_SECONDS + RECOVER_SECONDS)


def _elsewhere(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    stage.start("innocent", loads.stress("--cpu", "1"), stage.far)
    stage.wait(HARM_SECONDS + RECOVER_SECONDS)


def _idle_class(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.set_cpu_idle("be-batch")
    stage.wait(SETTLE_SECONDS)
    stage.start("be-batch", loads.stress("--cpu", "1"), stage.near)
    stage.wait(HARM_SECONDS + RECOVER_SECONDS)


def _by_design(stage: Stage) -> None:
    stage.set_cpu_weight("be-batch", 2)
    stage.start("be-batch", loads.stress("--cpu", "1"), stage.near)
    stage.wait(SETTLE_SECONDS)
    stage.start("service", loads.sysbench(), stage.near)
    stage.wait(HARM_SECONDS + RECOVER_SECONDS)


def _deep_queue(stage: Stage) -> None:
    disk = stage.disk()
    loads.lay_out(disk.mount / "data", 64)
    deep = ("--rw=randread", "--bs=4k", "--ioengine=libaio", "--iodepth=16", "--size=64m", "--rate_iops=2000")
    stage.start("victim", loads.fio("deep", disk.mount / "data", *deep), stage.near)
    stage.wait(SETTLE_SECONDS + HARM_SECONDS)


def _fsync_alone(stage: Stage) -> None:
    disk = stage.disk()
    loads.lay_out(disk.mount / "data", 64)
    syncs = ("--rw=randwrite", "--bs=8k", "--ioengine=psync", "--size=64m", "--fdatasync=1", "--rate_iops=40")
    stage.start("victim", loads.fio("database", disk.mount / "data", *syncs), stage.near)
    stage.wait(SETTLE_SECONDS + HARM_SECONDS)


def _two_readers(stage: Stage) -> None:
    disk = stage.disk(spread=0.5)
    for role, cpu in (("victim", stage.near), ("other", stage.far)):
        loads.lay_out(disk.mount / role, 32)
        reads = ("--rw=randread", "--bs=4k", "--ioengine=psync", "--size=32m", "--rate_iops=150")
        stage.start(role, loads.fio(role, disk.mount / role, *reads, "--rate_process=poisson"), cpu)
    stage.wait(QUIET_SECONDS)


def _redis_alone(stage: Stage) -> None:
    start_redis(stage, clients=4)
    stage.wait(SETTLE_SECONDS + HARM_SECONDS)


def _nginx_alone(stage: Stage) -> None:
    start_nginx(stage, connections=8)
    stage.wait(SETTLE_SECONDS + HARM_SECONDS)


def _proxy_alone(stage: Stage) -> None:
    port, backend = free_port(), free_port()
    stage.start("backend", loads.nginx(backend, stage.folder()), stage.far)
    stage.start("victim", loads.nginx_proxy(port, backend, stage.folder()), stage.near)
    stage.until(lambda: is_listening(port) and is_listening(backend))
    stage.start("clients", loads.wrk(port, 8), stage.far)
    stage.wait(SETTLE_SECONDS + HARM_SECONDS)


def _bulk_alone(stage: Stage) -> None:
    namespaces = stage.namespaces()
    namespaces.shape("50mbit", "400kb")
    stage.start("servers", loads.iperf_server(5301), stage.far, namespace=namespaces.far)
    stage.wait(0.5)
    stage.meter.add("victim", QUEUED_BYTES, namespaces.queued_bytes)
    stage.start("victim", loads.iperf(5301, "--parallel", "4"), stage.near, namespace=namespaces.near)
    stage.wait(SETTLE_SECONDS + HARM_SECONDS)


def _lossy_clients(stage: Stage) -> None:
    port = free_port()
    stage.start("victim", loads.nginx_file(port, stage.folder(), 64), stage.near)
    stage.until(lambda: is_listening(port))
    stage.start("clients", loads.lossy_clients(port, 16, 0.01), stage.far)
    stage.wait(SETTLE_SECONDS + HARM_SECONDS)


def _heavy_tails(stage: Stage) -> None:
    for role, rate in (("rare", 5), ("usual", 20), ("victim", 100)):
        stage.start(role, loads.tailed_service(rate, 1.5, 0.002), stage.near)
    stage.wait(2 * QUIET_SECONDS)


def _replicas(stage: Stage) -> None:
    argv = loads.tailed_service(4, 0.3, 0.002, connections=1, later=3.0, after=_REPLICAS * 0.1 + 6.0)
    for number in range(_REPLICAS):
        stage.start(f"replica-{number}", argv, stage.far)
        stage.wait(0.1)
    stage.wait(QUIET_SECONDS / 2)


def _quiet(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.start("other", loads.sysbench(rate=100, primes=20_000), stage.far)
    stage.wait(QUIET_SECONDS)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "own-surge",
        "a service's own load grows sevenfold within its CPU",
        _surge,
        proofs=(Proof("victim", WAIT, at_most=0.6),),
    ),
    Scenario("other-cpu", "a big user of another CPU", _elsewhere, proofs=(Proof("victim", WAIT, at_most=0.03),)),
    Scenario(
        "idle-class",
        "a busy loop of the idle class on the service's CPU",
        _idle_class,
        proofs=(Proof("victim", WAIT, at_most=0.03),),
    ),
    Scenario("by-design", "best-effort work yields to a service", _by_design, proofs=(Proof("be-batch", WAIT, 0.5),)),
    Scenario("own-queue", "a disk user waits behind its own requests", _deep_queue),
    Scenario("fsync-alone", "a database flushes after every write, alone", _fsync_alone),
    Scenario("two-readers", "two users of a disk that is slow at times by itself", _two_readers),
    Scenario("redis-alone", "redis and its clients alone", _redis_alone, proofs=(Proof("victim", WAIT, at_most=0.03),)),
    Scenario("nginx-alone", "nginx and its clients alone", _nginx_alone, proofs=(Proof("victim", WAIT, at_most=0.03),)),
    Scenario(
        "loopback-proxy-alone",
        "a proxy between its clients and its backend, all over loopback",
        _proxy_alone,
        mutual("backend", "clients"),
        proofs=(Proof("victim", WAIT, at_most=0.1),),
    ),
    Scenario(
        "bulk-sender-alone",
        "four bulk streams fill a send queue that no other cgroup uses",
        _bulk_alone,
        proofs=(Proof("victim", QUEUED_BYTES, 30_000),),
    ),
    Scenario("lossy-clients", "a server whose clients are far away and lose 1 % of its packets", _lossy_clients),
    Scenario(
        "heavy-tails",
        "services at 5, 20 and 100 requests a second, the slowest percent thirty times slower than the median",
        _heavy_tails,
        proofs=(Proof("victim", WAIT, at_most=0.1),),
    ),
    Scenario(
        "replicas",
        "60 replicas of one service, all of which take three times as long by themselves soon after they started",
        _replicas,
        mutual("replica-*"),
    ),
    Scenario(
        "quiet",
        "two paced services for a minute, each on its CPU",
        _quiet,
        proofs=(Proof("victim", WAIT, at_most=0.03),),
    ),
)
