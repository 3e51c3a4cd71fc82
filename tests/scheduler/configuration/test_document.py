"""KubeSchedulerConfiguration: what Koordinator ships, several profiles, arguments, and what is refused by name."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from api.crds import NodeMetric
from api.kube.resources import CPU, MEMORY
from api.settings import SettingsError
from cluster.resources import Key
from scheduler.__main__ import main
from scheduler.configuration.arguments import ARGUMENTS
from scheduler.configuration.document import KOORDINATOR, KubeConfiguration, find, read
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.loadaware import NODE_METRICS
from scheduler.profile import available, config_type
from tests.schedobjects import drain, node, pod, rejected

V1 = "kubescheduler.config.k8s.io/v1"


def named(*names: str, weight: int = 0) -> list[dict[str, Any]]:
    return [{"name": name, "weight": weight} if weight else {"name": name} for name in names]


ALL = {"disabled": named("*")}
KOORD_POINTS: dict[str, Any] = {
    "preEnqueue": {"enabled": named("Coscheduling")},
    "queueSort": ALL | {"enabled": named("PrioritySort")},
    "preFilter": {
        "enabled": named(
            "SchedulingHint", "Coscheduling", "Reservation", "NodeNUMAResource", "DeviceShare", "ElasticQuota"
        )
    },
    "filter": {"enabled": named("Reservation", "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare")},
    "postFilter": ALL | {"enabled": named("Reservation", "Coscheduling", "ElasticQuota", "DefaultPreemption")},
    "preScore": {"enabled": named("Reservation", "Coscheduling")},
    "score": {
        "enabled": named("LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Coscheduling", weight=1)
        + named("Reservation", weight=5000)
    },
    "reserve": {
        "enabled": named(
            "Reservation", "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Coscheduling", "ElasticQuota"
        )
    },
    "permit": {"enabled": named("Coscheduling")},
    "preBind": {"enabled": named("NodeNUMAResource", "DeviceShare", "Reservation", "Coscheduling", "DefaultPreBind")},
    "bind": ALL | {"enabled": named("Reservation", "DefaultBinder")},
    "postBind": {"enabled": named("Coscheduling")},
}
"""Points of the profile that Koordinator 1.8 ships."""

KOORD_ARGS = [
    {
        "name": "NodeResourcesFit",
        "args": {
            "apiVersion": V1,
            "kind": "NodeResourcesFitArgs",
            "scoringStrategy": {
                "type": "LeastAllocated",
                "resources": named("cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", weight=1),
            },
        },
    },
    {
        "name": "LoadAwareScheduling",
        "args": {
            "apiVersion": V1,
            "kind": "LoadAwareSchedulingArgs",
            "filterExpiredNodeMetrics": False,
            "nodeMetricExpirationSeconds": 300,
            "resourceWeights": {"cpu": 1, "memory": 1},
            "usageThresholds": {"cpu": 65, "memory": 95},
            "estimatedScalingFactors": {"cpu": 85, "memory": 70},
        },
    },
    {
        "name": "ElasticQuota",
        "args": {"apiVersion": V1, "kind": "ElasticQuotaArgs", "quotaGroupNamespace": "koordinator-system"},
    },
    {"name": "Coscheduling", "args": {"apiVersion": V1, "kind": "CoschedulingArgs", "awareNetworkTopology": True}},
]
"""Arguments of the profile that Koordinator 1.8 ships."""


def shipped(**changed: Any) -> dict[str, Any]:
    return {
        "apiVersion": V1,
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceLock": "leases",
            "resourceName": "koord-scheduler",
            "resourceNamespace": "koordinator-system",
        },
        "profiles": [{"schedulerName": "koord-scheduler", "plugins": KOORD_POINTS, "pluginConfig": KOORD_ARGS}],
        **changed,
    }


def profile(name: str = "koord-scheduler", points: Any = None, args: Any = None) -> dict[str, Any]:
    config = [{"name": plugin, "args": each} for plugin, each in (args or {}).items()]
    return {"schedulerName": name, "plugins": points or {}, "pluginConfig": config}


def understood(document: dict[str, Any]) -> tuple[KubeConfiguration, Engine]:
    stated = read(document, "s.yaml")
    return stated, Engine(stated.settings)


def test_what_koordinator_ships_runs_with_its_values() -> None:
    stated, made = understood(shipped())
    assert KOORDINATOR - {"NodeResourcesFitPlus", "ScarceResourceAvoidance"} < set(made.plugins)
    assert not {"NodeResourcesFitPlus", "ScarceResourceAvoidance"} & set(made.plugins)
    weights = {entry.plugin.name: entry.weight for entry in made.profiles.first}
    assert (weights["Reservation"], weights["LoadAwareScheduling"], weights["TaintToleration"]) == (5000, 1, 3)
    assert [entry.key for entry in made.profiles.first if entry.without] == ["dynamicresources"]
    load = made.plugins["LoadAwareScheduling"].config
    assert load.filter_expired_node_metrics is False
    assert load.enable_schedule_when_node_metrics_expired is True
    assert load.node_metric_expiration_seconds == 300.0
    assert load.usage_thresholds == {CPU: 65, MEMORY: 95}
    assert stated.election.resource_name == "koord-scheduler"
    assert "NetworkTopology" in made.plugins
    assert not stated.notes


def test_with_what_koordinator_ships_missing_and_old_reports_close_no_node() -> None:
    _, made = understood(shipped())
    for name in ("silent", "expired"):
        made.on_node(Action.ADD, node(name), 0.0)
    usage = {"nodeUsage": {"resources": {"cpu": "100m", "memory": "1Gi"}}}
    status = {"nodeMetric": usage, "updateTime": "2026-01-01T00:00:00Z"}
    metric = msgspec.convert({"metadata": {"name": "expired"}, "status": status}, NodeMetric)
    made.on_object(ObjectEvent(NODE_METRICS, Action.ADD, Key("", "expired"), None, metric), 0.0)
    made.tick(1_800_000_000.0)
    assert made.plugins["LoadAwareScheduling"].routes()["node/{name}"]("expired")["report"] == "expired"
    assert rejected(made, pod("p", {"cpu": "1"})) == {"silent": [], "expired": []}


def test_pre_allocation_has_the_values_that_are_stated() -> None:
    config = {"enableClusterMode": True, "clusterLabelKey": "example.com/spare", "preferNoPreAllocatedPods": True}
    stated, made = understood(
        shipped(profiles=[profile(points=KOORD_POINTS, args={"Reservation": {"preAllocationConfig": config}})])
    )
    settings = made.plugins["Reservation"].config
    assert settings.pre_allocation_cluster_mode is True
    assert settings.pre_allocatable_label == "example.com/spare"
    assert settings.pre_allocatable_priority_annotation == "pod.koordinator.sh/pre-allocatable-priority"
    assert settings.prefer_no_pre_allocated_pods is True
    assert not stated.notes


def test_the_configmap_around_the_file_is_read_too(tmp_path: Path) -> None:
    text = msgspec.yaml.encode(shipped()).decode()
    wrapped = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"koord-scheduler-config": text}}
    assert find(msgspec.yaml.encode(wrapped).decode(), "s.yaml") == shipped()
    assert find(text, "file-without-suffix") == shipped()
    assert find("scheduler_name = 'x'", "s.toml") is None
    assert find("scheduler_name: x", "s.yaml") is None
    two = wrapped | {"data": {"a": text, "b": text}}
    with pytest.raises(SettingsError, match="2 keys"):
        find(msgspec.yaml.encode(two).decode(), "s.yaml")


def test_a_file_without_profiles_is_the_stock_schedulers() -> None:
    _, made = understood({"apiVersion": V1, "kind": "KubeSchedulerConfiguration"})
    assert not (KOORDINATOR | {"NetworkTopology"}) & set(made.plugins)
    assert {"NodeResourcesFit", "DefaultPreemption", "InterferenceAware"} < set(made.plugins)
    assert made.is_ours(pod("p", schedulerName="default-scheduler"))
    assert not made.is_ours(pod("p"))


def test_pods_are_placed_by_the_profile_that_they_name() -> None:
    packed = profile("packing", args={"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}})
    anywhere = profile("anywhere", {"filter": {"disabled": named("NodeResourcesFit")}, "score": ALL})
    stated, made = understood(shipped(profiles=[profile("spreading"), packed, anywhere]))
    assert [each.scheduler_name for each in stated.settings.profiles] == ["packing", "anywhere"]
    made.on_node(Action.ADD, node("empty"), 0.0)
    made.on_node(Action.ADD, node("busy"), 0.0)
    made.on_pod(Action.ADD, pod("old", {"cpu": "2", "memory": "4Gi"}, nodeName="busy"), 0.0)
    made.on_pod(Action.ADD, pod("a", {"cpu": "1", "memory": "1Gi"}, schedulerName="spreading"), 0.0)
    assert drain(made) == {"a": "empty"}
    made.on_pod(Action.ADD, pod("b", {"cpu": "1", "memory": "1Gi"}, schedulerName="packing"), 0.0)
    assert drain(made) == {"b": "busy"}
    made.on_pod(Action.ADD, pod("c", {"cpu": "64"}, schedulerName="packing"), 0.0)
    assert drain(made) == {}
    made.on_pod(Action.ADD, pod("d", {"cpu": "64"}, schedulerName="anywhere"), 0.0)
    assert set(drain(made)) == {"d"}
    assert len([plugin for plugin in made.profiles.plugins if plugin.name == "NodeResourcesFit"]) == 2
    assert len([plugin for plugin in made.profiles.plugins if plugin.name == "VolumeBinding"]) == 1


def test_a_pod_of_a_profile_with_gates_off_is_not_held() -> None:
    gates = {"preEnqueue": {"disabled": named("SchedulingGates")}, "multiPoint": {"disabled": named("SchedulingGates")}}
    _, made = understood(shipped(profiles=[profile("gated"), profile("open", gates)]))
    made.on_node(Action.ADD, node("n0"), 0.0)
    for name in ("gated", "open"):
        made.on_pod(Action.ADD, pod(name, schedulerName=name, schedulingGates=[{"name": "g"}]), 0.0)
    assert set(drain(made)) == {"open"}


def test_explanations_are_written_where_the_file_enables_them() -> None:
    points = KOORD_POINTS | {"postFilter": ALL | {"enabled": named("ScheduleExplanation", "DefaultPreemption")}}
    _, made = understood(shipped(profiles=[profile(points=points)]))
    made.on_node(Action.ADD, node("a"), 0.0)
    made.on_pod(Action.ADD, pod("p", {"cpu": "8"}), 0.0)
    made.schedule_one(0.0)
    made.tick(30.0)
    bodies = [write.body for write in made.writes if write.resource.plural == "scheduleexplanations"]
    assert len(bodies) == 2
    assert "NodeResourcesFit" in str(bodies[1])
    assert "ScheduleExplanation" not in understood(shipped())[1].plugins


def test_a_whole_job_is_preempted_for_where_the_file_takes_single_preemption_away() -> None:
    points = KOORD_POINTS | {"postFilter": ALL | {"enabled": named("Reservation", "Coscheduling", "ElasticQuota")}}
    stated, made = understood(
        shipped(profiles=[profile(points=points, args={"Coscheduling": {"enablePreemption": True}})])
    )
    entry = next(each for each in made.profiles.first if each.plugin.name == "DefaultPreemption")
    assert not entry.without
    assert "preemption of whole gangs" in stated.notes[0]
    _, made = understood(shipped(profiles=[profile(points=points)]))
    entry = next(each for each in made.profiles.first if each.plugin.name == "DefaultPreemption")
    assert entry.without == {"post_filter"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(shipped(colour=1), "colour", id="top-level"),
        pytest.param(shipped(extenders=[{"urlPrefix": "http://x"}]), "extenders", id="extenders"),
        pytest.param(shipped(apiVersion="v9"), "v9", id="version"),
        pytest.param(
            shipped(profiles=[profile(points={"score": {"enabled": named("MyScore")}})]),
            r"profiles\[0\]: plugins.score: MyScore: no such plugin; there are .*ElasticQuota.*koord.scheduler_plugins",
            id="plugin",
        ),
        pytest.param(
            shipped(profiles=[profile(points={"scoring": {}})]), r"profiles\[0\].plugins\] scoring", id="point"
        ),
        pytest.param(
            shipped(profiles=[profile(args={"MyScore": {}})]), "pluginConfig: MyScore: no such plugin", id="args"
        ),
        pytest.param(
            shipped(profiles=[profile(args={"NodeResourcesFit": {"colour": 1}})]),
            "NodeResourcesFit: args.colour: no such argument; there are ignoredResourceGroups",
            id="argument",
        ),
        pytest.param(
            shipped(profiles=[profile(args={"NodeResourcesFit": {"kind": "OtherArgs"}})]),
            "expected NodeResourcesFitArgs",
            id="kind",
        ),
        pytest.param(
            shipped(
                profiles=[
                    profile(
                        points={"permit": {"enabled": named("Coscheduling")}},
                        args={"Coscheduling": {"defaultTimeout": "soon"}},
                    )
                ]
            ),
            "defaultTimeout: expected a duration",
            id="duration",
        ),
        pytest.param(
            shipped(profiles=[profile(args={"NodeAffinity": {"addedAffinity": {"a": 1}}})]),
            "addedAffinity",
            id="refused",
        ),
        pytest.param(shipped(profiles=[profile(points={"bind": ALL})]), "nothing binds", id="no-binder"),
        pytest.param(shipped(leaderElection={"leaseDuration": "long"}), "leaderElection.lease_duration", id="election"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_by_name(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read(document, "s.yaml")


def test_profiles_of_one_name_and_of_two_states_are_refused() -> None:
    with pytest.raises(SettingsError, match="another profile has this name"):
        understood(shipped(profiles=[profile("a"), profile("a")]))
    on = {"permit": {"enabled": named("Coscheduling")}}
    gangs = [profile(name, on, {"Coscheduling": {"defaultTimeout": time}}) for name, time in (("a", "1m"), ("b", "2m"))]
    with pytest.raises(SettingsError, match=r"profile b: \[plugins.coscheduling\]: .* the same in all profiles"):
        understood(shipped(profiles=gangs))


def test_every_argument_names_a_key_of_its_plugins_settings() -> None:
    kinds = {kind.name: config_type(kind) for kind in available().values()}
    samples: dict[str, Any] = {
        "scoringStrategy": {"type": "LeastAllocated", "resources": named("cpu", weight=2)},
        "numaScoringStrategy": {"type": "MostAllocated"},
        "aggregated": {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m"},
        "defaultConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "defaultQuotaGroupMax": {"cpu": "4", "memory": "1Gi"},
        "systemQuotaGroupMax": {"cpu": 4},
        "defaultMatchPolicy": "only-waiting",
        "defaultCPUBindPolicy": "SpreadByPCPUs",
        "quotaGroupNamespace": "q",
        "preAllocationConfig": {"enableClusterMode": True},
        "gpuShareUnsupportedModels": [{"vendor": "v", "model": "m"}],
    }
    for name, rows in ARGUMENTS.items():
        for key, row in rows.items():
            tries: list[Any] = (
                [samples[key]] if key in samples else ["10s", 7, True, {"cpu": 1}, ["a"], named("a"), {"cpu": {}}]
            )
            done = []
            for value in tries:
                try:
                    table = row(value)
                    done.append(table if isinstance(table, str) else msgspec.convert(table, kinds[name]))
                except Exception:  # noqa: BLE001 (another type is its own)
                    continue
            refusing = "refused" in row.__qualname__
            assert done or refusing, f"{name}.{key} takes none of {tries}"


def test_the_command_names_the_files_fault(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(msgspec.yaml.encode(shipped(profiles=[profile(points={"filter": {"enabled": named("Mine")}})])))
    result = CliRunner().invoke(main, ["--config", str(file), "run"])
    assert result.exit_code == 2
    assert "plugins.filter: Mine: no such plugin" in result.output
