"""Every field of pods at a 1.36 API server, by whether placement looks at it: the classes of pods cannot miss one."""

import os
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.kube.objects import Pod
from scheduler.cluster_state.podinfo import PodClasses
from scheduler.framework import Action
from scheduler.plugins.schedulinggates import SchedulingGates
from tests.cluster import apiserver
from tests.schedobjects import engine, node, pod

CLASS: dict[str, Any] = {
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "containers": [{"name": "other", "image": "other"}],
    "initContainers": [{"name": "init", "resources": {"requests": {"cpu": "9"}}}],
    "nodeName": "n9",
    "nodeSelector": {"a": "b"},
    "overhead": {"cpu": "1"},
    "preemptionPolicy": "Never",
    "priority": 7,
    "priorityClassName": "high",
    "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
    "resources": {"requests": {"cpu": "3"}},
    "schedulerName": "other",
    "schedulingGroup": {"podGroupName": "g"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
}
"""Fields with a value that makes another class."""

OWN = {
    "schedulingGates": "SchedulingGates looks at each pod, before the queue",
    "terminationGracePeriodSeconds": "of victims, not of the pod to be placed",
    "hostNetwork": "the API server writes its host ports into the containers; see hostUsers",
    "hostUsers": "without users of the host, and in its network, a pod needs a kubelet's feature",
}
"""Fields that are looked at, but not for a class of pods."""

UNSEEN = {
    "activeDeadlineSeconds": "time",
    "automountServiceAccountToken": "identity",
    "dnsConfig": "network",
    "dnsPolicy": "network",
    "enableServiceLinks": "environment",
    "ephemeralContainers": "added to running pods, ask for nothing",
    "hostAliases": "network",
    "hostIPC": "isolation",
    "hostPID": "isolation",
    "hostname": "network",
    "hostnameOverride": "network",
    "imagePullSecrets": "images",
    "os": "kubelets refuse what they cannot run; kube-scheduler does not look either",
    "readinessGates": "conditions after the start",
    "restartPolicy": "after the start",
    "runtimeClassName": "admission writes overhead, selector and tolerations of the class into the pod",
    "securityContext": "isolation",
    "serviceAccount": "identity",
    "serviceAccountName": "identity",
    "setHostnameAsFQDN": "network",
    "shareProcessNamespace": "isolation",
    "subdomain": "network",
}
"""Fields that no plugin looks at, and why."""


def key(spec: dict[str, Any]) -> bytes:
    base = {"containers": [{"name": "main", "image": "app:1"}]}
    document = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {**base, **spec}}
    return PodClasses().info(msgspec.convert(document, Pod)).cls.key


@pytest.mark.parametrize("name", sorted(CLASS))
def test_a_field_that_placement_looks_at_makes_another_class(name: str) -> None:
    assert key({name: CLASS[name]}) != key({})


def test_fields_are_classified_once() -> None:
    names = [*CLASS, *OWN, *UNSEEN]
    assert len(names) == len(set(names))


@pytest.mark.cluster
def test_every_field_of_the_api_server_is_classified(tmp_path: Path) -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set: run by `make test-cluster`")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with apiserver.running(Path(assets), tmp_path) as kubeconfig:
        server = msgspec.yaml.decode(kubeconfig.read_bytes())["clusters"][0]["cluster"]["server"]
        headers = {"Authorization": f"Bearer {apiserver.TOKEN}"}
        request = urllib.request.Request(f"{server}/openapi/v3/api/v1", headers=headers)
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            schemas = msgspec.json.decode(answer.read())["components"]["schemas"]
    fields = set(schemas["io.k8s.api.core.v1.PodSpec"]["properties"])
    assert fields - {*CLASS, *OWN, *UNSEEN} == set(), "say above what placement does with these"


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_features_that_a_pod_needs_make_another_class(kind: str) -> None:
    assert key({"hostNetwork": True, "hostUsers": False}) != key({"hostNetwork": True})
    plain = [{"name": "main", "image": "app:1"}]
    again = [{**plain[0], "restartPolicyRules": [{"action": "RestartAllContainers"}]}]
    assert key({kind: again}) != key({kind: plain})


def test_a_member_of_a_group_that_nothing_gathers_waits_with_the_reason() -> None:
    made = engine([node("n0")], kinds={"gates": SchedulingGates})
    made.on_pod(Action.ADD, pod("p", schedulingGroup={"podGroupName": "g"}), 0.0)
    assert made.schedule_one(0.0) is None
    reason = made.gate(made.classes.info(pod("p", schedulingGroup={"podGroupName": "g"})))
    assert reason is not None
    assert "group g of scheduling.k8s.io" in reason.text
