"""Manifests of YARN: the copilot's rights are what it watches and writes, and all names agree with the code."""

import json
from typing import Any
from xml.etree import ElementTree

import yaml

from api.settings import convert, parse
from controllers.runtime.loop import kinds_of
from controllers.slo.config import Applications
from controllers.yarn.board import Board
from controllers.yarn.offering import Offering
from controllers.yarn.protocol import COMPONENT, LABEL_COMPONENT
from controllers.yarn.settings import CopilotSettings
from tests.deploy.charts import ROOT

WRITTEN = {
    ("", "nodes"): {"patch"},
    ("events.k8s.io", "events"): {"create", "patch"},
    ("coordination.k8s.io", "leases"): {"create", "get", "update"},
}


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / "yarn" / name).read_text()))


def only(name: str, kind: str, called: str) -> dict[str, Any]:
    (found,) = [each for each in objects(name) if each["kind"] == kind and each["metadata"]["name"] == called]
    return found


def copilot_settings() -> CopilotSettings:
    text = only("copilot.yaml", "ConfigMap", "koord-yarn-copilot")["data"]["yarn.toml"]
    return convert(parse(text, "yarn.toml"), CopilotSettings, "yarn.toml")


def test_what_is_granted_is_what_is_watched_and_written_and_no_more() -> None:
    granted: dict[tuple[str, str], set[str]] = {}
    for kind in ("ClusterRole", "Role"):
        for rule in only("copilot.yaml", kind, "koord-yarn-copilot")["rules"]:
            for resource in rule["resources"]:
                granted.setdefault((rule["apiGroups"][0], resource), set()).update(rule["verbs"])
    needed = {key: set(verbs) for key, verbs in WRITTEN.items()}
    for watched in kinds_of(Offering(copilot_settings(), Board())):
        needed.setdefault((watched.group, watched.plural), set()).update(("list", "watch"))
    assert granted == needed


def test_the_copilot_needs_no_privilege() -> None:
    spec = only("copilot.yaml", "Deployment", "koord-yarn-copilot")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_copilot_finds_the_node_managers() -> None:
    daemons = only("nodemanager.yaml", "DaemonSet", "nodemanager")
    assert daemons["metadata"]["namespace"] in copilot_settings().namespaces
    assert daemons["spec"]["template"]["metadata"]["labels"][LABEL_COMPONENT] == COMPONENT
    assert daemons["spec"]["template"]["spec"]["hostNetwork"], "it registers under the node's name"


def test_the_cgroup_of_containers_is_the_host_applications() -> None:
    data = only("nodemanager.yaml", "ConfigMap", "nodemanager")["data"]
    properties = {
        each.findtext("name"): each.findtext("value") for each in ElementTree.fromstring(data["yarn-site.xml"])
    }
    text = only("nodemanager.yaml", "ConfigMap", "slo-controller-config")["data"]["host-application-config"]
    (application,) = convert(json.loads(text), Applications, "test").applications
    assert application.name == copilot_settings().application
    assert application.cgroup_path is not None
    assert application.cgroup_path.base == "KubepodsBesteffort"
    path = f"kubepods/besteffort/{application.cgroup_path.relative_path}"
    assert properties["yarn.nodemanager.linux-container-executor.cgroups.hierarchy"] == path
    assert f"yarn-hierarchy={path}" in data["container-executor.cfg"]
    least = [properties[f"yarn.nodemanager.resource.{name}"] for name in ("memory-mb", "cpu-vcores")]
    assert least == ["1", "1"], "what it registers with is offered without being withheld from pods"
