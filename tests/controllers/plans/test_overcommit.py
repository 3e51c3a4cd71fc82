"""Batch and mid resources: Koordinator's own examples, when values are written, withdrawn and explained."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from api.crds import NodeMetric
from api.kube.meta import ObjectMeta
from api.kube.numa import NodeResourceTopology
from api.kube.times import rfc3339
from cluster import NODES, PODS, Key
from cluster.twin import Twin, TwinSettings
from controllers.capacity.interference import ANNOTATION_FACTOR, InterferenceSettings
from controllers.capacity.third_party import ANNOTATION_ORIGIN, ANNOTATION_THIRD_PARTY
from controllers.kinds import CONFIG_MAP, NODE, NODE_METRIC, NODE_RESOURCE_TOPOLOGY, POD, ConfigMap, Node, Pod
from controllers.plans.overcommit import BATCH, MID, Overcommit
from controllers.runtime.writes import Target, Write
from tests.capacity import NOW, G, a_node, a_pod, a_report, a_usage, to_load, usage
from tests.managed import CONFIG, built, copy_of, running, view_of
from tests.waiting import wait_for

BATCH_CPU, BATCH_MEMORY = BATCH
MID_CPU, MID_MEMORY = MID


def config(**colocation: Any) -> ConfigMap:
    text = json.dumps({"enable": True, "cpuReclaimThresholdPercent": 65, **colocation})
    return ConfigMap(
        metadata=ObjectMeta(name=CONFIG.name, namespace=CONFIG.namespace), data={"colocation-config": text}
    )


def cluster(
    maps: ConfigMap,
    nodes: Sequence[Node],
    reports: Sequence[NodeMetric] = (),
    pods: Sequence[Pod] = (),
    zones: Sequence[NodeResourceTopology] = (),
) -> dict[Any, Any]:
    return {CONFIG_MAP: [maps], NODE: nodes, NODE_METRIC: reports, POD: pods, NODE_RESOURCE_TOPOLOGY: zones}


def writes(objects: dict[Any, Any], now: float = NOW, **settings: Any) -> Sequence[Write]:
    controller = built(Overcommit, **settings)
    return controller.plan(view_of(controller, objects), now).writes


def sold(objects: dict[Any, Any], now: float = NOW, **settings: Any) -> dict[str, int]:
    for write in writes(objects, now, **settings):
        if write.subresource == "status":
            assert write.body["status"]["capacity"] == write.body["status"]["allocatable"]
            found = {name: int(value) for name, value in write.body["status"]["allocatable"].items()}
            assert "batch-cpu" in write.reason
            return found
    return {}


EXAMPLE_PODS = [
    a_pod("prod", 20, "20G", qos="LS", priority=9500),
    a_pod("batch", 0, 0, qos="BE", priority=5500),
    a_pod("pending", 22, "22G", phase="Pending", guaranteed=True),
]
EXAMPLE_REPORT = a_report(system=(7, "12G"), pods=[a_usage("prod", 11, "11G"), a_usage("batch", 10, "10G")])
# The request of `prod` where a policy counts requests: 42 cores and 60G with the pending pod.
REQUESTED = [a_pod("prod", 20, "38G", qos="LS", priority=9500), *EXAMPLE_PODS[1:]]


@pytest.mark.parametrize(
    ("strategy", "pods", "cpu", "memory"),
    [
        pytest.param({}, EXAMPLE_PODS, 25_000, 33 * G, id="usage"),
        pytest.param(
            {
                "cpuReclaimThresholdPercent": 70,
                "memoryReclaimThresholdPercent": 80,
                "memoryCalculatePolicy": "request",
            },
            REQUESTED,
            30_000,
            36 * G,
            id="memory-by-request",
        ),
        pytest.param({"batchCPUThresholdPercent": 20}, EXAMPLE_PODS, 20_000, 33 * G, id="limit"),
        pytest.param({"batchMemoryThresholdPercent": 0}, EXAMPLE_PODS, 25_000, 0, id="limit-zero"),
    ],
)
def test_batch_by_the_formulas(strategy: dict[str, Any], pods: list[Pod], cpu: int, memory: int) -> None:
    found = sold(cluster(config(**strategy), [a_node()], [EXAMPLE_REPORT], pods))
    assert (found[BATCH_CPU], found[BATCH_MEMORY]) == (cpu, memory)


MEASURED = [
    a_pod("prod", 20, "20G", qos="LS", priority=9500),
    a_pod("other", 22, "40G", guaranteed=True),
    a_pod("batch", 0, 0, qos="BE", priority=5500),
]
MEASURED_REPORT = a_report(
    system=(7, "12G"),
    pods=[a_usage("prod", 11, "11G"), a_usage("other", 22, "22G"), a_usage("batch", 10, "10G")],
)


@pytest.mark.parametrize(
    ("strategy", "cpu", "memory"),
    [
        pytest.param(
            {
                "cpuReclaimThresholdPercent": 70,
                "memoryReclaimThresholdPercent": 80,
                "cpuCalculatePolicy": "maxUsageRequest",
                "memoryCalculatePolicy": "request",
            },
            21_000,
            36 * G,
            id="max-of-usage-and-request",
        ),
        pytest.param(
            {"cpuReclaimThresholdPercent": 150, "cpuCalculatePolicy": "maxUsageRequest"}, 101_000, 33 * G, id="over-100"
        ),
        pytest.param(
            {
                "cpuReclaimThresholdPercent": 150,
                "cpuCalculatePolicy": "maxUsageRequest",
                "batchCPUThresholdPercent": 100,
            },
            100_000,
            33 * G,
            id="over-100-limited",
        ),
    ],
)
def test_batch_by_the_larger_of_usage_and_request(strategy: dict[str, Any], cpu: int, memory: int) -> None:
    found = sold(cluster(config(**strategy), [a_node()], [MEASURED_REPORT], MEASURED))
    assert (found[BATCH_CPU], found[BATCH_MEMORY]) == (cpu, memory)


def test_the_cpus_of_lse_pods_are_not_reclaimed() -> None:
    pods = [
        a_pod("exclusive", 10, "10G", qos="LSE", priority=9500),
        a_pod("prod", 6, "5G", qos="LS", priority=9500),
        a_pod("mid", 22, "22G", qos="LS", priority=7500),
        a_pod("batch", 0, 0, qos="BE", priority=5500),
    ]
    report = a_report(
        system=(7, "12G"),
        pods=[
            a_usage("exclusive", 5, "5G"),
            a_usage("prod", 6, "6G"),
            a_usage("mid", 22, "22G"),
            a_usage("batch", 10, "10G"),
        ],
    )
    found = sold(cluster(config(), [a_node()], [report], pods))
    assert (found[BATCH_CPU], found[BATCH_MEMORY]) == (20_000, 33 * G)


@pytest.mark.parametrize(
    ("strategy", "reclaimable", "used", "cpu", "memory"),
    [
        pytest.param({}, (10, "15G"), (20, "45G"), 10_000, 15 * G, id="reclaimable"),
        pytest.param(
            {"midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 20, "midUnallocatedPercent": 10},
            (15, "30G"),
            (30, "50G"),
            10_000,
            42 * G,
            id="limited",
        ),
        pytest.param({}, (50, "15G"), (95, "45G"), 5_000, 15 * G, id="no-more-than-unused"),
        pytest.param(
            {"midReclaimMode": "static", "midStaticCPUReservedPercent": 20, "midStaticMemoryReservedPercent": 10,
             "midMemoryThresholdPercent": 5},
            (50, "15G"), (95, "45G"), 20_000, int(10.5 * G), id="static",
        ),
    ],
)  # fmt: skip
def test_mid_by_the_formulas(strategy: dict[str, Any], reclaimable: Any, used: Any, cpu: int, memory: int) -> None:
    pods = [a_pod("prod", 20, "10G", qos="LS", priority=9500)]
    report = a_report(system=(0, 0), used=used, reclaimable=reclaimable, pods=[a_usage("prod", 5, "5G")])
    found = sold(cluster(config(**strategy), [a_node(memory="210G")], [report], pods))
    assert (found[MID_CPU], found[MID_MEMORY]) == (cpu, memory)


def test_normalization_multiplies_batch_cpu_once() -> None:
    node = a_node(annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.20"})
    assert sold(cluster(config(), [node], [EXAMPLE_REPORT], EXAMPLE_PODS))[BATCH_CPU] == 30_000


def test_what_third_parties_hold_is_subtracted_and_the_origin_stated() -> None:
    resources = {BATCH_CPU: "10000", BATCH_MEMORY: str(10 << 30)}
    held = {"allocations": [{"name": "yarn", "priority": "koord-batch", "resources": resources}]}
    node = a_node(cpu=200, memory=200 << 30, annotations={ANNOTATION_THIRD_PARTY: json.dumps(held)})
    maps = config(batchCPUThresholdPercent=25, batchMemoryThresholdPercent=60)
    status, metadata = writes(cluster(maps, [node], [a_report()]))
    assert status.body["status"]["allocatable"][BATCH_CPU] == "40000"
    assert status.body["status"]["allocatable"][BATCH_MEMORY] == str(110 << 30)
    origin = json.loads(metadata.body["metadata"]["annotations"][ANNOTATION_ORIGIN])
    assert origin == {"resources": {BATCH_CPU: "50000", BATCH_MEMORY: str(120 << 30)}}


def test_host_applications_of_prod_and_mid_count_as_system() -> None:
    applications = [
        {"name": "nginx", "usage": usage(2, "1G"), "priority": "koord-prod", "qos": "LS"},
        {"name": "middle", "usage": usage(1, "1G"), "priority": "koord-mid", "qos": "LS"},
        {"name": "yarn", "usage": usage(9, "9G"), "priority": "koord-batch", "qos": "BE"},
    ]
    report = a_report(system=(7, "12G"), applications=applications)
    assert sold(cluster(config(), [a_node()], [report]))[BATCH_CPU] == 55_000


@pytest.mark.parametrize(
    ("node", "cpu"),
    [
        pytest.param(a_node(allocatable={"cpu": "90"}), 55_000, id="kubelet"),
        pytest.param(
            a_node(annotations={"node.koordinator.sh/reservation": '{"resources":{"cpu":"20"}}'}), 45_000, id="amount"
        ),
        pytest.param(
            a_node(annotations={"node.koordinator.sh/reservation": '{"resources":{"cpu":"20"},"reservedCPUs":"0-14"}'}),
            50_000,
            id="cpus",
        ),
        pytest.param(a_node(annotations={"node.koordinator.sh/reservation": "{"}), 58_000, id="unreadable"),
    ],
)
def test_the_larger_of_use_and_reservation_is_the_systems(node: Node, cpu: int) -> None:
    assert sold(cluster(config(), [node], [a_report(system=(7, 0))]))[BATCH_CPU] == cpu


def test_a_metric_without_a_pod_counts_by_its_band() -> None:
    dangling = [a_usage("gone", 5, "5G", priority="koord-prod"), a_usage("old", 5, "5G", priority="koord-batch")]
    assert sold(cluster(config(), [a_node()], [a_report(pods=dangling)]))[BATCH_CPU] == 60_000


PUBLISHED = {BATCH_CPU: 25_000, BATCH_MEMORY: 33 * G, MID_CPU: 0, MID_MEMORY: 0}


def published(**changed: int) -> Node:
    names = {"batch_cpu": BATCH_CPU, "batch_memory": BATCH_MEMORY, "mid_cpu": MID_CPU}
    return a_node(published={**PUBLISHED, **{names[name]: value for name, value in changed.items()}})


@pytest.mark.parametrize(
    ("node", "written"),
    [
        pytest.param(published(), False, id="equal"),
        pytest.param(published(batch_cpu=24_000), False, id="small-difference"),
        pytest.param(published(batch_cpu=22_000), True, id="large-difference"),
        pytest.param(published(mid_cpu=1), True, id="to-zero"),
        pytest.param(a_node(), True, id="none-yet"),
    ],
)
def test_small_differences_wait_for_their_time(node: Node, written: bool) -> None:
    controller = built(Overcommit)
    copy = copy_of(controller, cluster(config(), [node], [EXAMPLE_REPORT], EXAMPLE_PODS))
    copy.written["it"][Target("nodes", Key("", "n1"))] = NOW - 299
    plan = controller.plan(copy.view("it", full=True), NOW)
    assert bool(plan.writes) == written
    later = controller.plan(copy.view("it", full=True), NOW + 1)
    assert bool(later.writes) == (written or node.status.allocatable[BATCH_CPU] == "24000")


def test_without_a_known_last_write_nodes_take_turns() -> None:
    nodes = [a_node(f"n{number}", published={**PUBLISHED, BATCH_CPU: 57_000}) for number in range(100)]
    reports = [a_report(f"n{number}", system=(7, "12G")) for number in range(100)]
    maps = config(memoryReclaimThresholdPercent=37, batchMemoryThresholdPercent=27)
    counts = []
    for slot in range(5):
        found = writes(cluster(maps, nodes, reports), NOW + 60 * slot)
        counts.append(len(found))
    assert max(counts) <= 40
    assert sum(counts) == 100


@pytest.mark.parametrize(
    ("report", "colocation"),
    [
        pytest.param(a_report(updated=None), {}, id="never"),
        pytest.param(a_report(updated=rfc3339(NOW - 901)), {}, id="old"),
        pytest.param(EXAMPLE_REPORT, {"enable": False}, id="off"),
    ],
)
def test_resources_are_withdrawn_once(report: NodeMetric, colocation: dict[str, Any]) -> None:
    (write,) = writes(cluster(config(**colocation), [published()], [report]))
    assert write.body["status"]["allocatable"] == dict.fromkeys(PUBLISHED)
    assert write.event is not None
    assert write.event.type == "Warning"
    assert not writes(cluster(config(**colocation), [a_node()], [report]))


def test_a_report_is_not_old_for_what_an_absent_api_server_did_not_take() -> None:
    controller = built(Overcommit)
    objects = cluster(config(), [published()], [a_report(updated=rfc3339(NOW - 1800), system=(7, "12G"))], EXAMPLE_PODS)
    view = view_of(controller, objects, heard_since_seconds=NOW - 60)
    assert all(None not in write.body["status"]["allocatable"].values() for write in controller.plan(view, NOW).writes)
    view = view_of(controller, objects, heard_since_seconds=NOW - 901)
    (write,) = controller.plan(view, NOW).writes
    assert None in write.body["status"]["allocatable"].values()


def test_a_whole_cluster_that_is_silent_at_once_keeps_its_resources_for_a_while() -> None:
    def silent(seconds: float) -> Sequence[Write]:
        nodes = [a_node(f"n{number}", published=PUBLISHED) for number in range(3)]
        reports = [a_report(f"n{number}", updated=rfc3339(NOW - seconds)) for number in range(3)]
        return writes(cluster(config(), nodes, reports))

    assert not silent(901)
    assert not silent(1799)
    assert len(silent(1801)) == 3


def zoned(**batch: str) -> NodeResourceTopology:
    def zone(number: int) -> dict[str, Any]:
        amounts = {"cpu": "50", "memory": "60G"}
        return {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [{"name": each, "capacity": value, "allocatable": value} for each, value in amounts.items()],
        }

    document = {"metadata": {"name": "n1", "resourceVersion": "5"}, "zones": [zone(0), zone(1)]}
    return msgspec.convert(document, NodeResourceTopology)


def zone_values(objects: dict[Any, Any]) -> list[dict[str, str]]:
    (write,) = [each for each in writes(objects) if each.resource is NODE_RESOURCE_TOPOLOGY]
    assert write.version == "5"
    return [
        {each["name"]: each["allocatable"] for each in zone["resources"] if "batch" in each["name"]}
        for zone in write.body["zones"]
    ]


def test_zones_share_what_has_no_zone_and_pods_count_on_theirs() -> None:
    status = {"numaNodeResources": [{"node": 0, "resources": {}}]}
    annotations = {"scheduling.koordinator.sh/resource-status": json.dumps(status)}
    pods = [
        a_pod("prod", 20, "20G", qos="LS", priority=9500),
        a_pod("bound", 4, "2G", qos="LSR", priority=9500, annotations=annotations),
    ]
    report = a_report(system=(7, "12G"), pods=[a_usage("prod", 11, "11G"), a_usage("bound", 4, "2G")])
    first, second = zone_values(cluster(config(), [a_node()], [report], pods, [zoned()]))
    # 50 cores less 35 %, half the system (3.5) and half of prod (5.5), and the bound pod on its zone alone.
    assert (first[BATCH_CPU], second[BATCH_CPU]) == ("19500", "23500")
    assert (first[BATCH_MEMORY], second[BATCH_MEMORY]) == (str(int(25.5 * G)), str(int(27.5 * G)))


def test_at_zones_reports_of_pods_without_an_object_count_as_on_the_node() -> None:
    reports = [a_usage("gone", 10, "10G", qos="LS"), a_usage("batch", 8, "8G", qos="BE")]
    objects = cluster(config(), [a_node()], [a_report(pods=reports)], (), [zoned()])
    assert [each[BATCH_CPU] for each in zone_values(objects)] == ["27500", "27500"]
    assert sold(objects)[BATCH_CPU] == 55_000


def test_at_zones_pods_without_a_metric_count_under_the_larger_of_both() -> None:
    pods = [a_pod("new", 10, "10G", qos="LS", priority=9500)]
    maps = config(cpuCalculatePolicy="maxUsageRequest")
    first, _ = zone_values(cluster(maps, [a_node()], [a_report()], pods, [zoned()]))
    assert first[BATCH_CPU] == "27500"
    assert sold(cluster(maps, [a_node()], [a_report()], pods))[BATCH_CPU] == 65_000


VERDICT = {"resource": "cpu", "lostSecondsPerSecond": 3.3, "until": rfc3339(NOW + 60)}


def hurt(until: float = NOW + 60, lost: float = 3.3) -> NodeMetric:
    """A service of 11 cores."""
    verdict = {**VERDICT, "until": rfc3339(until), "lostSecondsPerSecond": lost}
    victim = a_usage("prod", 11, "11G", qos="LS", extensions={"interference": {"verdicts": [verdict]}})
    return a_report(system=(7, "12G"), pods=[victim])


def factor_writes(node: Node, report: NodeMetric, now: float = NOW) -> tuple[dict[str, int], dict[str, Any]]:
    settings = {"interference": InterferenceSettings(enabled=True)}
    objects = cluster(config(), [node], [report], EXAMPLE_PODS[:1])
    state: dict[str, Any] = {}
    for write in writes(objects, now, **settings):
        text = (write.body.get("metadata") or {}).get("annotations", {}).get(ANNOTATION_FACTOR)
        if text:
            state = json.loads(text)
    return sold(objects, now, **settings), state


def test_a_node_whose_services_lose_time_sells_less_in_bounded_steps() -> None:
    found, state = factor_writes(a_node(), hurt())
    assert state["cpu"] == 0.9
    assert found[BATCH_CPU] == int((100_000 - 35_000 - 7_000 - 11_000) * 0.9)
    again = a_node(annotations={ANNOTATION_FACTOR: json.dumps({**state, "at": rfc3339(NOW - 59)})})
    assert not factor_writes(again, hurt())[1], "the next step is not due yet"
    low = a_node(annotations={ANNOTATION_FACTOR: json.dumps({**state, "cpu": 0.52, "at": rfc3339(NOW - 61)})})
    assert factor_writes(low, hurt())[1]["cpu"] == 0.5, "and never below the bound"


def test_a_tolerated_loss_sells_all_and_one_above_it_less_in_proportion() -> None:
    def settled(lost: float, cpu: float = 1.0) -> float:
        for _ in range(100):
            state = {"cpu": cpu, "memory": 1.0, "at": rfc3339(NOW - 301)}
            node = a_node(annotations={ANNOTATION_FACTOR: json.dumps(state)})
            cpu = factor_writes(node, hurt(lost=lost), NOW)[1].get("cpu", cpu)
        return cpu

    tolerated = 0.05 * 11
    assert settled(0.9 * tolerated) == 1.0
    assert settled(0.9 * tolerated, cpu=0.8) == 1.0, "nor does it keep a factor down"
    assert settled(1.5 * tolerated) == pytest.approx(1 - 5 * 0.025)
    assert settled(2 * tolerated) == settled(2 * tolerated, cpu=0.5) == pytest.approx(1 - 5 * 0.05)
    assert settled(20.0) == 0.5, "more than they use"


def test_a_calm_node_recovers_and_after_a_day_sells_more() -> None:
    def node(cpu: float, calm_since: float, at: float) -> Node:
        state = {"cpu": cpu, "memory": 1.0, "at": rfc3339(at), "calmSince": rfc3339(calm_since)}
        return a_node(annotations={ANNOTATION_FACTOR: json.dumps(state)})

    over = hurt(until=NOW - 1)
    assert factor_writes(node(0.6, NOW - 3600, NOW - 301), over)[1]["cpu"] == 0.62
    assert not factor_writes(node(0.6, NOW - 3600, NOW - 299), over)[1]
    assert not factor_writes(node(1.0, NOW - 3600, NOW - 301), over)[1]
    found, state = factor_writes(node(1.08, NOW - 90_000, NOW - 301), over)
    assert state["cpu"] == 1.1
    assert found[BATCH_CPU] == int((100_000 - 35_000 - 7_000 - 11_000) * 1.1)


def test_the_factor_is_off_unless_asked_for() -> None:
    found = sold(cluster(config(), [a_node()], [hurt()], EXAMPLE_PODS[:1]))
    assert found[BATCH_CPU] == 100_000 - 35_000 - 7_000 - 11_000


def test_a_node_that_just_evicted_sells_what_its_batch_pods_hold_until_it_cooled_down() -> None:
    wish = {"key": "node.koordinator.sh/eviction-cooldown", "effect": "PreferNoSchedule", "until": rfc3339(NOW + 60)}
    report = a_report(system=(7, "12G"), extensions={"wantedTaints": [wish]})
    pods = [a_pod("spark", qos="BE", priority=5500, requests={BATCH_CPU: "4000", BATCH_MEMORY: "8000"})]
    objects = cluster(config(), [a_node()], [report], pods)
    found = sold(objects)
    assert (found[BATCH_CPU], found[BATCH_MEMORY]) == (4000, 8000)
    assert sold(objects, NOW + 61)[BATCH_CPU] == 58_000
    assert sold(objects, hold_after_eviction=False)[BATCH_CPU] == 58_000
    controller = built(Overcommit)
    text = "\n".join(controller.explain(view_of(controller, objects), "nodes", Key("", "n1"), NOW))
    assert "no more is sold than batch pods hold" in text


def test_it_explains_a_value_with_inputs_formula_and_limits() -> None:
    controller = built(Overcommit)
    maps = config(batchCPUThresholdPercent=20)
    view = view_of(controller, cluster(maps, [a_node()], [EXAMPLE_REPORT], EXAMPLE_PODS))
    text = "\n".join(controller.explain(view, "nodes", Key("", "n1"), NOW))
    assert "100000 capacity - 35000 margin - 7000 system" in text
    assert "- 33000 pods by usage = 25000, limited to 20000 -> 20000 millicores" in text
    assert "pods without a metric, counted by request: 1" in text
    assert "published kubernetes.io/batch-cpu: nothing" in text


@pytest.mark.parametrize("value", ["1e400", "-5", "x", "99999999999999999999999999"])
def test_amounts_from_strangers_neither_raise_nor_overflow(value: str) -> None:
    node = a_node(cpu=value, memory=value)
    report = a_report(system=(value, value), pods=[a_usage("p", value, value)], used=(value, value))
    maps = config(cpuReclaimThresholdPercent=10**18, degradeTimeMinutes=10**18)
    found = sold(cluster(maps, [node], [report], [a_pod("p", value, value)]))
    assert all(amount >= 0 for amount in found.values())


def test_against_a_server_batch_resources_follow_the_reports() -> None:
    with Twin(TwinSettings(termination_seconds=0.05)) as twin, twin.client() as client:
        for kind in (NODE_METRIC, NODE_RESOURCE_TOPOLOGY):
            twin.serve(kind)
        twin.load(CONFIG_MAP, [to_load(config())])
        twin.load(NODES, [to_load(a_node())])
        twin.load(PODS, [to_load(pod) for pod in EXAMPLE_PODS])
        twin.load(NODE_METRIC, [to_load(EXAMPLE_REPORT)])

        def batch_cpu() -> str | None:
            status = twin.objects(NODES)[Key("", "n1")]["status"]
            value: str | None = status["allocatable"].get(BATCH_CPU)
            return value

        with running(twin, {"overcommit": built(Overcommit)}, clock=lambda: NOW):
            wait_for(lambda: batch_cpu() == "25000")
            client.delete(PODS, Key("d", "pending"))
            wait_for(lambda: batch_cpu() == "47000")
