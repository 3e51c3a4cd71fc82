"""The descheduler in the chart: its rights are what it watches and writes, and its configuration moves nothing."""

from typing import Any

import msgspec

from controllers.descheduler.configuration import DeschedulerConfiguration, build
from controllers.descheduler.kinds import EVERYTHING
from tests.deploy.charts import documents

ON = {"descheduler": {"enabled": True}}
WRITTEN = {
    ("", "pods/eviction"): {"create"},
    ("scheduling.koordinator.sh", "podmigrationjobs"): {"create", "patch", "delete"},
    ("scheduling.koordinator.sh", "podmigrationjobs/status"): {"patch"},
    ("scheduling.koordinator.sh", "reservations"): {"create", "delete"},
    ("events.k8s.io", "events"): {"create", "patch"},
    ("coordination.k8s.io", "leases"): {"create", "get", "update"},
    ("", "pods"): {"get"},
}


def objects(kind: str, **values: Any) -> list[dict[str, Any]]:
    chosen = {"descheduler": {**ON["descheduler"], **values}}
    return [
        each for each in documents(chosen) if each["kind"] == kind and each["metadata"]["name"] == "koord-descheduler"
    ]


def granted(**values: Any) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for role in (*objects("ClusterRole", **values), *objects("Role", **values)):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                found.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    return found


def test_nothing_of_it_is_installed_unless_asked_for() -> None:
    assert not [each for each in documents() if each["metadata"]["name"] == "koord-descheduler"]


def test_what_is_granted_is_what_is_watched_and_written_and_no_more() -> None:
    needed: dict[tuple[str, str], set[str]] = {key: set(verbs) for key, verbs in WRITTEN.items()}
    for kind in EVERYTHING:
        needed.setdefault((kind.group, kind.plural), set()).update(("list", "watch"))
    assert granted() == needed


def test_pods_are_deleted_and_annotated_only_where_that_is_asked_for() -> None:
    assert granted(beyondEviction=True)["", "pods"] - granted()["", "pods"] == {"delete", "patch"}
    assert granted(deletionCosts=True)["", "pods"] - granted()["", "pods"] == {"patch"}


def test_its_pod_needs_no_privilege_and_speaks_tls_to_the_scheduler() -> None:
    (deployment,) = objects("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "--scheduler-ca=/etc/koord-scheduler/ca.crt" in container["args"]
    (plain,) = objects("Deployment", scheduler={"url": "http://127.0.0.1:10251", "tlsSecret": ""})
    assert not [each for each in plain["spec"]["template"]["spec"]["containers"][0]["args"] if "-ca=" in each]


def test_the_configuration_is_one_and_moves_nothing() -> None:
    (found,) = objects("ConfigMap")
    configuration = msgspec.yaml.decode(found["data"]["descheduler.yaml"], type=DeschedulerConfiguration)
    assert configuration.dry_run
    (profile,) = build(configuration, "descheduler.yaml")
    assert [plugin.name for plugin in profile.plugins] == ["LowNodeLoad", "InterferenceAware"]
