"""States of a node for the tests of its page: a quiet one, a busy one, and one whose names are hostile."""

import msgspec

from api.pages.markup import element
from api.plugin import Unsupported
from api.verdicts import CgroupRef, Culprit, How, Severity
from api.window import Window
from koordlet.node_page.values import Decision, NodeState, Section, SettingInEffect, Span
from koordlet.response.steps import ResponseStep, StepKind
from koordlet.serving.status import AgentStatus, capabilities
from tests.frames import make_frame
from tests.verdicts import make_verdict

NOW = 1_700_000_006.0
HOSTILE = '/kubepods/<script>window.broken=1</script>"onmouseover="window.broken=1'


def status(*, hostname: str = "node-7") -> AgentStatus:
    """Return the status of a host that lacks one source and measures one in part."""
    known = capabilities(
        {"cpu": True, "memory": True, "blockio": True, "pmu": False},
        {"pmu": Unsupported("no hardware counters", "run on a host with a PMU")},
        {"blockio": "no limit time: fentry is not available"},
    )
    return AgentStatus(hostname, "0.1.0", "6.12.1", 1.0, known, ticks=6, last_tick_seconds=NOW, cgroups=4)


def quiet() -> NodeState:
    """Return a node on which nothing is wrong."""
    return NodeState(status=status(), mode="observing", now=NOW)


def busy(web: str = "/kubepods/burstable/pod1/web", batch: str = "/kubepods/besteffort/pod2/batch") -> NodeState:
    """Return a node with a victim, a culprit, a verdict that ended, actions and decisions."""
    paths = {1: "/", 2: web, 3: batch, 4: "/system.slice/cron.service"}
    names = {web: "shop/web-0/web", batch: "jobs/train-3/batch"} if "<" not in web else {}

    def columns(second: int) -> dict[str, list[int]]:
        return {
            "cpu.oncpu_ns": [0, second * 420_000_000, second * 1_300_000_000, second * 9_000_000],
            "cpu.wait_neighbour_ns": [0, second * 380_000_000, second * 30_000_000, second * 2_000_000],
            "cpu.wait_kernel_ns": [0, second * 20_000_000, second * 4_000_000, 0],
            "cpu.wait_self_ns": [0, second * 60_000_000, second * 500_000_000, 0],
            "cpu.wait_own_quota_ns": [0, 0, second * 120_000_000, 0],
        }

    frames = [
        make_frame(float(second), paths, columns(second), {(2, 3): second * 350_000_000, (3, 2): second * 30_000_000})
        for second in range(7)
    ]
    culprit = Culprit(batch, 0.9, How.DIRECT, CgroupRef(name=names.get(batch, batch)))
    verdict = make_verdict(web, culprits=(culprit,), lost=0.38, severity=Severity.HIGH, time=NOW - 1, since=NOW - 40)
    earlier = make_verdict(web, rule="own-quota", cause="own_quota", lost=0.2, time=NOW - 500, since=NOW - 500)
    ended = make_verdict("/system.slice/db.service", resource="blockio", cause="delay", lost=0.7, time=NOW - 300)
    step = ResponseStep(
        kind=StepKind.APPLIED,
        rung="weight",
        culprit=batch,
        victim=web,
        resource="cpu",
        before=0.38,
        after=0.05,
        reason="most of the loss",
    )
    steps = (
        (NOW - 30, step),
        (NOW - 20, msgspec.structs.replace(step, kind=StepKind.REVERTED, before=float("nan"))),
        (NOW - 10, msgspec.structs.replace(step, kind=StepKind.KEPT)),
    )
    return NodeState(
        status=status(),
        mode="acting",
        stopped="/run/koord/stop is there",
        now=NOW,
        window=Window(tuple(frames)),
        open_verdicts=(verdict,),
        spans=(
            Span(NOW - 500, NOW - 420, earlier, 0.2),
            Span(NOW - 300, NOW - 240, ended, 0.7),
            Span(NOW - 40, None, verdict, 0.41),
        ),
        steps=steps,
        settings=(
            SettingInEffect(batch, "cpu.weight", "10", "100", "response", f"{web}|cpu-contention", "most of it", False),
            SettingInEffect(batch, "cpu.max", "200000 100000", "max 100000", "runtime_hooks", "", "batch-cpu", True),
        ),
        decisions=(
            Decision(
                "2023-11-14T22:12:56.000Z",
                "set",
                batch,
                "BE koord-batch",
                "cpu.weight",
                "100",
                "10",
                "most of the loss",
                False,
            ),
            Decision("2023-11-14T22:13:06.000Z", "refused", web, "LS", "", "", "10", "protected", True),
        ),
        lost_events={"cpu.switch": 12, "none": 0},
        name_of=lambda path: names.get(path, path),
        evidence=lambda: (Section("evidence", "Stacks that waited", element("p", "two stacks")),),
    )


def hostile() -> NodeState:
    """Return a node whose cgroups were named to break the page."""
    return busy(HOSTILE, f"{HOSTILE}\u202egnp.")
