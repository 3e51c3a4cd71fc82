"""Pools in NodeSLOs: peaks are learned from reports, stated, kept over a restart, and members come from grades."""

import json
from typing import Any

import msgspec

from api.crds import NodeMetric, NodeSLO, WorkloadProfile
from api.kube.times import rfc3339
from cluster import DeltaType, Key, StoreDelta
from controllers.capacity.pool_peaks import PoolPeaks
from controllers.forecast.day_peaks import MIN_HOURS
from controllers.kinds import CONFIG_MAP, NODE, NODE_METRIC, NODE_SLO, POD, WORKLOAD_PROFILE
from controllers.plans.node_slo import ANNOTATION_PEAKS_TIME, NodeSLOs
from controllers.runtime.view import ClusterCopy
from tests.capacity import a_node, a_pod, usage
from tests.controllers.plans.test_node_slo import config
from tests.managed import CONFIG, built, copy_of

BEGIN = 1_799_971_200.0
"""Midnight."""
WEB, BATCH = {"name": "web", "priorityClasses": ["koord-prod"]}, {"name": "rest", "priorityClasses": ["koord-batch"]}
PODS = [a_pod("shop", 4, qos="LS", priority=9500), a_pod("job", 1, qos="BE", priority=5500)]


def extension(*pools: Any, **more: Any) -> Any:
    strategy = {"enable": True, "pools": list(pools or (WEB, BATCH)), **more}
    return config(extensions_config={"resourcePools": {"clusterStrategy": strategy}})


def report(time: float, shop: float = 1.0, workload: str = "", **more: Any) -> NodeMetric:
    pods = [
        {"name": "shop", "namespace": "d", "podUsage": usage(shop, "1G"), "qos": "LS", "priority": "koord-prod"},
        {"name": "job", "namespace": "d", "podUsage": usage(2, "1G"), "qos": "BE", "priority": "koord-batch"},
        {"name": "own", "namespace": "d", "podUsage": usage(8, "1G"), "qos": "LSR", "priority": "koord-prod"},
    ]
    if workload:
        pods[0]["extensions"] = {"workload": workload}
    status = {"updateTime": rfc3339(time), "podsMetric": pods, **more}
    return msgspec.convert({"metadata": {"name": "n1", "resourceVersion": "1"}, "status": status}, NodeMetric)


def heard(copy: ClusterCopy, metric: NodeMetric) -> None:
    copy.apply(NODE_METRIC, [StoreDelta(DeltaType.UPDATED, Key("", "n1"), None, metric)])


def shop_cores(hour: int) -> float:
    """Use of a service: 6 cores from 9 to 17 o'clock, else 1."""
    return 6.0 if 9 <= hour % 24 < 17 else 1.0


def learned(hours: int, *pools: Any, slo: NodeSLO | None = None) -> tuple[Any, ClusterCopy]:
    controller = built(NodeSLOs, pool_outlook=True)
    objects = {CONFIG_MAP: [extension(*pools)], NODE: [a_node()], POD: PODS, NODE_SLO: [slo] if slo else []}
    copy = copy_of(controller, objects)
    for hour in range(hours):
        for minute in (0, 30):
            heard(copy, report(BEGIN + hour * 3600 + minute * 60, shop_cores(hour) - minute / 100))
    return controller, copy


def planned(controller: Any, copy: ClusterCopy, now: float) -> Any:
    return [each.body for each in controller.plan(copy.view("it", full=False), now).writes]


def stated(body: Any) -> Any:
    return {pool["name"]: pool.get("peakMillicores") for pool in body["spec"]["extensions"]["resourcePools"]["pools"]}


def test_the_hours_of_the_day_are_learned_and_stated_and_who_owns_cpus_is_not_counted() -> None:
    controller, copy = learned(MIN_HOURS + 1)
    now = BEGIN + MIN_HOURS * 3600
    (body,) = planned(controller, copy, now)
    peaks = stated(body)
    assert [each >= 6000 for each in peaks["web"]] == [9 <= hour < 17 for hour in range(24)]
    assert max(peaks["web"]) <= 6600
    assert set(peaks["rest"]) == {2000}
    assert body["metadata"]["annotations"][ANNOTATION_PEAKS_TIME] == rfc3339(now)
    lines = controller.explain(copy.view("it", full=True), "nodeslos.slo.koordinator.sh", Key("", "n1"), now)
    assert any(f"pool web: {MIN_HOURS} hours learned" in line for line in lines)


def test_nothing_is_stated_of_the_young_or_where_it_is_not_asked_for() -> None:
    controller, copy = learned(MIN_HOURS)
    assert stated(planned(controller, copy, BEGIN)[0]) == {"web": None, "rest": None}
    off = built(NodeSLOs)
    assert PoolPeaks not in off.projections
    assert PoolPeaks in controller.projections


def test_after_a_restart_what_is_stated_stays_for_a_week() -> None:
    controller, copy = learned(MIN_HOURS + 1)
    now = BEGIN + MIN_HOURS * 3600
    (body,) = planned(controller, copy, now)
    slo = msgspec.convert({**body, "metadata": {**body["metadata"], "resourceVersion": "3"}}, NodeSLO)
    fresh, fresh_copy = learned(1, slo=slo)
    assert planned(fresh, fresh_copy, now + 6 * 86_400) == []
    (late,) = planned(fresh, learned(1, slo=slo)[1], now + 8 * 86_400)
    assert stated(late) == {"web": None, "rest": None}
    assert late["metadata"]["annotations"] == {ANNOTATION_PEAKS_TIME: None}


def test_a_restated_configuration_starts_only_the_pools_anew_that_it_changes() -> None:
    controller, copy = learned(MIN_HOURS + 1)
    changed = extension({**WEB, "labels": {"a": "b"}}, BATCH)
    copy.apply(CONFIG_MAP, [StoreDelta(DeltaType.UPDATED, CONFIG, None, changed)])
    (body,) = planned(controller, copy, BEGIN + MIN_HOURS * 3600)
    peaks = stated(body)
    assert peaks["web"] is None
    assert peaks["rest"] is not None


def test_a_grade_makes_members_of_the_workloads_that_lose_most() -> None:
    resources = [{"name": "cache", "sensitivity": [{"loadFrom": 0, "loadTo": 1, "lostSecondsPerPressure": 0.3}]}]
    profile = msgspec.convert(
        {
            "metadata": {"name": "w", "namespace": "d", "resourceVersion": "1"},
            "spec": {"workload": {"kind": "Deployment", "name": "shop"}, "container": ""},
            "status": {"resources": resources},
        },
        WorkloadProfile,
    )
    for least, expected in ((0.2, ["Deployment/d/shop"]), (0.4, [])):
        graded = {"name": "graded", "leastSensitivity": least}
        controller, copy = learned(0, graded, WEB, BATCH)
        copy.apply(WORKLOAD_PROFILE, [StoreDelta(DeltaType.ADDED, Key("d", "w"), None, profile)])
        heard(copy, report(BEGIN, workload="Deployment/d/shop"))
        (body,) = planned(controller, copy, BEGIN)
        pool = body["spec"]["extensions"]["resourcePools"]["pools"][0]
        assert pool == {"name": "graded", "workloads": expected}


def test_strange_reports_and_configurations_change_nothing() -> None:
    controller, copy = learned(MIN_HOURS + 1)
    now = BEGIN + MIN_HOURS * 3600
    (before,) = planned(controller, copy, now)
    heard(copy, msgspec.convert({"metadata": {"name": "n1"}, "status": {"updateTime": "soon"}}, NodeMetric))
    odd = [{"name": "shop", "namespace": "d", "podUsage": usage("many", 1), "extensions": {"workload": 7}}]
    heard(copy, report(now, podsMetric=odd))
    heard(copy, report(now + 365 * 86_400))
    heard(copy, report(now + 60))
    assert [stated(each) for each in planned(controller, copy, now)] == [stated(before)]
    text = json.dumps({"resourcePools": {"clusterStrategy": {"pools": [1, {"name": []}]}}})
    odd_config = config(extensions_config=text)
    copy.apply(
        CONFIG_MAP,
        [StoreDelta(DeltaType.UPDATED, CONFIG, None, odd_config)],
    )
    (body,) = planned(controller, copy, now)
    assert body["spec"]["extensions"]["resourcePools"]["pools"] == [1, {"name": []}]
