"""A made story: quiet, a short spike, contention that opens a verdict, its end, and the cool-down."""

import msgspec

from api.frame import CgroupInfo
from api.verdicts import Culprit, How, Severity, Verdict, VerdictState
from detector.explain.story import Story, StoryTick
from detector.judging.diagnosis import Reason, RuleDiagnosis, SymptomDiagnosis
from tests.detector.recording.recordings import header
from tests.verdicts import make_verdict

FIRST_NS = 1_760_000_000 * 10**9
LOSSES = [0.004, 0.002, 0.31, 0.01, 0.003, *[0.42, 0.55, 0.61, 0.38, 0.44, 0.5], 0.02, 0.01, 0.0, 0.06, 0.09, 0.0, 0.0]
WHYS = ["below"] * 2 + ["held"] + ["below"] * 2 + ["held"] + ["open"] * 7 + ["cooling"] * 3 + ["below"] * 2
WEB = CgroupInfo(1, "/kubepods/pod1/web", "web", "LS", "shop/Deployment/web", "web")
BATCH = "/kubepods/besteffort/pod2/batch"


def verdict(second: int, state: VerdictState) -> Verdict:
    return make_verdict(
        WEB.path,
        time=FIRST_NS / 1e9 + second,
        state=state,
        lost=LOSSES[second],
        severity=Severity.HIGH,
        culprits=(Culprit(BATCH, 0.8, How.DIRECT),),
    )


def contention(second: int) -> RuleDiagnosis:
    lost = LOSSES[second]
    reasons = {
        "below": Reason.BELOW_THRESHOLD,
        "held": Reason.NOT_HELD,
        "open": Reason.OPEN,
        "cooling": Reason.COOLING_DOWN,
    }
    reason = reasons[WHYS[second]]
    return RuleDiagnosis(
        rule="cpu-contention",
        reason=reason,
        symptoms=(SymptomDiagnosis("cpu_contention", lost, lost >= 0.05),),
        threshold=0.05,
        held_ticks=sum(each >= 0.05 for each in LOSSES[max(0, second - 2) : second + 1]),
        needed_ticks=2,
        of_ticks=3,
        cooldown_left_seconds=float(16 - second) if reason is Reason.COOLING_DOWN else 0.0,
        is_open=reason is Reason.OPEN,
        culprits=(Culprit(BATCH, 0.8, How.DIRECT), Culprit("[kernel]", 0.15, How.DIRECT)) if lost > 0.01 else (),
    )


def cache() -> RuleDiagnosis:
    unseen = (SymptomDiagnosis("cache_pressure", None, exceeds=False),)
    return RuleDiagnosis("cache", Reason.NOT_MEASURED, unseen, 0.1, 0, 2, 3, 0.0, is_open=False)


def memory() -> RuleDiagnosis:
    little = (SymptomDiagnosis("reclaim", 0.001, exceeds=False), SymptomDiagnosis("compaction", None, exceeds=False))
    return RuleDiagnosis("memory", Reason.BELOW_THRESHOLD, little, 0.05, 0, 2, 3, 0.0, is_open=False)


def story(at_second: float = 6.0) -> Story:
    ticks = []
    for second, lost in enumerate(LOSSES):
        causes = {"cpu:neighbour": 0.85 * lost, "cpu:kernel": 0.15 * lost, "cpu:self": 0.03, "memory:global": 0.0}
        told = {6: (verdict(6, VerdictState.OPEN),), 12: (verdict(12, VerdictState.CLOSE),)}.get(second, ())
        ticks.append(StoryTick(FIRST_NS + second * 10**9, causes, (contention(second), memory(), cache()), told))
    return Story(
        victim=WEB,
        others=(),
        at_ns=FIRST_NS + round(at_second * 1e9),
        first_ns=FIRST_NS,
        header=msgspec.structs.replace(header(), host={"hostname": "node-7"}),
        ticks=ticks,
        names={WEB.path: "web", BATCH: "batch"},
        sources={"pmu": "no hardware counters in this virtual machine"},
    )
