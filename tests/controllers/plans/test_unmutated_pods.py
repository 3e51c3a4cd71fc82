"""Events on pods that profiles would have changed."""

from typing import Any

import msgspec

from api.crds import ClusterColocationProfile
from cluster import Key
from controllers.kinds import CLUSTER_COLOCATION_PROFILE, NAMESPACE, POD, Namespace, Pod
from controllers.plans.unmutated_pods import UnmutatedPods
from tests.controllers.webhooks import spark
from tests.managed import built, view_of

PROFILE = msgspec.convert(spark.PROFILE, ClusterColocationProfile)
NAMESPACES = [msgspec.convert(spark.NAMESPACE, Namespace), msgspec.convert({"metadata": {"name": "web"}}, Namespace)]


def stored(name: str, namespace: str = "spark-job", **metadata: Any) -> Pod:
    document = spark.spark_pod("driver", "1", "1Gi")
    return msgspec.convert(
        document | {"metadata": document["metadata"] | {"name": name, "namespace": namespace} | metadata}, Pod
    )


def notes(*pods: Pod, profiles: tuple[ClusterColocationProfile, ...] = (PROFILE,)) -> dict[str, str]:
    controller = built(UnmutatedPods)
    objects = {POD: list(pods), NAMESPACE: NAMESPACES, CLUSTER_COLOCATION_PROFILE: list(profiles)}
    found = controller.plan(view_of(controller, objects), 0.0)
    assert not found.writes
    return {event.regarding.name: event.note for event in found.warnings}


def test_a_selected_pod_without_the_profiles_marks_gets_an_event() -> None:
    found = notes(stored("a"), stored("b", "web"), stored("c", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert found.keys() == {"a"}
    assert "profile colocation-profile-example selects this pod" in found["a"]
    assert "priorityClassName" in found["a"]


def test_without_profiles_nothing_is_said() -> None:
    assert notes(stored("a"), profiles=()) == {}


def test_explain_names_the_requirement_that_fails() -> None:
    controller = built(UnmutatedPods)
    pods = [stored("a"), stored("b", "web"), stored("c", labels={}), stored("d", "kube-system")]
    objects = {POD: pods, NAMESPACE: NAMESPACES, CLUSTER_COLOCATION_PROFILE: [PROFILE]}
    view = view_of(controller, objects)

    def line(namespace: str, name: str) -> str:
        (found,) = controller.explain(view, "pods", Key(namespace, name), 0.0)
        return found.removeprefix("profile colocation-profile-example: ")

    assert line("spark-job", "a").startswith("applies; the pod lacks label koordinator.sh/qosClass, priorityClassName")
    assert "label koordinator.sh/enable-colocation of the namespace is absent; the profile wants 'true'" in line(
        "web", "b"
    )
    assert "launched-by-spark-operator of the pod is absent" in line("spark-job", "c")
    assert "kube-system is exempt" in line("kube-system", "d")
    assert controller.explain(view, "pods", Key("web", "gone"), 0.0) == ()
    assert controller.explain(view, "nodes", Key("", "a"), 0.0) == ()
