"""Ticks of a small host: a service and a hog, and what they cost each other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from api.frame import CgroupInfo, CgroupKind
from api.intents import Intent, Knob, Setting
from api.verdicts import Culprit, How, Severity, Verdict
from detector.blame import Blame
from koordlet.response.host_capabilities import HostCapabilities
from koordlet.response.observation import Observation
from koordlet.response.policy import ResponsePolicy
from koordlet.response.steps import StepKind
from tests.verdicts import make_verdict

WEB, HOG, BYSTANDER = "/online/web", "/batch/hog", "/batch/bystander"


CLASSES = {"/online": "", WEB: "LS", "/batch": "", HOG: "BE", BYSTANDER: "BE"}


def verdict_on(
    culprit: str = HOG, victim: str = WEB, *, resource: str = "cpu", share: float = 0.9, how: How = How.DIRECT
) -> Verdict:
    return make_verdict(
        victim,
        time=0.0,
        resource=resource,
        lost=0.5,
        severity=Severity.HIGH,
        culprits=(Culprit(culprit, share, how),),
        confidence=share,
        rule=resource,
    )


def look(
    now: float,
    verdicts: Sequence[Verdict] = (),
    *,
    lost: float = 0.5,
    used: float = 1.0,
    classes: dict[str, str] | None = None,
    capabilities: HostCapabilities | None = None,
    turnaround: float = float("nan"),
    throttled: float = 0.0,
) -> Observation:
    given_classes = classes or CLASSES
    infos = tuple(
        CgroupInfo(number, path, path.rpartition("/")[2], qos)
        for number, (path, qos) in enumerate(given_classes.items(), start=1)
    )
    victims = np.array([lost if info.path == WEB else 0.0 for info in infos])
    count = len(infos)
    return Observation(
        now_seconds=now,
        cgroups=infos,
        verdicts=tuple(verdicts),
        lost={"cpu": victims, "memory": victims, "blockio": victims, "cache": victims},
        throttled=np.array([throttled if info.path == WEB else 0.0 for info in infos]),
        cpu_cores=np.array([used if info.path.startswith("/batch") else 0.3 for info in infos]),
        memory_bytes=np.full(count, 1e9),
        io_bytes_per_second=np.full(count, used * 1e8),
        turnaround_seconds=np.full(count, turnaround),
        capabilities=capabilities or HostCapabilities(cpus=(0, 1), disks=("8:0",)),
    )


def knobs(intents: Sequence[Intent]) -> list[tuple[str, str, str]]:
    return [(intent.target, intent.knob, intent.value) for intent in intents if isinstance(intent, Setting)]


def run(response: ResponsePolicy, seconds: Sequence[Observation]) -> list[list[Intent]]:
    return [response.step(observation) for observation in seconds]


def live(
    response: ResponsePolicy, seconds: int, helps: frozenset[str] = frozenset(), *, start: int = 0, used: float = 1.0
) -> list[tuple[int, StepKind, str]]:
    """Steps of so many seconds in which the hog costs half a second a second unless a rung that helps is in effect."""
    steps = []
    for second in range(start, start + seconds):
        held = {name for names in response.active_rungs.values() for name in names}
        lost = 0.01 if held & helps else 0.5
        response.step(look(float(second), [verdict_on()] if lost > 0.1 else [], lost=lost, used=used))
        steps += [(second, step.kind, step.rung) for step in response.steps]
    return steps


PODS = {
    "/kubepods": "",
    "/kubepods/besteffort": "BE",
    "/kubepods/besteffort/pod-hog": "BE",
    "/kubepods/besteffort/pod-hog/c": "BE",
    "/kubepods/burstable": "LS",
    "/kubepods/burstable/pod-hog": "BE",
    "/kubepods/burstable/pod-hog/c": "BE",
    "/kubepods/burstable/pod-web": "LS",
    "/kubepods/burstable/pod-web/c": "LS",
    "/kubepods/burstable/pod-web/sidecar": "BE",
    "/kubepods/burstable/pod-other/c": "LS",
    "/user.slice": "",
}


POD_WEB = "/kubepods/burstable/pod-web/c"


def look_at_pods(verdict: Verdict, *, slowdown: float = float("nan"), lost: float = 0.5) -> Observation:
    def info(number: int, path: str, qos: str) -> CgroupInfo:
        depth = len(path.split("/"))
        kind = CgroupKind.KUBEPODS if path.startswith("/kubepods") and depth < 4 and "pod-" not in path else ""
        uid = path.split("/")[3] if "pod-" in path else ""
        return CgroupInfo(number, path, path.rpartition("/")[2], qos, kind=CgroupKind(kind), pod_uid=uid)

    seen = look(0.0, [verdict], classes=PODS)
    infos = tuple(info(number, path, qos) for number, (path, qos) in enumerate(PODS.items(), start=1))
    losses = np.array([lost if each.path == verdict.victim else 0.0 for each in infos])
    slower = np.array([slowdown if each.path == verdict.victim else np.nan for each in infos])
    return replace(seen, cgroups=infos, lost={"cpu": losses, "net": losses}, slowdown=slower)


def blaming(seen: Observation, amounts: dict[str, float], victim: str = WEB) -> Observation:
    """The tick with these seconds per second charged to each culprit of a victim."""
    ids = {info.path: info.id for info in seen.cgroups}
    rows = sorted((ids[path], amount) for path, amount in amounts.items())
    culprits = np.array([row for row, _amount in rows], dtype=np.uint64)
    victims = np.full(len(rows), ids[victim], dtype=np.uint64)
    blame = Blame(victims, culprits, np.array([amount for _row, amount in rows]))
    return replace(seen, blame_of={"cpu": blame}.get)


WEIGHTS = {"/online": 1000.0, "/batch": 1.0}


def tick(
    now: float,
    *,
    used: Mapping[str, float],
    waits: Mapping[str, float],
    lost: Mapping[str, float],
    victim: str = WEB,
    verdicts: Sequence[Verdict] | None = None,
    weights: Mapping[str, float] = WEIGHTS,
    cpus: int = 4,
    knobs: frozenset[Knob] = frozenset(Knob),
    held_up: Mapping[str, float] | None = None,
    other_lost: float = 0.0,
    classes: Mapping[str, str] = CLASSES,
) -> Observation:
    """A tick in which `lost` is what each culprit costs the victim, and waits are measured."""
    if verdicts is None:
        verdicts = [verdict_on()] if sum(lost.values()) > 0.1 else []
    seen = look(now, verdicts, classes=dict(classes), capabilities=HostCapabilities(knobs, cpus=tuple(range(cpus))))

    def column(values: Mapping[str, float], default: float = 0.0) -> np.ndarray:
        return np.array([values.get(info.path, default) for info in seen.cgroups])

    seen = replace(
        seen,
        lost={"cpu": column({victim: sum(lost.values())}), "blockio": column({victim: other_lost})},
        cpu_cores=column(used),
        cpu_waits=column(waits),
        held_up=column(held_up or {}),
        weights=column(weights, 100.0),
    )
    return blaming(seen, dict(lost), victim)
