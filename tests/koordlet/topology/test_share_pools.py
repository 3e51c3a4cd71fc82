"""Share pools: what is taken from which pool, and claims that are not believed."""

import json

import pytest

from api.kube.numa import CpuSharedPool
from api.protocol import ANNOTATION_RESOURCE_STATUS
from api.qos import QoSClass
from koordlet.identity.pods import PodFacts
from koordlet.topology.kubelet_cpus import KubeletCpus
from koordlet.topology.node_cpus import NodeCpus
from koordlet.topology.share_pools import given_cpus, kubelet_held, share_pools
from tests.koordlet.topology.machines import machine

EIGHT = machine(sockets=2, nodes=1, cores=2, threads=2)
"""CPUs 0-3 on node 0, 4-7 on node 1."""


def pod(name: str, qos: QoSClass, cpuset: str, *, cores: int | None = None, active: bool = True) -> PodFacts:
    requests = {"cpu": 1000 * (8 if cores is None else cores)}
    annotations = {ANNOTATION_RESOURCE_STATUS: json.dumps({"cpuset": cpuset})} if cpuset else {}
    return PodFacts(f"default/{name}", qos, annotations=annotations, requests=requests, uid=name, active=active)


@pytest.mark.parametrize(
    ("kubelet", "pods", "node", "ls", "be"),
    [
        pytest.param(KubeletCpus(), [], NodeCpus(), {0: "0-3", 1: "4-7"}, {0: "0-3", 1: "4-7"}, id="idle"),
        pytest.param(
            KubeletCpus(), [pod("a", QoSClass.LSR, "0-1")], NodeCpus(),
            {0: "2-3", 1: "4-7"}, {0: "0-3", 1: "4-7"}, id="lsr-is-lent-to-be",
        ),
        pytest.param(
            KubeletCpus(), [pod("a", QoSClass.LSE, "0-1")], NodeCpus(),
            {0: "2-3", 1: "4-7"}, {0: "2-3", 1: "4-7"}, id="lse-is-lent-to-none",
        ),
        pytest.param(
            KubeletCpus(), [pod("a", QoSClass.LS, "0-1"), pod("b", QoSClass.LSE, "2-3")], NodeCpus(),
            {1: "4-7"}, {0: "0-1", 1: "4-7"}, id="a-node-without-cpus-has-no-pool",
        ),
        pytest.param(
            KubeletCpus(policy="static", reserved=frozenset({0}), exclusive={"x": frozenset({4, 5})}), [], NodeCpus(),
            {0: "0-3", 1: "6-7"}, {0: "0-3", 1: "6-7"}, id="kubelet-reserved-cpus-are-shared",
        ),
        pytest.param(
            KubeletCpus(policy="none", exclusive={"x": frozenset({4, 5})}), [], NodeCpus(),
            {0: "0-3", 1: "4-7"}, {0: "0-3", 1: "4-7"}, id="state-left-from-an-earlier-policy",
        ),
        pytest.param(
            KubeletCpus(policy="static", exclusive={"x": frozenset({4, 5})}), [pod("x", QoSClass.LS, "")], NodeCpus(),
            {0: "0-3", 1: "4-7"}, {0: "0-3", 1: "4-7"}, id="ls-pods-of-the-kubelet-run-in-the-pool",
        ),
        pytest.param(
            KubeletCpus(), [], NodeCpus(reserved=frozenset({0}), system=frozenset({1})),
            {0: "2-3", 1: "4-7"}, {0: "2-3", 1: "4-7"}, id="reserved-and-system",
        ),
        pytest.param(
            KubeletCpus(), [], NodeCpus(system=frozenset({1}), system_exclusive=False),
            {0: "0-3", 1: "4-7"}, {0: "0-3", 1: "4-7"}, id="shared-system-cpus",
        ),
    ],
)  # fmt: skip
def test_pools(
    kubelet: KubeletCpus, pods: list[PodFacts], node: NodeCpus, ls: dict[int, str], be: dict[int, str]
) -> None:
    pools = share_pools(EIGHT, kubelet, pods, node)
    assert {pool.node: pool.cpuset for pool in pools.ls} == ls
    assert {pool.node: pool.cpuset for pool in pools.be} == be


def test_pools_stand_in_the_order_of_socket_and_node() -> None:
    pools = share_pools(tuple(reversed(machine(sockets=2, nodes=2, cores=1, threads=1))))
    assert pools.ls == tuple(CpuSharedPool(socket=cpu // 2, node=cpu, cpuset=str(cpu)) for cpu in range(4))
    assert pools.ls_cpus == pools.be_cpus == frozenset(range(4))
    assert pools.ls_cpus_of([1, 3]) == pools.be_cpus_of([3, 1]) == {1, 3}


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(pod("be", QoSClass.BE, "0-7"), id="best-effort"),
        pytest.param(pod("system", QoSClass.SYSTEM, "0-7"), id="system"),
        pytest.param(pod("greedy", QoSClass.LSE, "0-7", cores=2), id="more-than-requested"),
        pytest.param(pod("bomb", QoSClass.LSE, "0-4294967295"), id="four-billion-cpus"),
        pytest.param(pod("words", QoSClass.LSE, "all of them"), id="no-list"),
        pytest.param(pod("gone", QoSClass.LSE, "0-7", active=False), id="ended"),
        pytest.param(
            PodFacts("a/b", QoSClass.LSE, annotations={ANNOTATION_RESOURCE_STATUS: "{"}, requests={"cpu": 8000}),
            id="torn",
        ),
        pytest.param(
            PodFacts("a/b", QoSClass.LSE, annotations={ANNOTATION_RESOURCE_STATUS: '{"x":' + "[" * 100_000}), id="deep"
        ),
        pytest.param(
            PodFacts("a/b", QoSClass.LSE, annotations={ANNOTATION_RESOURCE_STATUS: '{"cpuset": 3}'}), id="number"
        ),
    ],
)
def test_a_claim_that_does_not_count(claim: PodFacts) -> None:
    assert given_cpus(claim) == frozenset()
    assert share_pools(EIGHT, pods=[claim]).ls_cpus == frozenset(range(8))


def test_the_kubelet_holds_what_nobody_else_gave() -> None:
    kubelet = KubeletCpus(
        policy="static", exclusive={"g": frozenset({1}), "lsr": frozenset({2}), "gone": frozenset({3})}
    )
    pods = [pod("g", QoSClass.NONE, ""), pod("lsr", QoSClass.LSR, "4")]
    assert kubelet_held(kubelet, pods) == {"g": {1}, "gone": {3}}
