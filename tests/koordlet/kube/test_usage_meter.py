"""Usage of pods, host applications and the rest of the node, with and without the probe."""

import math

import pytest

from koordlet.kube.usage_meter import THROTTLED, WAITED, TickUsage, UsageMeter
from tests.koordlet.kube.test_verdict_entries import BATCH, WEB, cgroup
from tests.koordlet.kube.ticks import GIB, Node

WEB_POD, BATCH_POD = (f"/kubepods/burstable/pod{uid}" for uid in (WEB, BATCH))
APP = "/host-latency-sensitive/proxy"


def node(**given: object) -> Node:
    cores = {WEB_POD: 0.0, cgroup(WEB): 0.2, cgroup(WEB, "b"): 0.3, BATCH_POD: 0.0, cgroup(BATCH): 1.0, APP: 0.25}
    memory = {WEB_POD: 1.0 * GIB, BATCH_POD: 0.5 * GIB, APP: 0.25 * GIB}
    return Node(cores | {"/system.slice/x.service": 0.1}, memory, **given)  # type: ignore[arg-type]


def measured(made: Node, ticks: int = 1) -> TickUsage:
    meter = UsageMeter(10.0)
    for _ in range(ticks - 1):
        meter.measure(made.tick(), {APP: "proxy"})
    return meter.measure(made.tick(), {APP: "proxy"})


def test_a_pod_uses_what_all_its_containers_use() -> None:
    usage = measured(node())
    assert usage.pods[WEB] == pytest.approx((0.5, 1.0 * GIB, 2.0 * GIB))
    assert usage.pods[BATCH] == pytest.approx((1.0, 0.5 * GIB, 1.0 * GIB))
    assert usage.applications["proxy"] == pytest.approx((0.25, 0.25 * GIB, 0.5 * GIB))


def test_the_system_uses_the_rest_and_never_less_than_nothing() -> None:
    usage = measured(node())
    assert usage.node == pytest.approx((2.0, 2.0 * GIB, 7.0 * GIB))
    assert usage.system == pytest.approx((0.25, 0.25 * GIB, 3.5 * GIB))
    assert measured(node(busy_cores=0.5)).system[0] == 0.0


def test_without_the_probe_usage_comes_from_clocks_that_are_read_in_turn() -> None:
    usage = measured(node(probe=False), ticks=30)
    assert usage.pods[WEB][0] == pytest.approx(0.5)
    assert usage.pods[BATCH][0] == pytest.approx(1.0)
    assert usage.applications["proxy"][0] == pytest.approx(0.25)


def test_before_its_clock_was_read_twice_a_pods_usage_is_not_known() -> None:
    usage = measured(node(probe=False), ticks=2)
    assert math.isnan(usage.pods[WEB][0])
    assert math.isnan(usage.system[0])


def test_a_clock_that_stands_still_for_longer_than_a_turn_is_an_idle_pod() -> None:
    made = node(probe=False)
    meter = UsageMeter(10.0)
    for second in range(60):
        if second == 30:
            made.cores = dict.fromkeys(made.cores, 0.0)
            made.turn = 10_000  # the clocks keep their last reading
        usage = meter.measure(made.tick(), {})
    assert usage.pods[WEB][0] == 0.0


def test_a_new_pod_without_memory_figures_leaves_the_system_known() -> None:
    made = node()
    made.memory_bytes = {WEB_POD: 1.0 * GIB}
    usage = measured(made)
    assert math.isnan(usage.pods[BATCH][1])
    assert usage.system[1] == pytest.approx(1.0 * GIB)


def test_an_application_within_another_counts_once() -> None:
    made = node()
    names = {"/host-latency-sensitive": "outer", APP: "proxy"}
    assert set(UsageMeter(10.0).measure(made.tick(), names).applications) == {"proxy"}, "the outer one does not exist"
    made = Node({"/host-latency-sensitive": 0.5, APP: 0.25}, {})
    usage = UsageMeter(10.0).measure(made.tick(), names)
    assert usage.applications.keys() == {"outer"}
    assert usage.applications["outer"][0] == pytest.approx(0.75)


def test_a_node_without_pods_is_all_system() -> None:
    usage = UsageMeter(10.0).measure(Node({"/x": 1.0}, {}).tick(), {})
    assert usage.pods == {}
    assert usage.system == pytest.approx(usage.node)


@pytest.mark.parametrize(
    ("cause", "columns"), [pytest.param("throttled", THROTTLED, id="quota"), pytest.param("waited", WAITED, id="waits")]
)
def test_a_pod_loses_what_its_containers_lose(cause: str, columns: tuple[str, ...]) -> None:
    made = node(**{cause: {WEB_POD: 0.1, cgroup(WEB, "b"): 0.3, APP: 9.0}})
    meter = UsageMeter(10.0)
    for _ in range(3):
        tick = made.tick()
        meter.measure(tick, {APP: "proxy"})
    assert meter.lost_seconds(tick, columns) == pytest.approx({WEB: 0.4, BATCH: 0.0})


def test_without_the_probe_nothing_is_told_of_lost_time() -> None:
    made = node(probe=False)
    meter = UsageMeter(10.0)
    tick = made.tick()
    meter.measure(tick, {})
    assert meter.lost_seconds(tick, THROTTLED) is None
    assert meter.lost_seconds(tick, WAITED) is None
