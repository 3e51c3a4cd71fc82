"""The source of pods beside a real kubelet and containerd: what runs is matched, what ends is dropped."""

from pathlib import Path

import pytest

from api.qos import QoSClass
from cluster import PODS, DeleteOptions, Document, Key
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts
from koordlet.kubelet.examination import examine_cluster
from koordlet.kubelet.settings import KubeletSettings
from koordlet.kubelet.source import PodSource
from tests.cluster_e2e.conftest import Pods, container_id
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.test_node import BURSTABLE, GUARANTEED, SLEEP
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

TREE = HostTree()
STATIC = """
apiVersion: v1
kind: Pod
metadata: {{name: told-by-file, namespace: default}}
spec:
  terminationGracePeriodSeconds: 1
  hostNetwork: true
  containers: [{{name: main, image: {image}, imagePullPolicy: Never, command: [sleep, "3600"]}}]
"""


def found(source: PodSource, container: str) -> tuple[PodFacts, PodContainer]:
    """Wait until a container runs in the table, at a cgroup that exists."""
    mount = find_hierarchies(TREE).cpu

    def runs() -> tuple[PodFacts, PodContainer] | None:
        both = source.table().of_container(container)
        if both is None or not both[1].running or not both[1].cgroup_path:
            return None
        return both if Path(f"{mount}{both[1].cgroup_path}").is_dir() else None

    return wait_for(runs, check=lambda: str(source.status()))


def delete(node: Node, pod: Document) -> None:
    key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
    node.client.delete(PODS, key, DeleteOptions(grace_period_seconds=0))


@pytest.mark.parametrize(
    ("resources", "kube_qos"),
    [
        pytest.param(GUARANTEED, "Guaranteed", id="guaranteed"),
        pytest.param(BURSTABLE, "Burstable", id="burstable"),
        pytest.param({}, "BestEffort", id="best-effort"),
    ],
)
def test_a_container_is_matched_when_it_starts_and_dropped_when_it_ends(
    source: PodSource, pods: Pods, resources: Document, kube_qos: str
) -> None:
    pod = pods.run("matched", SLEEP, resources)
    facts, container = found(source, container_id(pod))
    assert (facts.uid, facts.name, facts.kube_qos) == (pod["metadata"]["uid"], f"{pods.namespace}/matched", kube_qos)
    assert container.role is ContainerRole.APP
    assert source.table().of_path(container.cgroup_path) == (facts, container)
    assert source.table().of_path(facts.cgroup_path) == (facts, None)
    delete(pods.node, pod)
    wait_for(lambda: source.table().of_uid(facts.uid) is None)
    assert source.status().unplaced == 0


def test_a_restarted_container_is_one_with_its_earlier_instances(source: PodSource, pods: Pods) -> None:
    first, _ = found(source, container_id(pods.run("again", ["sh", "-c", "sleep 3; exit 1"])))

    def restarted() -> PodContainer | None:
        facts = source.table().of_uid(first.uid)
        container = facts.containers[0] if facts else None
        return container if container and container.restarts and container.running else None

    container = wait_for(restarted)
    assert container.earlier_ids
    for each in (container.id, *container.earlier_ids):
        both = source.table().of_container(each)
        assert both is not None
        assert both[0].uid == first.uid


def test_a_name_used_again_is_another_pod(source: PodSource, pods: Pods) -> None:
    first = pods.run("reused", SLEEP)
    found(source, container_id(first))
    delete(pods.node, first)
    wait_for(lambda: pods.node.client.find(PODS, Key(pods.namespace, "reused")) is None)
    second = pods.run("reused", SLEEP)
    facts, _ = found(source, container_id(second))
    assert facts.uid == second["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_static_pod_is_known_by_its_hash_and_is_the_systems(source: PodSource, node: Node) -> None:
    file = node.kubelet.static_pods / "told-by-file.yaml"
    file.write_text(STATIC.format(image=BUSYBOX))
    try:

        def listed() -> PodFacts | None:
            name = f"default/told-by-file-{node.name}"
            return next((pod for pod in source.table().pods if pod.name == name), None)

        facts = wait_for(lambda: (pod := listed()) and next((pod for each in pod.containers if each.running), None))
        assert facts.static
        assert facts.qos is QoSClass.SYSTEM
        assert len(facts.cgroup_uid) == 32
        running = next(each for each in facts.containers if each.running)
        found(source, running.id)
    finally:
        file.unlink()
    wait_for(lambda: listed() is None)


def test_the_doctor_reaches_everything(settings: KubeletSettings, node: Node, pods: Pods) -> None:
    pods.run("present", SLEEP)

    def refused() -> dict[str, str]:
        lines = examine_cluster(settings, TREE, node=node.name, kubeconfig=str(node.kubeconfig))
        return {each.name: each.reason for each in lines if not each.available}

    wait_for(lambda: not refused(), interval_seconds=1.0, check=lambda: str(refused()))
