"""Objects at random: no plugin, filter or step raises, and no pod is chosen that may not be moved."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.crds import NodeMetric
from api.crds.placement import PodMigrationJob, Reservation
from api.kube.objects import Node, Pod
from controllers.descheduler.configuration import plugin_types
from controllers.descheduler.eviction_filter import EvictionFilter, FilterArgs
from controllers.descheduler.kinds import MIGRATION, NODE, POD, RESERVATION, WORKLOADS
from controllers.migration.migrations import Migrations
from controllers.migration.settings import MigrationArgs
from controllers.runtime.writes import Verb
from tests.descheduling import NOW, a_cluster, a_plugin, a_view, a_workload, ran

ODD = st.sampled_from(
    ["", "0", "-1", "1e400", "NaN", "9" * 50, "x", "[" * 200, '{"uid": 1}', "1Gi", "2147483647", "\x00", "koord-batch"]
)
KEYS = st.sampled_from(
    [
        "koordinator.sh/qosClass",
        "koordinator.sh/priority-class",
        "scheduling.koordinator.sh/eviction-cost",
        "controller.kubernetes.io/pod-deletion-cost",
        "scheduling.koordinator.sh/reservation-allocated",
        "node.koordinator.sh/raw-allocatable",
        "descheduler.koordinator.sh/approval",
        "koordinator.sh/evict-policy",
        "zone",
    ]
)
TEXTS = st.dictionaries(KEYS, ODD, max_size=4)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "x/y"]), ODD, max_size=3)
TIMES = st.sampled_from([None, "", "never", "2027-01-15T08:00:00Z", "2027-01-15T07:59:00Z", "9999-12-31T23:59:59Z"])
NODES = st.sampled_from(["a", "b", "", "gone"])
UIDS = st.sampled_from(["", "u1", "u2", "uid-web"])
OWNERS = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["ReplicaSet", "DaemonSet", "Node", "X"]), "name": ODD, "uid": UIDS},
        optional={"controller": st.booleans()},
    ),
    max_size=2,
)
PHASES = st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "Available", "?"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | ODD,
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)


def metadata(name: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "name": st.just(name),
            "namespace": st.just("shop"),
            "uid": st.just(f"uid-{name}"),
            "labels": TEXTS,
            "annotations": TEXTS,
            "creationTimestamp": TIMES,
            "deletionTimestamp": TIMES,
            "ownerReferences": OWNERS,
        }
    )


def pod(name: str) -> st.SearchStrategy[Pod]:
    container = st.fixed_dictionaries({"resources": st.fixed_dictionaries({"requests": AMOUNTS})})
    spec = {
        "nodeName": NODES,
        "priority": st.sampled_from([None, 0, -5, 5500, 2_000_000_001]),
        "containers": st.lists(container, max_size=2),
    }
    status = {"phase": PHASES, "containerStatuses": st.just([{"restartCount": 50}])}
    document = st.fixed_dictionaries(
        {"metadata": metadata(name), "spec": st.fixed_dictionaries(spec), "status": st.fixed_dictionaries(status)}
    )
    return document.map(lambda it: msgspec.convert(it, Pod))


def node(name: str) -> st.SearchStrategy[Node]:
    taint = st.fixed_dictionaries({"key": ODD, "effect": st.sampled_from(["NoSchedule", "?", ""])})
    document = st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries({"name": st.just(name), "labels": TEXTS, "annotations": TEXTS}),
            "spec": st.fixed_dictionaries({"taints": st.lists(taint, max_size=1), "unschedulable": st.booleans()}),
            "status": st.fixed_dictionaries({"allocatable": AMOUNTS}),
        }
    )
    return document.map(lambda it: msgspec.convert(it, Node))


def report(name: str) -> st.SearchStrategy[NodeMetric]:
    extension = st.one_of(
        JSON, st.fixed_dictionaries({"verdicts": st.lists(st.dictionaries(ODD, JSON, max_size=2), max_size=2)})
    )
    usage = st.fixed_dictionaries(
        {
            "name": st.sampled_from(["p0", "p1", "gone"]),
            "namespace": st.just("shop"),
            "podUsage": st.fixed_dictionaries({"resources": AMOUNTS}),
            "extensions": st.fixed_dictionaries({"interference": extension}),
        }
    )
    system = st.fixed_dictionaries({"systemUsage": st.fixed_dictionaries({"resources": AMOUNTS})})
    status = {"updateTime": TIMES, "nodeMetric": st.none() | system, "podsMetric": st.lists(usage, max_size=3)}
    document = st.fixed_dictionaries({"metadata": st.just({"name": name}), "status": st.fixed_dictionaries(status)})
    return document.map(lambda it: msgspec.convert(it, NodeMetric))


JOB = st.fixed_dictionaries(
    {
        "metadata": metadata("job").map(lambda meta: {**meta, "namespace": ""}),
        "spec": st.fixed_dictionaries(
            {
                "podRef": st.fixed_dictionaries(
                    {"namespace": st.sampled_from(["", "shop"]), "name": st.sampled_from(["", "p0", "p1"]), "uid": UIDS}
                ),
                "mode": st.sampled_from(["", "ReservationFirst", "EvictDirectly", "?"]),
                "ttl": st.sampled_from([None, "", "5m", "-1h", "x"]),
            }
        ),
        "status": st.fixed_dictionaries(
            {
                "phase": PHASES,
                "conditions": st.lists(
                    st.fixed_dictionaries(
                        {
                            "type": st.sampled_from(["ReservationCreated", "ReservationScheduled", "Eviction", "?"]),
                            "status": st.sampled_from(["True", "False", ""]),
                            "reason": st.sampled_from(["", "Evicting", "EvictComplete"]),
                        }
                    ),
                    max_size=3,
                ),
            }
        ),
    }
).map(lambda it: msgspec.convert(it, PodMigrationJob))
PLACE = st.fixed_dictionaries(
    {
        "metadata": st.just({"name": "uid-job", "uid": "r"}),
        "spec": st.just({"owners": [{}]}),
        "status": st.fixed_dictionaries(
            {
                "phase": PHASES,
                "nodeName": NODES,
                "currentOwners": st.lists(st.fixed_dictionaries({"uid": UIDS, "name": ODD}), max_size=2),
            }
        ),
    }
).map(lambda it: msgspec.convert(it, Reservation))
ARGS: dict[str, dict[str, Any]] = {
    "PodLifeTime": {"maxPodLifeTimeSeconds": 1},
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 1},
    "HighNodeUtilization": {"thresholds": {"cpu": 20}},
    "LowNodeUtilization": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
    "InterferenceAware": {"lastingSeconds": 0},
    "NodeConditionAware": {"lastingSeconds": 0, "conditions": [{"type": "Ready"}]},
    "CustomPriority": {
        "evictionOrder": [
            {"name": "dear", "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "a"}}},
            {"name": "cheap", "nodeSelector": {}, "rejectThreshold": {"cpu": 90}},
        ]
    },
    "ScaleDownBinPack": {"strategy": "EvictDirectly", "maxPodsToEvict": 2},
    "LowNodeLoad": {
        "lowThresholds": {"cpu": 20, "memory": 20},
        "highThresholds": {"cpu": 30, "memory": 30},
        "anomalyCondition": {"consecutiveAbnormalities": 1},
    },
}
SOME = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SOME
@given(st.tuples(node("a"), node("b")), st.tuples(pod("p0"), pod("p1"), pod("p2")), st.tuples(report("a"), report("b")))
def test_plugins(nodes: Any, pods: Any, reports: Any) -> None:
    cluster = a_cluster(nodes, pods, reports=reports, workloads=[a_workload(replicas=5)])
    for name, kind in plugin_types().items():
        for wanted in ran(a_plugin(kind, **ARGS.get(name, {})), cluster).wanted:
            meta = wanted.pod.metadata
            assert not meta.deletion_timestamp
            owner = meta.controlled_by
            assert owner is not None
            assert owner.kind not in ("DaemonSet", "Node")
            assert (wanted.pod.spec.priority or 0) < 2_000_000_000


@SOME
@given(st.tuples(node("a"), node("b")), st.tuples(pod("p0"), pod("p1")), JOB, PLACE)
def test_migrations_never_evict_without_a_place(nodes: Any, pods: Any, job: Any, place: Any) -> None:
    objects = {NODE: nodes, POD: pods, MIGRATION: [job], RESERVATION: [place], WORKLOADS[0]: [a_workload()]}
    planned = Migrations(MigrationArgs(), "me").plan(a_view(objects), NOW)
    for write in planned.writes:
        if write.verb in (Verb.EVICT, Verb.DELETE) and write.resource is POD:
            mode = job.spec.mode or "ReservationFirst"
            assert write.uid
            assert mode == "EvictDirectly" or place.status.phase == "Available"
            assert mode != "EvictDirectly" or write.question is not None


@SOME
@given(pod("p0"), report("a"))
def test_filters(one: Pod, metric: NodeMetric) -> None:
    cluster = a_cluster([], [one], reports=[metric], workloads=[a_workload()])
    refusal = EvictionFilter(cluster, FilterArgs()).refusal(one)
    assert refusal is None or refusal.reason
