"""Colocation profiles on pods: the published walk-through, the reference's vectors, and what is never done."""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from api.crds import ClusterColocationProfile, ElasticQuotaProfile
from controllers.webhooks.rules.quota_object import Quota
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks import spark
from tests.controllers.webhooks.reviews import PRIORITY_CLASSES, Document, Outcome, container, pod, profile, review

LABELS: Mapping[str, Mapping[str, str]] = {"spark-job": {"koordinator.sh/enable-colocation": "true"}, "web": {}}


def view_of(*profiles: ClusterColocationProfile, draw: int = 0, **known: Any) -> ClusterView:
    return ClusterView(
        profiles=sorted(profiles, key=lambda item: item.metadata.name),
        priority_classes=PRIORITY_CLASSES,
        namespace_labels=lambda name: LABELS.get(name, {}),
        draw=draw,
        **known,
    )


SPARK = view_of(msgspec.convert(spark.PROFILE, ClusterColocationProfile))
BATCH = profile(qosClass="BE", priorityClassName="koord-batch")


def mutated(document: Document, view: ClusterView, namespace: str = "spark-job") -> Document:
    done = review("/mutate-pod", view, obj=document, namespace=namespace)
    assert done.allowed, done.message
    assert done.object is not None
    again = review("/mutate-pod", view, obj=done.object, namespace=namespace)
    assert again.patch == [], "a second pass changes nothing"
    return done.object


def refused(document: Document, view: ClusterView) -> Outcome:
    done = review("/mutate-pod", view, obj=document)
    assert not done.allowed
    assert done.message
    return done


@pytest.mark.parametrize(
    ("role", "cpu", "millicores", "memory"),
    [
        pytest.param("driver", "1", "1000", "3456Mi", id="driver"),
        pytest.param("executor", "1500m", "1500", "1408Mi", id="executor"),
    ],
)
def test_the_published_walk_of_spark_field_by_field(role: str, cpu: str, millicores: str, memory: str) -> None:
    submitted = spark.spark_pod(role, cpu, memory)
    expected = copy.deepcopy(submitted)
    expected["metadata"]["labels"] |= {
        "koordinator.sh/qosClass": "BE",
        "koordinator.sh/priority": "1000",
        "koordinator.sh/mutated": "true",
    }
    amounts = {"kubernetes.io/batch-cpu": millicores, "kubernetes.io/batch-memory": memory}
    expected["spec"] |= {
        "schedulerName": "koord-scheduler",
        "priorityClassName": "koord-batch",
        "priority": 5000,
        "preemptionPolicy": "PreemptLowerPriority",
        "terminationGracePeriodSeconds": 30,
    }
    expected["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    stored = mutated(submitted, SPARK)
    annotations = stored["metadata"].pop("annotations")
    assert stored == expected
    assert annotations.pop("koordinator.sh/intercepted") == "true"
    stated = msgspec.json.decode(annotations.pop("node.koordinator.sh/extended-resource-spec"))
    assert stated == {"containers": {f"spark-kubernetes-{role}": {"limits": amounts, "requests": amounts}}}
    assert annotations == {}
    stored["metadata"]["annotations"] = {}
    assert review("/validate-pod", SPARK, obj=stored).allowed


def test_pods_of_other_namespaces_and_of_no_operator_are_left_alone() -> None:
    submitted = spark.spark_pod("driver", "1", "1Gi")
    assert mutated(submitted, SPARK, namespace="web") == submitted
    del submitted["metadata"]["labels"]["sparkoperator.k8s.io/launched-by-spark-operator"]
    assert mutated(submitted, SPARK) == submitted


@pytest.mark.parametrize("namespace", ["kube-system", "koord-system"])
def test_our_own_and_system_namespaces_are_never_changed(namespace: str) -> None:
    assert mutated(pod(None, container(requests={"cpu": "1"})), view_of(BATCH), namespace) == pod(
        None, container(requests={"cpu": "1"})
    )


def test_amounts_of_containers_init_containers_and_overhead_are_translated() -> None:
    both = {"cpu": "1", "memory": "4Gi"}
    small = {"cpu": "500m", "memory": "1Gi"}
    submitted = pod(
        None,
        container(requests=both, limits=both),
        initContainers=[container("init", requests=small, limits=small)],
        overhead={"cpu": "1", "memory": "2Gi"},
    )
    spec = mutated(submitted, view_of(BATCH))["spec"]
    batch = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"}
    assert spec["containers"][0]["resources"] == {"requests": batch, "limits": batch}
    batch = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    assert spec["initContainers"][0]["resources"] == {"requests": batch, "limits": batch}
    assert spec["overhead"] == {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "2Gi"}


def test_the_overhead_of_a_runtime_class_stays() -> None:
    document = pod(None, container(requests={"cpu": "1"}), overhead={"cpu": "1"}, runtimeClassName="sandbox")
    assert mutated(document, view_of(BATCH))["spec"]["overhead"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(
            {"limits": {"cpu": "1", "memory": "4Gi"}},
            {
                "limits": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"},
                "requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"},
            },
            id="limits-only",
        ),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "4Gi"}},
            {"requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"}},
            id="requests-only",
        ),
        pytest.param(
            {"requests": {"cpu": "0.0005", "memory": "1500m"}},
            {"requests": {"kubernetes.io/batch-cpu": "1", "kubernetes.io/batch-memory": "2"}},
            id="fractions-count-as-whole",
        ),
        pytest.param({"requests": {"nvidia.com/gpu": "1"}}, {"requests": {"nvidia.com/gpu": "1"}}, id="others-stay"),
    ],
)
def test_amounts_of_a_batch_pod(resources: Mapping[str, Mapping[str, str]], expected: Document) -> None:
    stored = mutated(pod(None, container(**resources)), view_of(BATCH))
    assert stored["spec"]["containers"][0]["resources"] == expected


@pytest.mark.parametrize(
    ("given", "names"),
    [
        pytest.param({"priorityClassName": "koord-mid", "qosClass": "LS"}, "kubernetes.io/mid-cpu", id="mid"),
        pytest.param({"priorityClassName": "koord-batch", "qosClass": "BE"}, "kubernetes.io/batch-cpu", id="batch"),
        pytest.param({"qosClass": "BE"}, "kubernetes.io/batch-cpu", id="best-effort-without-priority"),
        pytest.param({"priorityClassName": "koord-prod", "qosClass": "LSR"}, "cpu", id="prod"),
        pytest.param({"priorityClassName": "koord-free", "qosClass": "BE"}, "cpu", id="free-has-none"),
        pytest.param({"qosClass": "LS"}, "cpu", id="no-priority"),
    ],
)
def test_resources_follow_the_priority_class(given: Document, names: str) -> None:
    stored = mutated(pod(None, container(requests={"cpu": "2"})), view_of(profile(**given)))
    assert stored["spec"]["containers"][0]["resources"]["requests"].keys() == {names}


def test_a_profile_can_leave_resources_alone() -> None:
    skipping = profile("skip", {"config.koordinator.sh/skip-update-resources": ""}, labels={"a": "b"})
    stored = mutated(pod(None, container(requests={"cpu": "1"})), view_of(BATCH, skipping))
    assert stored["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert stored["metadata"]["labels"]["a"] == "b"


def test_keys_are_mapped_suffixed_and_overwritten_in_order_of_names() -> None:
    first = profile("a", labels={"team": "one", "stage": "dev"}, labelSuffixes={"name": "-x", "absent": "-x"})
    second = profile(
        "b",
        labels={"team": "two"},
        labelKeysMapping={"app": "copied", "missing": "empty"},
        annotationKeysMapping={"from": "to"},
        koordinatorPriority=0,
    )
    stored = mutated(pod({"app": "shop", "name": "n"}, annotations={"from": "x"}), view_of(second, first))
    assert stored["metadata"]["labels"] == {
        "app": "shop",
        "name": "n-x",
        "team": "two",
        "stage": "dev",
        "copied": "shop",
        "empty": "",
        "koordinator.sh/priority": "0",
    }
    assert stored["metadata"]["annotations"] == {"from": "x", "to": "x"}


def test_a_patch_merges_lists_by_name() -> None:
    patch = {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}], "hostname": "h"}}
    stored = mutated(pod(), view_of(profile(patch=patch)))
    assert stored["spec"] == {
        "hostname": "h",
        "containers": [{"name": "main", "image": "busybox", "env": [{"name": "A", "value": "1"}]}],
    }


@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        pytest.param(0, 0, id="never"),
        pytest.param("0%", 0, id="never-as-text"),
        pytest.param("30%", 30, id="percent"),
        pytest.param(70, 70, id="number"),
        pytest.param(100, 100, id="always"),
        pytest.param(None, 100, id="absent"),
    ],
)
def test_a_probability_is_the_share_of_pods(probability: int | str | None, expected: int) -> None:
    found = profile(labels={"hit": "yes"}, probability=probability)
    hits = sum(
        "hit" in (review("/mutate-pod", view_of(found, draw=draw), obj=pod()).object or {})["metadata"]["labels"]
        for draw in range(1000)
    )
    assert hits == pytest.approx(10 * expected, abs=0 if expected in (0, 100) else 45)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"priorityClassName": "gone"}, "PriorityClass gone", id="no-such-priority-class"),
        pytest.param({"probability": "often"}, "neither a number nor a percentage", id="probability"),
        pytest.param({"patch": {"spec": {"containers": "x"}}}, "does not fit", id="patch-breaks-the-pod"),
        pytest.param({"patch": {"spec": {"containers": [{"image": "y"}]}}}, "merge key", id="patch-without-key"),
        pytest.param({"patch": {"$retainKeys": 3}}, "does not fit", id="patch-of-nonsense"),
        pytest.param(
            {"annotations": {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}},
            "only a scheduler may write",
            id="cpuset",
        ),
        pytest.param(
            {"annotationKeysMapping": {"mine": "scheduling.koordinator.sh/device-allocated"}},
            "only a scheduler may write",
            id="devices-by-mapping",
        ),
        pytest.param(
            {"patch": {"metadata": {"annotations": {"scheduling.koordinator.sh/reserve-pod": "true"}}}},
            "only a scheduler may write",
            id="stand-in-by-patch",
        ),
    ],
)
def test_a_profile_that_cannot_be_applied_is_named(given: Document, message: str) -> None:
    done = refused(pod(annotations={"mine": "x"}), view_of(profile("bad", **given)))
    assert message in done.message
    assert "profile bad" in done.message


def test_older_names_of_resources_are_renamed_everywhere() -> None:
    amounts = {"koordinator.sh/batch-cpu": "1000", "koordinator.sh/batch-memory": "3456Mi"}
    stored = mutated(pod({"koordinator.sh/qosClass": "BE"}, container(requests=amounts, limits=amounts)), view_of())
    now = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "3456Mi"}
    assert stored["spec"]["containers"][0]["resources"] == {"requests": now, "limits": now}


def test_a_stated_extended_resource_spec_is_replaced_by_what_the_containers_ask_for() -> None:
    key = "node.koordinator.sh/extended-resource-spec"
    lie = '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"64000"}}}}'
    assert key not in mutated(pod(annotations={key: lie}), view_of())["metadata"]["annotations"]
    asked = container(requests={"kubernetes.io/batch-cpu": "100"})
    stored = mutated(pod(None, asked, annotations={key: lie}), view_of())
    assert '"100"' in stored["metadata"]["annotations"][key]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param(
            {"koordinator.sh/gpu": "50"}, {"gpu-core": "50", "gpu-memory-ratio": "50", "gpu.shared": "1"}, id="half"
        ),
        pytest.param(
            {"koordinator.sh/gpu": "200"}, {"gpu-core": "200", "gpu-memory-ratio": "200", "gpu.shared": "2"}, id="two"
        ),
        pytest.param({"koordinator.sh/gpu-core": "300"}, {"gpu-core": "300", "gpu.shared": "3"}, id="core-only"),
        pytest.param(
            {"koordinator.sh/gpu-memory": "4Gi", "koordinator.sh/gpu.shared": "2"},
            {"gpu-memory": "4Gi", "gpu.shared": "2"},
            id="stated",
        ),
    ],
)
def test_gpus_are_written_out(requests: Mapping[str, str], expected: Mapping[str, str]) -> None:
    stored = mutated(pod(None, container(requests=requests, limits=requests)), view_of())
    wanted = {f"koordinator.sh/{name}": amount for name, amount in expected.items()}
    assert stored["spec"]["containers"][0]["resources"] == {"requests": wanted, "limits": wanted}


def test_pods_of_a_quota_tree_stay_on_its_nodes() -> None:
    tree = msgspec.convert(
        {
            "metadata": {"name": "t", "labels": {"quota.scheduling.koordinator.sh/tree-id": "tree-1"}},
            "spec": {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}},
        },
        ElasticQuotaProfile,
    )
    known = {"quotas": {"q": Quota("q", tree="tree-1")}, "quota_profiles": [tree]}
    labels = {"quota.scheduling.koordinator.sh/name": "q"}
    stored = mutated(pod(labels), view_of(multi_quota_tree=True, **known))
    affinity = stored["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = {"key": "pool", "operator": "In", "values": ["a"]}
    assert affinity == {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    assert mutated(pod(labels), view_of(**known)) == pod(labels)


def test_pod_level_resources_are_not_translated_and_a_warning_says_so() -> None:
    document = pod({"koordinator.sh/qosClass": "BE"}, resources={"requests": {"cpu": "1"}})
    done = review("/mutate-pod", view_of(BATCH), obj=document)
    assert done.allowed
    assert "spec.resources is not translated" in done.warnings[0]


def test_amounts_in_the_spelling_of_the_api_server_are_the_same_amounts() -> None:
    stored = mutated(pod(None, container(requests={"cpu": "1"})), view_of(BATCH))
    stored["spec"]["containers"][0]["resources"]["requests"]["kubernetes.io/batch-cpu"] = "1k"
    assert review("/mutate-pod", view_of(BATCH), obj=stored).patch == []
    assert review("/validate-pod", view_of(BATCH), obj=stored).allowed


def test_a_patch_that_takes_the_spec_away_is_left_to_the_api_server() -> None:
    bare = profile("z", patch={"spec": None})
    done = review("/mutate-pod", view_of(BATCH, bare), obj=pod({"koordinator.sh/qosClass": "BE"}))
    assert done.allowed
