"""Pods against the protocol: the matrix, resources, grants, keys of schedulers, what must not change."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from api.crds import ElasticQuota
from controllers.webhooks.review import UserInfo
from controllers.webhooks.rules.quota_object import Quota, parsed
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import Document, Outcome, container, pod, review

QOS = "koordinator.sh/qosClass"
SCHEDULER = "system:serviceaccount:koord-system:koord-scheduler"
PRIORITIES = {"prod": 9500, "mid": 7500, "batch": 5500, "free": 3500, "none": 0}
GRANTS = {"system": {"admission.koordinator.sh/qos-classes": "LSE.SYSTEM"}, "shop": {}}


def may_bind(user: UserInfo, _namespace: str) -> bool:
    return user.username == SCHEDULER


VIEW = ClusterView(namespace_labels=lambda name: GRANTS.get(name, {}), may_bind=may_bind)


def validated(document: Document, view: ClusterView = VIEW, **given: Any) -> Outcome:
    return review("/validate-pod", view, obj=document, **{"namespace": "shop", **given})


ADMITTED = {
    "LSE": "prod mid batch free none",
    "LSR": "prod",
    "LS": "prod mid batch free none",
    "BE": "mid batch free",
    "": "prod mid batch free none",
}


@pytest.mark.parametrize("band", PRIORITIES)
@pytest.mark.parametrize("qos", [pytest.param(qos, id=qos or "unlabelled") for qos in ADMITTED])
def test_the_matrix_of_classes_and_priorities(qos: str, band: str) -> None:
    labels = {QOS: qos} if qos else {}
    document = pod(labels, container(requests={"cpu": "2"}), priority=PRIORITIES[band])
    done = validated(document)
    assert done.allowed == (band in ADMITTED[qos].split()), done.message
    if not done.allowed:
        assert done.code == 403
        assert f"{QOS}={qos}" in done.message


def test_the_label_of_the_priority_class_outranks_the_number() -> None:
    labels = {QOS: "BE", "koordinator.sh/priority-class": "koord-batch"}
    assert validated(pod(labels, priority=9500)).allowed
    assert not validated(pod(labels | {"koordinator.sh/priority-class": "koord-typo"}, priority=5500)).allowed


@pytest.mark.parametrize(
    ("qos", "containers", "allowed"),
    [
        pytest.param("LSR", ["2"], True, id="whole"),
        pytest.param("LSR", ["500m", "1500m"], True, id="whole-together"),
        pytest.param("LSR", ["1500m"], False, id="fraction"),
        pytest.param("LSE", ["500m"], False, id="lse-fraction"),
        pytest.param("LSR", [], False, id="nothing"),
        pytest.param("LS", ["1500m"], True, id="ls-shares"),
    ],
)
def test_exclusive_classes_need_whole_cpus(qos: str, containers: list[str], allowed: bool) -> None:
    made = [container(f"c{number}", requests={"cpu": cpu}) for number, cpu in enumerate(containers)]
    done = validated(pod({QOS: qos}, *made, priority=9500))
    assert done.allowed == allowed
    assert allowed or "whole CPUs" in done.message


def test_init_containers_and_sidecars_count_as_the_scheduler_counts_them() -> None:
    sidecar = container("side", requests={"cpu": "500m"}) | {"restartPolicy": "Always"}
    document = pod({QOS: "LSR"}, container(requests={"cpu": "1500m"}), initContainers=[sidecar], priority=9500)
    assert validated(document).allowed
    del document["spec"]["initContainers"][0]["restartPolicy"]
    assert not validated(document).allowed


@pytest.mark.parametrize("qos", [pytest.param("", id="unlabelled"), "LS", "LSR"])
def test_batch_resources_need_best_effort(qos: str) -> None:
    asked = container(requests={"kubernetes.io/batch-cpu": "1000", "cpu": "1"})
    assert "need the label" in validated(pod({QOS: qos}, asked, priority=9500)).message
    assert validated(pod({QOS: "BE"}, asked, priority=5500)).allowed


def test_a_class_that_is_restricted_takes_a_grant_of_the_namespace() -> None:
    document = pod({QOS: "SYSTEM"})
    done = validated(document)
    assert "admission.koordinator.sh/qos-classes" in done.message
    assert validated(document, namespace="system").allowed
    exclusive = pod({QOS: "LSR"}, container(requests={"cpu": "1"}), priority=9500)
    assert validated(exclusive).allowed
    strict = ClusterView(namespace_labels=VIEW.namespace_labels, restricted_classes=frozenset({"LSE", "LSR", "SYSTEM"}))
    assert not validated(exclusive, strict).allowed
    assert not validated(exclusive, strict, namespace="system").allowed, "the grant names LSE, not LSR"


KEYS = [
    "scheduling.koordinator.sh/resource-status",
    "scheduling.koordinator.sh/device-allocated",
    "scheduling.koordinator.sh/reservation-allocated",
    "internal.scheduling.koordinator.sh/bind-gang-group-id",
]


@pytest.mark.parametrize("key", KEYS)
def test_only_schedulers_write_what_they_allocated(key: str) -> None:
    given, without = pod(annotations={key: '{"cpuset":"0-3"}'}), pod()
    other = pod(annotations={key: '{"cpuset":"4-7"}'})
    assert key in validated(given).message
    for old, new in ((without, given), (given, other), (given, without)):
        assert key in validated(new, old=old).message
        assert key in validated(new, old=old, sub_resource="status").message
        assert validated(new, old=old, user=SCHEDULER).allowed
    assert validated(given, old=given).allowed, "others may still update the pod"


@pytest.mark.parametrize("user", [SCHEDULER, "kubernetes-admin"])
def test_no_pod_is_a_stand_in_for_a_reservation(user: str) -> None:
    key = "scheduling.koordinator.sh/reserve-pod"
    assert key in validated(pod(annotations={key: "true"}), user=user).message
    assert key in validated(pod(annotations={key: "true"}), old=pod(), user=user).message
    assert validated(pod(), old=pod(annotations={key: "true"}), user=user).allowed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({QOS: "LS"}, {QOS: "BE"}, id="class"),
        pytest.param({QOS: "BE"}, {}, id="class-removed"),
        pytest.param({"koordinator.sh/priority": "1"}, {"koordinator.sh/priority": "2"}, id="sub-priority"),
        pytest.param({}, {"koordinator.sh/priority-class": "koord-prod"}, id="priority-class"),
        pytest.param({}, {"quota.scheduling.koordinator.sh/preemptible": "false"}, id="preemptible"),
    ],
)
def test_what_decides_protection_is_immutable(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    done = validated(pod(after, priority=5500), old=pod(before, priority=5500))
    assert "cannot be changed" in done.message
    assert validated(pod({**before, "free": "x"}), old=pod(before)).allowed


def test_a_pod_from_before_the_rules_can_be_finished() -> None:
    wrong = pod({QOS: "BE"}, priority=9500)
    assert not validated(wrong).allowed
    released = pod({QOS: "BE"}, priority=9500)
    released["metadata"]["finalizers"] = []
    assert validated(released, old=wrong).allowed
    assert review("/validate-pod", VIEW, old=wrong).allowed


def test_the_extended_resource_spec_says_what_the_containers_ask_for() -> None:
    key = "node.koordinator.sh/extended-resource-spec"
    lie = '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"64000"}}}}'
    asked = container(requests={"kubernetes.io/batch-cpu": "100"})
    document = pod({QOS: "BE"}, asked, annotations={key: lie}, priority=5500)
    assert key in validated(document).message
    truth = '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"100"}}}}'
    assert validated(pod({QOS: "BE"}, asked, annotations={key: truth}, priority=5500)).allowed
    assert key in validated(document, old=pod({QOS: "BE"}, asked, annotations={key: truth}, priority=5500)).message
    assert key in validated(pod(annotations={key: "{"})).message
    assert validated(pod(annotations={key: "{}"})).allowed


def test_pods_use_no_parent_quota() -> None:
    quotas = {"parent": Quota("parent", is_parent=True, namespaces=("listed",)), "leaf": Quota("leaf", parent="parent")}
    view = ClusterView(quotas=quotas)
    name = "quota.scheduling.koordinator.sh/name"
    assert "is a parent" in validated(pod({name: "parent"}), view).message
    assert "is a parent" in validated(pod(), view, namespace="listed").message
    assert validated(pod({name: "leaf"}), view).allowed
    assert validated(pod({name: "unknown"}), view).allowed


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        pytest.param({"gpu": "100", "gpu.shared": "1"}, "cannot be requested together", id="both"),
        pytest.param({"gpu": "150"}, "whole GPUs", id="one-and-a-half"),
        pytest.param({"gpu.shared": "0", "gpu-memory": "1Gi"}, "above 0", id="none-shared"),
        pytest.param({"gpu.shared": "2"}, "needs either", id="shared-without-memory"),
        pytest.param(
            {"gpu.shared": "2", "gpu-memory": "1Gi", "gpu-memory-ratio": "50"}, "needs either", id="two-memories"
        ),
        pytest.param({"gpu.shared": "2", "gpu-memory-ratio": "50", "gpu-core": "51"}, "multiple", id="odd-core"),
        pytest.param({"gpu.shared": "2", "gpu-memory-ratio": "50", "gpu-core": "50"}, "", id="right"),
        pytest.param({"gpu": "200"}, "", id="two-cards"),
    ],
)
def test_requests_for_gpus_where_they_are_checked(requests: Mapping[str, str], message: str) -> None:
    asked = container(requests={f"koordinator.sh/{name}": amount for name, amount in requests.items()})
    done = validated(pod(None, asked), ClusterView(validate_devices=True))
    assert done.allowed == (not message)
    assert message in done.message
    assert validated(pod(None, asked)).allowed


def test_amounts_and_names_that_are_probably_mistakes_are_warnings() -> None:
    asked = container(requests={"kubernetes.io/batch-cpu": "4"})
    done = validated(pod({QOS: "BE"}, asked, priority=5500))
    assert done.allowed
    assert "0.004 of a CPU" in done.warnings[0]
    assert "is no QoS class" in validated(pod({QOS: "be"})).warnings[0]


@pytest.mark.parametrize(
    ("cpu", "quota", "word"),
    [
        pytest.param("2", {}, "", id="fits"),
        pytest.param("3", {}, "above 10000", id="above-max"),
        pytest.param("2", {"admitted": {"cpu": 9000}}, "above 9000", id="above-admission"),
        pytest.param("3", {"admitted": {"cpu": 20_000}}, "", id="admission-instead-of-max"),
        pytest.param("99", {"maximum": {"memory": 1}}, "", id="not-bounded"),
        pytest.param("99", {"name": "koordinator-default-quota"}, "", id="reserved"),
    ],
)
def test_a_quota_without_room_refuses_where_it_is_asked_to(cpu: str, quota: dict[str, Any], word: str) -> None:
    stated = {"name": "leaf", "maximum": {"cpu": 10_000}, "requested": {"cpu": 8000}, **quota}
    found = Quota(**stated, namespaces=("shop",))
    document = pod(None, container(requests={"cpu": cpu}))
    done = validated(document, ClusterView(quotas={found.name: found}, quota_admission=True))
    assert done.allowed is not bool(word)
    assert word in done.message
    assert validated(document, ClusterView(quotas={found.name: found})).allowed


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cpu":"x"}', "null"])
def test_what_a_quota_states_of_room_may_be_anything(text: str) -> None:
    annotations = {"quota.scheduling.koordinator.sh/admission": text}
    stated = {"metadata": {"name": "q", "annotations": annotations}, "spec": {"max": {"cpu": "1"}}}
    found = parsed(msgspec.convert(stated, ElasticQuota))
    assert (found.admitted, found.maximum) == ({}, {"cpu": 1000})
