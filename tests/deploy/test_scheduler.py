"""The scheduler in the chart: its rights against its code, and pods without privileges."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from api.settings import convert
from scheduler.configuration.document import find, read
from scheduler.engine import Engine
from scheduler.profile import SchedulerSettings
from tests.deploy.charts import ROOT, documents

ON = {"scheduler": {"enabled": True}}

WRITES = {
    ("", "pods"): ({"get", "delete"}, {"cluster/pods.py": "client.find(_PLACES", "scheduler/writer.py": "Verb.DELETE"}),
    ("", "pods/binding"): ({"create"}, {"scheduler/plugins/defaultbinder.py": "Verb.BIND, PODS"}),
    ("", "pods/status"): ({"patch"}, {"scheduler/lifecycle/conditions.py": "Verb.PATCH_STATUS, POD"}),
    ("", "pods/eviction"): ({"create"}, {"scheduler/plugins/elasticquota.py": "Verb.EVICT, PODS"}),
    ("", "persistentvolumes"): ({"patch"}, {"scheduler/plugins/volumebinding.py": "Verb.PATCH, PERSISTENT_VOLUMES"}),
    ("", "persistentvolumeclaims"): (
        {"patch"},
        {"scheduler/plugins/volumebinding.py": "Verb.PATCH, PERSISTENT_VOLUME_CLAIMS"},
    ),
    ("resource.k8s.io", "resourceclaims"): ({"patch"}, {"scheduler/claim_writes.py": "Verb.PATCH, CLAIMS"}),
    ("resource.k8s.io", "resourceclaims/status"): (
        {"patch"},
        {"scheduler/claim_writes.py": "Verb.PATCH_STATUS, CLAIMS"},
    ),
    ("resource.k8s.io", "resourceclaims/binding"): (
        {"patch"},
        {"scheduler/claim_writes.py": 'status["allocation"]'},
    ),
    ("scheduling.koordinator.sh", "reservations"): (
        {"patch", "delete"},
        {
            "scheduler/plugins/reservation.py": "Verb.PATCH, RESERVATIONS",
            "scheduler/reservation/ledger.py": "Verb.DELETE, RESERVATIONS",
        },
    ),
    ("scheduling.koordinator.sh", "reservations/status"): (
        {"patch"},
        {"scheduler/reservation/ledger.py": "Verb.PATCH_STATUS, RESERVATIONS"},
    ),
    ("scheduling.koordinator.sh", "clusternetworktopologies/status"): (
        {"patch"},
        {"scheduler/plugins/networktopology.py": "Verb.PATCH_STATUS, TOPOLOGIES"},
    ),
    ("scheduling.sigs.k8s.io", "podgroups"): (
        {"patch"},
        {"scheduler/plugins/coscheduling.py": "Verb.PATCH, POD_GROUPS"},
    ),
    ("scheduling.sigs.k8s.io", "elasticquotas"): (
        {"create", "patch"},
        {"scheduler/plugins/elasticquota.py": "Verb.CREATE, QUOTAS"},
    ),
    ("events.k8s.io", "events"): ({"create", "patch"}, {"cluster/events.py": "client.create(EVENTS"}),
    ("coordination.k8s.io", "leases"): ({"create", "get", "update"}, {"cluster/leases.py": "self._client.create("}),
}
"""Verbs beside list and watch, by group and resource; files that use them and what they say there."""


def objects(kind: str, values: Mapping[str, Any] = ON) -> list[dict[str, Any]]:
    return [
        each for each in documents(values) if each["kind"] == kind and each["metadata"]["name"] == "koord-scheduler"
    ]


def granted(values: Mapping[str, Any] = ON) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for role in (*objects("ClusterRole", values), *objects("Role", values)):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                found.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return found


def test_nothing_of_it_is_installed_unless_asked_for() -> None:
    assert not [each for each in documents() if each["metadata"]["name"] == "koord-scheduler"]


def test_it_may_do_what_its_code_does_and_nothing_else() -> None:
    watched = {(kind.group, kind.plural) for kind in Engine().watched_kinds().values()} | {("", "nodes"), ("", "pods")}
    needed = {key: {"list", "watch"} for key in watched}
    for key, (verbs, _) in WRITES.items():
        needed[key] = needed.get(key, set()) | verbs
    assert granted() == needed


def test_with_explanations_it_may_write_those_too() -> None:
    values = {"scheduler": {"enabled": True, "explanations": True}}
    more = {
        ("scheduling.koordinator.sh", "scheduleexplanations"): {"list", "watch", "create", "delete"},
        ("scheduling.koordinator.sh", "scheduleexplanations/status"): {"patch"},
    }
    assert granted(values) == granted() | more
    file, (settings,) = "scheduler.toml", objects("ConfigMap", values)
    made = Engine(convert(tomllib.loads(settings["data"][file]), SchedulerSettings, file), source=file)
    assert "ScheduleExplanation" in made.plugins
    assert set(made.watched_kinds()) - set(Engine().watched_kinds()) == {
        "scheduleexplanations.scheduling.koordinator.sh"
    }
    code = (ROOT / "scheduler/plugins/scheduleexplanation.py").read_text()
    assert all(f"Verb.{verb}, EXPLANATIONS" in code for verb in ("CREATE", "DELETE", "PATCH_STATUS"))


def test_with_the_adaption_of_device_plugins_it_may_lock_nodes_and_label_pods() -> None:
    values = {"scheduler": {"enabled": True, "devicePluginAdaption": True, "deviceSettings": "look_ahead = 8\n"}}
    rights = granted()
    more = {key: rights[key] | {"patch"} for key in (("", "nodes"), ("", "pods"))}
    assert granted(values) == rights | more
    file, (settings,) = "scheduler.toml", objects("ConfigMap", values)
    made = convert(tomllib.loads(settings["data"][file]), SchedulerSettings, file)
    assert made.plugins["deviceshare"] == {"device_plugin_adaption": True, "look_ahead": 8}
    Engine(made, source=file)
    assert "elasticquota" in made.plugins
    code = (ROOT / "scheduler/plugins/deviceshare.py").read_text()
    assert "Verb.PATCH, NODES" in code
    assert "Verb.PATCH, PODS" in code


@pytest.mark.parametrize("key", sorted(WRITES), ids="/".join)
def test_each_write_is_made(key: tuple[str, str]) -> None:
    for file, use in WRITES[key][1].items():
        assert use in (ROOT / file).read_text(), file


def test_its_pods_need_no_privilege_and_leave_one_by_one() -> None:
    (deployment,) = objects("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not {"hostNetwork", "hostPID"} & spec.keys()
    assert "--address=127.0.0.1" in container["args"]
    assert deployment["spec"]["replicas"] == 2
    (budget,) = objects("PodDisruptionBudget")
    assert (
        budget["spec"]["selector"]["matchLabels"].items()
        <= deployment["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="default"),
        pytest.param(
            {"settings": "bind_workers = 8\n[plugins.loadaware]\n", "quotaSettings": "monitor_all_quotas = true\n"},
            id="further-tables",
        ),
    ],
)
def test_its_settings_are_settings_of_the_program(values: dict[str, str]) -> None:
    (found,) = (
        each
        for each in documents({"scheduler": {"enabled": True, **values}})
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "koord-scheduler"
    )
    settings = convert(tomllib.loads(found["data"]["scheduler.toml"]), SchedulerSettings, "scheduler.toml")
    assert settings.plugins["elasticquota"]["quota_group_namespace"] == found["metadata"]["namespace"]
    Engine(settings, source="scheduler.toml")


CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false, resourceName: other, resourceNamespace: elsewhere}
profiles:
  - schedulerName: koord-scheduler
    plugins:
      filter: {enabled: [{name: LoadAwareScheduling}]}
      preFilter: {enabled: [{name: ElasticQuota}]}
    pluginConfig:
      - name: LoadAwareScheduling
        args: {filterExpiredNodeMetrics: false, usageThresholds: {cpu: 70}}
  - schedulerName: batch-scheduler
"""


def test_a_scheduler_configuration_takes_the_place_of_the_settings() -> None:
    found = {
        each["kind"]: each
        for each in documents({"scheduler": {"enabled": True, "configuration": CONFIGURATION, "settings": "no = 1"}})
        if each["metadata"]["name"] == "koord-scheduler"
    }
    ((name, text),) = found["ConfigMap"]["data"].items()
    template = found["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (mount,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "settings"]
    assert f"--config={mount}/{name}" in container["command"]
    # The Role is for the chart's lease, and two replicas must not both lead.
    assert {"--leader-elect", "--lease=koord-system/koord-scheduler"} <= set(container["args"])
    document = find(text, name)
    assert document is not None
    made = Engine(read(document, name).settings, source=name)
    assert [each for each in ("koord-scheduler", "batch-scheduler", "other") if each in made.profiles] == [
        "koord-scheduler",
        "batch-scheduler",
    ]
    before = template["metadata"]["annotations"]["koord.sh/settings"]
    (changed,) = (
        each["spec"]["template"]["metadata"]["annotations"]["koord.sh/settings"]
        for each in documents({"scheduler": {"enabled": True, "configuration": CONFIGURATION + "# more\n"}})
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "koord-scheduler"
    )
    assert changed != before


def test_with_a_certificate_the_descheduler_reaches_it() -> None:
    values = {"scheduler": {"enabled": True, "tlsSecret": "scheduler-tls"}, "descheduler": {"enabled": True}}
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents(values)}
    service, scheduler = (found[kind, "koord-scheduler"] for kind in ("Service", "Deployment"))
    template = scheduler["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    assert {"name": port["targetPort"], "containerPort": port["port"]} in template["spec"]["containers"][0]["ports"]
    arguments = template["spec"]["containers"][0]["args"]
    mounted = {each["mountPath"] for each in template["spec"]["containers"][0]["volumeMounts"]}
    files = [word.partition("=")[2] for word in arguments if word.startswith(("--tls-", "--client-ca"))]
    assert "--address=0.0.0.0" in arguments
    assert len(files) == 3
    assert {str(Path(file).parent) for file in files} <= mounted
    asks = found["Deployment", "koord-descheduler"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--scheduler=https://{service['metadata']['name']}:{port['port']}" in asks
