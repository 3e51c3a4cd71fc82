"""Ranks for scaling down: Koordinator's order, as deletion costs or as moves."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from api.kube.objects import Pod
from controllers.descheduler.plugin import Session
from controllers.descheduler.plugins.scale_down_bin_pack import ScaleDownBinPack, ScaleDownBinPackArgs, ranks
from tests.descheduling import a_cluster, a_node, a_plugin, a_pod, a_workload, moved, ran

NODES = [a_node("a"), a_node("b"), a_node("c")]
COST = "controller.kubernetes.io/pod-deletion-cost"
TARGET = [{"name": "web", "selector": {"matchLabels": {"app": "web"}}}]
WEB = {"labels": {"app": "web"}}
PODS = [
    # a: 4 of others beside 2 of the target; b: nothing beside 3; c: nothing beside 1 and 1.
    a_pod("other", "a", cpu=4, memory="1G", owner="db"),
    a_pod("a1", "a", cpu=2, **WEB),
    a_pod("b1", "b", cpu=3, **WEB),
    a_pod("c1", "c", cpu=1, age_seconds=100, **WEB),
    a_pod("c2", "c", cpu=1, age_seconds=50, **WEB),
]


def session(pods: Any = PODS, **args: Any) -> Session:
    cluster = a_cluster(NODES, pods, workloads=[a_workload(replicas=50), a_workload("db", replicas=50)])
    return ran(a_plugin(ScaleDownBinPack, podSelectors=TARGET, **args), cluster)


def costs(found: Session) -> dict[str, str]:
    return {each.pod.metadata.name: each.annotations[COST] for each in found.annotated}


def stating(found: Session, pods: list[Pod]) -> list[Pod]:
    """Return pods with what a session states of them."""
    stated = {each.pod.metadata.uid: dict(each.annotations) for each in found.annotated}
    return [
        replace(pod, metadata=replace(pod.metadata, annotations=pod.metadata.annotations | stated[pod.metadata.uid]))
        if pod.metadata.uid in stated
        else pod
        for pod in pods
    ]


def test_nodes_that_others_use_least_come_first_then_the_newest_pods() -> None:
    found = session()
    assert costs(found) == {"b1": "1000", "c2": "2000", "c1": "3000", "a1": "4000"}
    assert not found.wanted


def test_a_pod_that_may_not_be_moved_is_last_and_counts_as_staying() -> None:
    stays = a_pod("b2", "b", cpu=1, owner="", **WEB)
    assert costs(session([*PODS, stays])) == {
        "c2": "1000",
        "c1": "2000",
        "b1": "3000",
        "a1": "4000",
        "b2": str(2**31 - 1),
    }


def test_it_is_last_on_a_node_where_no_pod_may_be_moved() -> None:
    assert costs(session([a_pod("b2", "b", cpu=1, owner="", **WEB)])) == {"b2": str(2**31 - 1)}


def test_what_passes_is_no_reason_to_be_last() -> None:
    pods = [*PODS, a_pod("away", "a", ready=False)]
    assert costs(session(pods)) == costs(session())
    assert not session(pods, strategy="EvictDirectly", maxPodsToEvict=3).wanted


def test_what_is_stated_already_is_not_written_again() -> None:
    assert not costs(session(stating(session(), PODS)))
    assert not costs(session(dryRun=True))


def test_when_pods_come_and_go_the_others_keep_their_costs() -> None:
    pods = stating(session(), PODS)
    assert not costs(session([each for each in pods if each.metadata.name != "b1"]))
    assert costs(session([*pods, a_pod("new", "c", cpu=1, age_seconds=1, **WEB)])) == {"new": "1500"}
    assert not costs(session([*pods, a_pod("c3", "c", owner="api")]))


def test_pods_of_each_controller_are_ranked_by_themselves() -> None:
    found = costs(session([*PODS, a_pod("api1", "a", owner="api", **WEB)]))
    assert found["api1"] == found["b1"] == "1000"


def test_a_cost_that_the_owner_states_stays() -> None:
    own = {COST: "-5"}
    pods = [a_pod("a1", "a", annotations=own, **WEB), a_pod("b2", "b", owner="", annotations=own, **WEB)]
    assert not costs(session(pods))


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ([], []),
        ([None, None], [1000, 2000]),
        ([5000, 1000, 2000], [500, 1000, 2000]),
        ([1000, None, None, 2000, None], [1000, 1333, 1666, 2000, 3000]),
        ([1000, None, 1001], [1000, 2000, 3000]),
        ([1, None], [1, 1001]),
        ([None, 1], [1000, 2000]),
        ([2**31 - 2, None], [1000, 2000]),
    ],
    ids=str,
)
def test_as_many_ranks_as_possible_stay(present: list[int | None], expected: list[int]) -> None:
    assert ranks(present) == expected


def test_weights_turn_the_order() -> None:
    pods = [
        a_pod("x", "a", cpu=1, memory="1G", owner="db"),
        a_pod("a1", "a", cpu=1, memory="50G", **WEB),
        a_pod("y", "b", cpu=1, memory="40G", owner="db"),
        a_pod("b1", "b", cpu=4, memory="50G", **WEB),
    ]
    assert costs(session(pods)) == {"a1": "1000", "b1": "2000"}
    assert costs(session(pods, resourceWeights={"cpu": 100})) == {"b1": "1000", "a1": "2000"}


def test_so_many_are_moved_and_not_to_the_nodes_that_are_emptied() -> None:
    found = session(strategy="EvictDirectly", maxPodsToEvict=3)
    assert moved(found) == ["b1", "c2", "c1"]
    assert [each.avoid for each in found.wanted] == [("b",), ("b", "c"), ("b", "c")]
    assert not found.annotated


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        pytest.param({"strategy": "EvictDirectly"}, "maxPodsToEvict", id="how-many"),
        pytest.param({"resourceWeights": {"cpu": 0}}, "> 0", id="weight"),
        pytest.param({"strategy": "Some"}, "strategy", id="strategy"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: Any, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert(args, ScaleDownBinPackArgs)
