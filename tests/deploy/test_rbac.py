"""The agent's role against its code: no right without a use, and no use without its right."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import api.crds
import cluster
from api.crds import Definition
from cluster import Resource
from tests.deploy.charts import ROOT, documents

RIGHTS = {
    ("", "pods"): ({"list", "watch"}, "koordlet/kubelet/watch.py", "Informer(client, _PODS"),
    ("apps", "daemonsets"): ({"get"}, "koordlet/kube/rollout.py", "client.get(DAEMON_SETS"),
    ("", "nodes"): ({"get", "list", "watch"}, "koordlet/kubelet/watch.py", "client.get(_NODES"),
    ("", "nodes/pods"): ({"get"}, "koordlet/kubelet/http_client.py", '"/pods": "nodes/pods"'),
    ("", "nodes/configz"): ({"get"}, "koordlet/kubelet/http_client.py", '"/configz": "nodes/configz"'),
    ("events.k8s.io", "events"): ({"create", "patch"}, "cluster/events.py", "client.create(EVENTS"),
    ("slo.koordinator.sh", "nodemetrics"): (
        {"create"},
        "koordlet/kube/metric_writer.py",
        "client.create(_NODE_METRICS",
    ),
    ("slo.koordinator.sh", "nodemetrics/status"): (
        {"patch"},
        "koordlet/kube/metric_writer.py",
        'client.patch(_NODE_METRICS, self._key, patch, subresource="status")',
    ),
    ("slo.koordinator.sh", "nodeslos"): ({"list", "watch"}, "koordlet/kube/node_slo.py", "Informer(client, _NODE_SLOS"),
    ("scheduling.koordinator.sh", "devices"): (
        {"get", "create", "update"},
        "koordlet/devices/reporter.py",
        "KeptObject(client, custom(DEVICE)",
    ),
    ("topology.node.k8s.io", "noderesourcetopologies"): (
        {"get", "create", "update"},
        "koordlet/topology/reporter.py",
        "KeptObject(client, custom(NODE_RESOURCE_TOPOLOGY)",
    ),
    ("interference.koordinator.sh", "interferencedetectionrules"): (
        {"list", "watch"},
        "koordlet/kube/rules.py",
        "Informer(client, _RULES",
    ),
    ("interference.koordinator.sh", "workloadprofiles"): (
        {"get"},
        "koordlet/kube/fleet_baselines.py",
        "client.find(_PROFILES",
    ),
}
"""Verbs of the role, by group and resource; a file that uses them and what it says there."""

RIGHTS_OF_EVICTING = {
    ("", "pods/eviction"): ({"create"}, "koordlet/enforcer/evictions/api_evictor.py", "evict(self._client"),
}
"""Further ones with `koordlet.evict`."""
ALL_RIGHTS = RIGHTS | RIGHTS_OF_EVICTING


def granted(values: Mapping[str, Any] | None = None) -> dict[tuple[str, str], set[str]]:
    return {
        (group, resource): set(rule["verbs"])
        for role in documents(values)
        if role["kind"] in ("ClusterRole", "Role") and role["metadata"]["name"] == "koordlet"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def used_kinds() -> dict[tuple[str, str], Path]:
    """Kinds that a module of the agent imports, by group and resource, with the last module."""
    found: dict[tuple[str, str], Path] = {}
    for path in (ROOT / "koordlet").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module not in ("cluster", "cluster.resources", "api.crds"):
                continue
            for alias in node.names:
                kind = getattr(cluster, alias.name, None) or getattr(api.crds, alias.name, None)
                if isinstance(kind, (Resource, Definition)):
                    found[kind.group, kind.plural] = path
    return found


def test_the_role_has_exactly_the_rights_that_are_listed_here() -> None:
    assert granted() == {key: verbs for key, (verbs, _, _) in RIGHTS.items()}
    assert granted({"koordlet": {"enforce": True}}) == granted()
    assert granted({"koordlet": {"evict": True}}) == {key: verbs for key, (verbs, _, _) in ALL_RIGHTS.items()}


@pytest.mark.parametrize("key", sorted(ALL_RIGHTS), ids="/".join)
def test_each_right_is_used(key: tuple[str, str]) -> None:
    _, file, use = ALL_RIGHTS[key]
    assert use in (ROOT / file).read_text()


def test_every_kind_that_the_agent_imports_is_granted() -> None:
    kinds = {(group, resource.partition("/")[0]) for group, resource in granted()}
    missing = {
        f"{group}/{plural}": str(path) for (group, plural), path in used_kinds().items() if (group, plural) not in kinds
    }
    assert not missing, "add the right to deploy/chart/templates/koordlet-rbac.yaml and to RIGHTS"


def test_nothing_grants_every_verb_or_kind() -> None:
    for (group, resource), verbs in granted().items():
        assert "*" not in {group, resource, *verbs}
        assert resource not in {"secrets", "nodes/proxy", "pods/exec"}


def test_nodes_proxy_is_granted_on_demand_only() -> None:
    (role,) = (each for each in documents({"rbac": {"nodesProxy": True}}) if each["kind"] == "ClusterRole")
    assert {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]} in role["rules"]
