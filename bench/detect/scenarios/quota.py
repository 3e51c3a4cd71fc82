"""Limit scenarios: the victim is held back by a limit or by its own threads."""

from bench.detect import loads
from bench.detect.claims import Claim, Proof, Scenario
from bench.detect.measures import THROTTLED, WAIT
from bench.detect.services import PACED
from bench.detect.stage import HARM_SECONDS, RECOVER_SECONDS, SETTLE_SECONDS, Stage


def _own(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.cgroup("victim").set_cpu_quota(10_000, 100_000)
        stage.wait(HARM_SECONDS)
        stage.cgroup("victim").set_cpu_quota(None)
    stage.wait(RECOVER_SECONDS)


def _parent(stage: Stage) -> None:
    stage.start("pod/victim", PACED, stage.near)
    stage.start("pod/sidecar", loads.stress("--cpu", "1", "--cpu-load", "30"), stage.far)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.cgroup("pod").set_cpu_quota(20_000, 100_000)
        stage.wait(HARM_SECONDS)
        stage.cgroup("pod").set_cpu_quota(None)
    stage.wait(RECOVER_SECONDS)


def _sibling(stage: Stage) -> None:
    stage.start("pod/victim", PACED, stage.near)
    stage.cgroup("pod").set_cpu_quota(60_000, 100_000)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("pod/sidecar", loads.sysbench(2), stage.far)
        stage.wait(HARM_SECONDS)
        stage.stop("pod/sidecar")
    stage.wait(RECOVER_SECONDS)


def _own_threads(stage: Stage) -> None:
    stage.start("victim", PACED, stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("victim", loads.sysbench(6), stage.near)
        stage.wait(HARM_SECONDS)
    stage.stop("victim")
    stage.wait(RECOVER_SECONDS)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "own-quota",
        "the service's own quota is set below what it uses",
        _own,
        (Claim("victim", "cpu", "own_quota", "[own quota]"), Claim("victim", "cpu", "own_threads", tolerated=True)),
        (Proof("victim", THROTTLED, 0.1),),
    ),
    Scenario(
        "pods-quota",
        "the pod's quota holds back two containers",
        _parent,
        (
            Claim("pod/victim", "cpu", "ancestor_quota", "pod"),
            Claim("pod/sidecar", "cpu", "ancestor_quota", tolerated=True),
            Claim("pod", "cpu", "own_quota", tolerated=True),
        ),
        (Proof("pod", THROTTLED, 0.1),),
    ),
    Scenario(
        "sibling-eats-quota",
        "a sidecar uses up the pod's quota",
        _sibling,
        (
            Claim("pod/victim", "cpu", "ancestor_quota", "pod/sidecar"),
            Claim("pod/sidecar", "cpu", "", tolerated=True),
            Claim("pod", "cpu", "own_quota", tolerated=True),
        ),
        (Proof("pod", THROTTLED, 0.1),),
    ),
    Scenario(
        "own-threads",
        "six threads of the victim on one CPU",
        _own_threads,
        (Claim("victim", "cpu", "own_threads", "[own threads]"),),
        (Proof("victim", WAIT, 2.0),),
    ),
)
