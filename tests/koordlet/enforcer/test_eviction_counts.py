"""Evictions by owner: only those that began, under the workload's name, bounded."""

from api.frame import CgroupInfo
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EVICT, EnforcerEvent
from koordlet.enforcer.evictions.counts import MOST_OWNERS, OTHER, EvictionCounts

CGROUPS = (
    CgroupInfo(1, "/pods/a", "shop/spark-1", "BE", workload="Job/shop/spark", pod_uid="u", namespace="shop"),
    CgroupInfo(2, "/batch", "batch", "BE"),
)


def event(target: str, outcome: Outcome, knob: str = EVICT, strategy: str = "memory_evict") -> EnforcerEvent:
    return EnforcerEvent(strategy=strategy, target=target, knob=knob, outcome=outcome)


def test_evictions_that_began_count_for_their_workload() -> None:
    counts = EvictionCounts()
    events = [
        event("/pods/a", Outcome.EVICTED),
        event("/pods/a", Outcome.EVICTING),
        event("/pods/a", Outcome.COOLDOWN),
        event("/batch", Outcome.TERMINATED, strategy="cpu_evict"),
        event("/batch", Outcome.SET, knob="cpu.max"),
    ]
    counts.note(events, CGROUPS)
    counts.note([event("/gone/x", Outcome.EVICTED)], CGROUPS)
    assert counts.counts == {
        ("shop", "spark", "memory_evict"): 1,
        ("", "batch", "cpu_evict"): 1,
        ("", "x", "memory_evict"): 1,
    }


def test_owners_beyond_the_bound_count_together() -> None:
    counts = EvictionCounts()
    for number in range(MOST_OWNERS + 5):
        counts.note([event(f"/job-{number}", Outcome.EVICTED)], ())
    assert len(counts.counts) == MOST_OWNERS + 1
    assert counts.counts[OTHER, OTHER, "memory_evict"] == 5
