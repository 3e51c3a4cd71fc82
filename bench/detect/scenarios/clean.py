"""Clean scenarios: no victim is harmed, so every verdict is false."""

from bench.detect import loads
from bench.detect.claims import Proof, Scenario
from bench.detect.measures import WAIT
from bench.detect.services import PACED, start_nginx, start_redis
from bench.detect.stage import HARM_SECONDS, RECOVER_SECONDS, SETTLE_SECONDS, Stage

QUIET_SECONDS = 60.0


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
        "quiet",
        "two paced services for a minute, each on its CPU",
        _quiet,
        proofs=(Proof("victim", WAIT, at_most=0.03),),
    ),
)
