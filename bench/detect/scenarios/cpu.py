"""CPU scenarios: a neighbour takes the victim's CPU."""

from bench.detect import loads
from bench.detect.claims import Claim, Proof, Scenario, mutual
from bench.detect.measures import WAIT
from bench.detect.services import PACED, start_nginx, start_redis
from bench.detect.stage import HARM_SECONDS, RECOVER_SECONDS, SETTLE_SECONDS, Stage

_PULSES, _ON_SECONDS, _OFF_SECONDS = 3, 2.0, 5.0
_CREEP_PERCENT, _CREEP_SECONDS = (15, 25, 40, 60, 80), 3.0
_JOBS = 400


def _hog(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("hog", loads.stress("--cpu", "1"), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("hog")
    stage.wait(RECOVER_SECONDS)


def _hog_on_nginx(stage: Stage) -> None:
    start_nginx(stage, connections=4)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("hog", loads.stress("--matrix", "2"), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("hog")
    stage.wait(RECOVER_SECONDS)


def _wakers(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("wakers", loads.hackbench(1), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("wakers")
    stage.wait(RECOVER_SECONDS)


def _forks(stage: Stage) -> None:
    start_redis(stage, clients=2)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("forks", loads.stress("--fork", "4"), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("forks")
    stage.wait(RECOVER_SECONDS)


def _sibling(stage: Stage) -> None:
    stage.start("pod/victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("pod/sidecar", loads.stress("--cpu", "1"), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("pod/sidecar")
    stage.wait(RECOVER_SECONDS)


def _two(stage: Stage) -> None:
    stage.start("victim", loads.sysbench(), stage.near)
    stage.wait(SETTLE_SECONDS)
    for role, weight in (("big", 1434), ("small", 614)):
        stage.set_cpu_weight(role, weight)
    with stage.harm():
        stage.start("big", loads.stress("--cpu", "1"), stage.near)
        stage.start("small", loads.stress("--cpu", "1"), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("big")
        stage.stop("small")
    stage.wait(RECOVER_SECONDS)


def _pulses(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        for pulse in range(_PULSES):
            stage.start("pulse", loads.stress("--cpu", "1"), stage.near)
            stage.wait(_ON_SECONDS)
            stage.stop("pulse")
            stage.wait(_OFF_SECONDS if pulse < _PULSES - 1 else 0.0)
    stage.wait(RECOVER_SECONDS)


def _decoy(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.start("decoy", loads.stress("--cpu", "2"), stage.far)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("culprit", loads.stress("--cpu", "1", "--cpu-load", "50"), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("culprit")
    stage.wait(RECOVER_SECONDS)


def _dies(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("mayfly", loads.stress("--cpu", "1"), stage.near)
        stage.wait(2.5)
        stage.remove("mayfly")
    stage.wait(RECOVER_SECONDS + 2.0)


def _jobs(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        for number in range(7):
            stage.start(f"job-{number}", loads.stress("--cpu", "1"), stage.near)
            stage.wait(1.5)
            stage.remove(f"job-{number}")
    stage.wait(RECOVER_SECONDS)


def _cold(stage: Stage) -> None:
    stage.start("hog", loads.stress("--cpu", "1"), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("victim", PACED, stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("hog")
    stage.wait(RECOVER_SECONDS)


def _creep(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        for percent in _CREEP_PERCENT:
            stage.start("creep", loads.stress("--cpu", "1", "--cpu-load", str(percent)), stage.near)
            stage.wait(_CREEP_SECONDS)
            stage.stop("creep")
    stage.wait(RECOVER_SECONDS)


def _many_jobs(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.make_many("jobs", _JOBS)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start_many("jobs", _JOBS, loads.short_job(), stage.near)
        stage.wait(HARM_SECONDS)
        stage.stop("jobs")
    stage.wait(RECOVER_SECONDS)


def _contended(victim: str, culprit: str, *, at_least: float = 0.1) -> tuple[tuple[Claim, ...], tuple[Proof, ...]]:
    return (Claim(victim, "cpu", "contention", culprit), *mutual(culprit)), (Proof(victim, WAIT, at_least),)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("cpu-hog", "a busy loop on a paced service's CPU", _hog, *_contended("victim", "hog")),
    Scenario("nginx-hog", "two busy threads on nginx's CPU", _hog_on_nginx, *_contended("victim", "hog")),
    Scenario("short-wakers", "40 message senders on the service's CPU", _wakers, *_contended("victim", "wakers")),
    Scenario("fork-storm", "thousands of short-lived processes on redis's CPU", _forks, *_contended("victim", "forks")),
    Scenario(
        "sidecar", "the neighbour is a container of the same pod", _sibling, *_contended("pod/victim", "pod/sidecar")
    ),
    Scenario(
        "two-culprits",
        "two busy loops at weights 70 to 30",
        _two,
        (Claim("victim", "cpu", "contention", "big", beside="small"), *mutual("big", "small")),
        (Proof("victim", WAIT, 0.4),),
    ),
    Scenario(
        "pulses", "a busy loop, two seconds on and five off", _pulses, *_contended("victim", "pulse", at_least=0.05)
    ),
    Scenario(
        "decoy",
        "half a CPU of harm beside a far bigger, innocent user of another CPU",
        _decoy,
        (Claim("victim", "cpu", "contention", "culprit"), *mutual("culprit", "decoy")),
        (Proof("victim", WAIT, 0.08),),
    ),
    Scenario(
        "culprit-dies",
        "the culprit is gone with its cgroup after 2.5 s",
        _dies,
        *_contended("victim", "mayfly", at_least=0.05),
    ),
    Scenario(
        "batch-jobs",
        "short jobs one after the other, each in a cgroup of its own",
        _jobs,
        (Claim("victim", "cpu", "contention", "job-*"), *mutual("job-*")),
        (Proof("victim", WAIT, 0.1),),
    ),
    Scenario(
        "cold-start",
        "a service starts on a CPU that a busy loop has already",
        _cold,
        *_contended("victim", "hog"),
    ),
    Scenario(
        "creep",
        "a neighbour on the service's CPU wants more of it every three seconds",
        _creep,
        *_contended("victim", "creep", at_least=0.05),
    ),
    Scenario(
        "hundreds-of-jobs",
        "400 short jobs at once, each in a cgroup of its own below one",
        _many_jobs,
        (Claim("victim", "cpu", "contention", "jobs"), *mutual("jobs", "jobs/job-*")),
        (Proof("victim", WAIT, 0.1),),
    ),
)
