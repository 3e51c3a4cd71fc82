"""Cycles: jobs with their questions, limits, dry run, pause, approval, and plugins that run on reports."""

from typing import Any

import msgspec
import pytest

from api.crds.placement import PodMigrationJobStatus
from api.kube.times import rfc3339
from api.settings import SettingsError
from cluster import DeltaType, Key, StoreDelta
from controllers.descheduler.configuration import DeschedulerConfiguration, build
from controllers.descheduler.cycle import ANNOTATION_APPROVAL, Descheduler
from controllers.descheduler.kinds import EVERYTHING, MIGRATION, NODE, NODE_METRIC, POD, WORKLOADS
from controllers.runtime.view import ClusterCopy
from controllers.runtime.writer import Result
from controllers.runtime.writes import Writes
from tests.descheduling import NOW, a_node, a_pod, a_report, a_view, a_workload

OLD = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 100}}


def profile(plugins: Any = None, config: Any = (), **migration: Any) -> dict[str, Any]:
    controller = {"name": "MigrationController", "args": {"maxMigratingPerNode": 0, **migration}}
    return {
        "name": "p",
        "plugins": plugins or {"deschedule": {"enabled": [{"name": "PodLifeTime"}]}},
        "pluginConfig": [controller, *(config or [OLD])],
    }


def descheduler(*profiles: Any, **more: Any) -> Descheduler:
    document = {"profiles": list(profiles or [profile()]), **more}
    configuration = msgspec.convert(document, DeschedulerConfiguration)
    return Descheduler(configuration, build(configuration, "d.yaml"), "me")


def objects(count: int = 3, **more: Any) -> dict[Any, Any]:
    pods = [a_pod(f"p{number}", owner=f"w{number}", age_seconds=1000 - number, **more) for number in range(count)]
    workloads = [a_workload(f"w{number}", 5) for number in range(count)]
    return {NODE: [a_node("a"), a_node("b")], POD: pods, WORKLOADS[0]: workloads}


def planned(it: Descheduler, now: float = NOW, **more: Any) -> Writes:
    return it.plan(a_view(objects(**more)), now)


def names(writes: Writes) -> list[str]:
    return [each.body.spec.pod_ref.name for each in writes.writes]


def test_a_job_says_what_why_and_asks_for_a_place_first() -> None:
    it = descheduler()
    writes = planned(it)
    assert names(writes) == ["p0", "p1", "p2"]
    first, last = writes.writes[0], writes.writes[-1]
    assert first.resource is MIGRATION
    assert first.body.spec.mode == "ReservationFirst"
    assert first.body.spec.ttl == "5m"
    assert first.body.metadata.annotations["descheduler.koordinator.sh/evict-trigger"] == "PodLifeTime"
    assert first.question is not None and last.question is not None
    assert [each.uid for each in first.question.pods] == ["uid-p0"]
    assert [each.uid for each in last.question.pods] == ["uid-p0", "uid-p1", "uid-p2"], "those before compete"
    assert last.question.pods[-1].excluded_nodes == ["a"]


def test_pods_of_schedulers_without_reservations_are_left_unless_evicted_directly() -> None:
    other = {"spec": {"schedulerName": "default-scheduler"}}
    assert not names(planned(descheduler(), **other))
    direct = descheduler(profile(defaultJobMode="EvictDirectly"))
    assert names(planned(direct, **other)) == ["p0", "p1", "p2"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"maxNoOfPodsToEvictPerNode": 1}, 1),
        ({"maxNoOfPodsToEvictPerNamespace": 2}, 2),
        ({"maxNoOfPodsToEvictTotal": 0}, 0),
        ({"maxNoOfPodsToEvictPerMinute": 2}, 2),
        ({"paused": True}, 0),
    ],
    ids=["node", "namespace", "total", "minute", "paused"],
)
def test_limits(settings: dict[str, Any], expected: int) -> None:
    assert len(names(planned(descheduler(**settings)))) == expected


def test_limits_by_time_outlast_a_cycle() -> None:
    it = descheduler(profile(maxMigratingPerWorkload=1), maxNoOfPodsToEvictPerMinute=2)
    assert len(names(planned(it))) == 2
    assert not names(planned(it, NOW + 59))
    assert names(planned(it, NOW + 61)) == ["p2"], "workloads that were moved lately wait their five minutes"
    assert names(planned(it, NOW + 301)) == ["p0", "p1"]


def after(it: Descheduler, made: Writes, result: str, now: float, **more: Any) -> Writes:
    """Plan a cycle after the last jobs met with a result."""
    copy = ClusterCopy(EVERYTHING, ())
    copy.register("it")
    for resource, listed in objects(**more).items():
        deltas = [
            StoreDelta(DeltaType.ADDED, Key(each.metadata.namespace, each.metadata.name), None, each) for each in listed
        ]
        copy.apply(resource, deltas)
    for write in made.writes:
        copy.mark("it", write.target, result)
    return it.plan(copy.view("it", full=True), now)


def test_pods_without_a_place_use_up_no_limit_and_others_take_their_turn() -> None:
    it = descheduler(profile(maxMigratingPerWorkload=1), maxNoOfPodsToEvictPerMinute=1)
    first = planned(it)
    assert names(first) == ["p0"]
    second = after(it, first, Result.UNPLACED, NOW + 10)
    assert names(second) == ["p1"]
    assert not names(planned(it, NOW + 20)), "one was made within the minute"
    assert names(planned(it, NOW + 75)) == ["p2"], "p0 had no place, p1's workload was moved"
    assert names(planned(it, NOW + 611)) == ["p0"], "asked again"


def test_a_job_that_was_not_made_for_another_reason_is_wanted_again_at_once() -> None:
    it = descheduler(profile(maxMigratingPerWorkload=1), maxNoOfPodsToEvictPerMinute=1)
    assert names(after(it, planned(it), Result.FAILED, NOW + 10)) == ["p0"]


def test_limits_of_workloads_hold_as_long_as_they_say() -> None:
    limiter = {"workload": {"duration": "24h", "maxMigrating": 1}}
    it = descheduler(profile(objectLimiters=limiter))
    assert names(planned(it)) == ["p0", "p1", "p2"]
    assert not names(planned(it, NOW + 23 * 3600))
    assert names(planned(it, NOW + 24 * 3600)) == ["p0", "p1", "p2"]


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ("zone!=b", True),
        ("zone in (a, c),zone", True),
        ("zone notin (a)", False),
        ("zone==a", True),
        ("!zone", False),
        ("", True),
    ],
)
def test_selectors_in_text_are_read_as_kubectl_does(selector: str, selects: bool) -> None:
    given = objects(1)
    given[NODE] = [a_node("a", labels={"zone": "a"}), a_node("b", labels={"zone": "b"})]
    assert names(descheduler(nodeSelector=selector).plan(a_view(given), NOW)) == ["p0"] * selects


def test_a_selector_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SettingsError, match="zone in a"):
        descheduler(nodeSelector="zone in a")


def test_a_process_that_starts_counts_the_jobs_of_the_one_before() -> None:
    first = planned(descheduler(profile(maxMigratingPerWorkload=1)))
    made = [
        msgspec.structs.replace(
            each.body, metadata=msgspec.structs.replace(each.body.metadata, creation_timestamp=rfc3339(NOW))
        )
        for each in first.writes
    ]
    ended = [msgspec.structs.replace(job, status=PodMigrationJobStatus(phase="Succeeded")) for job in made]
    second = descheduler(profile(maxMigratingPerWorkload=1))
    assert not names(second.plan(a_view({**objects(), MIGRATION: ended}), NOW + 10))
    assert names(second.plan(a_view({**objects(), MIGRATION: ended}), NOW + 301)) == ["p0", "p1", "p2"]


def test_a_dry_run_says_what_it_would_do() -> None:
    writes = planned(descheduler(dryRun=True))
    assert not writes.writes
    assert writes.warnings[0].reason == "WouldMigrate"
    assert "would move it from a" in writes.warnings[0].note


def test_manual_approval_is_asked_of_each_job() -> None:
    writes = planned(descheduler(approval="Manual"))
    assert writes.writes[0].body.metadata.annotations[ANNOTATION_APPROVAL] == "required"


def test_with_one_ready_node_nothing_is_done() -> None:
    given = objects()
    given[NODE] = [a_node("a"), a_node("b", ready="False")]
    assert not descheduler().plan(a_view(given), NOW).writes


def test_reports_run_the_plugins_that_are_driven_by_them_and_no_others() -> None:
    verdict = {"resource": "cpu", "culprits": ["ReplicaSet/shop/w1"], "lostSecondsPerSecond": 0.5}
    verdict["until"] = "2027-01-15T08:01:00Z"
    report = a_report("a", {"p0": 1}, extensions={"p0": {"interference": {"verdicts": [verdict]}}})
    config = [OLD, {"name": "InterferenceAware", "args": {"lastingSeconds": 0}}]
    plugins = {"deschedule": {"enabled": ["PodLifeTime"]}, "balance": {"enabled": ["InterferenceAware"]}}
    it = descheduler(profile(plugins, config))
    view = a_view({**objects(), NODE_METRIC: [report]}, full=False)
    assert names(it.plan(view, NOW)) == ["p1"]
    assert not it.plan(a_view({**objects(), NODE_METRIC: [report]}, full=False), NOW + 5).writes, "too soon"


def test_a_changed_node_runs_them_too() -> None:
    config = [OLD, {"name": "NodeConditionAware", "args": {"lastingSeconds": 0, "conditions": [{"type": "Ready"}]}}]
    it = descheduler(profile({"balance": {"enabled": ["NodeConditionAware"]}}, config))
    assert names(it.plan(a_view(objects(), full=False), NOW)) == ["p2"]


def test_deletion_costs_are_written_and_a_dry_run_writes_none() -> None:
    for dry, expected in ((False, ["p2", "p1", "p0"]), (True, [])):
        it = descheduler(profile({"balance": {"enabled": ["ScaleDownBinPack"]}}), dryRun=dry)
        writes = planned(it).writes
        assert [each.key.name for each in writes] == expected
        for each in writes:
            assert each.resource is POD
            keys = ("controller.kubernetes.io/pod-deletion-cost", "descheduler.koordinator.sh/deletion-cost")
            assert each.body == {"metadata": {"annotations": dict.fromkeys(keys, "1000")}}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"profiles": [profile({"deschedule": {"enabled": ["Nobody"]}})]}, "no plugin Nobody", id="plugin"),
        pytest.param({"profiles": [profile({"balance": {"enabled": ["PodLifeTime"]}})]}, "belongs to", id="point"),
        pytest.param({"profiles": [profile(skipEvictionGates=["X"])]}, "no gate X", id="gate"),
        pytest.param({"profiles": [profile(speed=1)]}, "speed", id="argument"),
        pytest.param({"profiles": [profile(priorityThreshold={"name": "high"})]}, "give the value", id="class"),
        pytest.param({"profiles": [profile(config=[{"name": "X"}])]}, "no such plugin", id="config"),
        pytest.param({"deschedulingInterval": "soon"}, "duration", id="interval"),
    ],
)
def test_configurations_that_do_not_fit_are_refused_by_name(document: dict[str, Any], problem: str) -> None:
    configuration = msgspec.convert(document, DeschedulerConfiguration)
    with pytest.raises(SettingsError, match=problem):
        build(configuration, "d.yaml")


KOORDINATOR = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
leaderElection: {resourceLock: leases, resourceName: koord-descheduler, resourceNamespace: koordinator-system}
deschedulingInterval: 10s
dryRun: false
profiles:
- name: koord-descheduler
  plugins:
    evict: {disabled: [{name: "*"}], enabled: [{name: MigrationController}]}
    deschedule: {disabled: [{name: "*"}]}
    balance: {enabled: [{name: LowNodeLoad}]}
    filter: {disabled: [{name: "*"}], enabled: [{name: MigrationController}]}
  pluginConfig:
  - name: MigrationController
    args:
      apiVersion: descheduler/v1alpha2
      kind: MigrationControllerArgs
      evictionPolicy: Eviction
      namespaces: {exclude: [kube-system, koordinator-system]}
      evictQPS: 1
      evictBurst: 1
  - name: LowNodeLoad
    args:
      apiVersion: descheduler/v1alpha2
      kind: LowNodeLoadArgs
      evictableNamespaces: {exclude: [kube-system]}
      useDeviationThresholds: false
      lowThresholds: {cpu: 45, memory: 55}
      highThresholds: {cpu: 75, memory: 80}
      anomalyCondition: {consecutiveAbnormalities: 5}
"""
UPSTREAM = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
maxNoOfPodsToEvictPerNode: 5
profiles:
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: true, minReplicas: 2, evictLocalStoragePods: true, priorityThreshold: {value: 1000}}
  - name: RemovePodsHavingTooManyRestarts
    args: {podRestartThreshold: 100, includingInitContainers: true}
  - name: LowNodeUtilization
    args: {thresholds: {cpu: 20, memory: 20, pods: 20}, targetThresholds: {cpu: 50, memory: 50, pods: 50}}
  plugins:
    balance: {enabled: [RemoveDuplicates, LowNodeUtilization]}
    deschedule: {enabled: [RemovePodsHavingTooManyRestarts]}
"""


@pytest.mark.parametrize(
    ("text", "plugins"),
    [
        pytest.param(KOORDINATOR, ["LowNodeLoad"], id="koordinator"),
        pytest.param(
            UPSTREAM, ["RemovePodsHavingTooManyRestarts", "RemoveDuplicates", "LowNodeUtilization"], id="upstream"
        ),
    ],
)
def test_files_of_both_projects_are_read(text: str, plugins: list[str]) -> None:
    configuration = msgspec.yaml.decode(text, type=DeschedulerConfiguration)
    (built,) = build(configuration, "d.yaml")
    assert [plugin.name for plugin in built.plugins] == plugins
