"""Koordinator's rules for merging an answer, as a table, and environments in their order."""

from typing import Any

import pytest

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.merging import (
    AnswerMalformed,
    check_container_answer,
    check_pod_answer,
    env_map,
    merge_container,
    merge_envs,
    merge_pod,
    merge_update,
    resource_changes,
)

ASKED: dict[str, Any] = {
    "cpu_period": 100000, "cpu_quota": 200000, "cpu_shares": 1024, "memory_limit_in_bytes": 1 << 30,
    "oom_score_adj": 900, "cpuset_cpus": "0-3", "cpuset_mems": "0", "memory_swap_limit_in_bytes": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({}, {}, id="same"),
        pytest.param({"cpu_period": 0}, {}, id="period-0-stays"),
        pytest.param({"cpu_period": 50000}, {"cpu_period": 50000}, id="period"),
        pytest.param({"cpu_quota": 0}, {}, id="quota-0-stays"),
        pytest.param({"cpu_quota": -1}, {"cpu_quota": -1}, id="quota-unlimited"),
        pytest.param({"cpu_shares": 0}, {}, id="shares-0-stay"),
        pytest.param({"cpu_shares": 2}, {"cpu_shares": 2}, id="shares"),
        pytest.param({"memory_limit_in_bytes": -1}, {}, id="memory-unlimited-stays"),
        pytest.param({"memory_limit_in_bytes": 7}, {"memory_limit_in_bytes": 7}, id="memory"),
        pytest.param({"memory_swap_limit_in_bytes": 9}, {"memory_swap_limit_in_bytes": 9}, id="swap"),
        pytest.param({"oom_score_adj": -1000}, {"oom_score_adj": -1000}, id="oom-least"),
        pytest.param({"oom_score_adj": 0}, {"oom_score_adj": 0}, id="oom-0"),
        pytest.param({"oom_score_adj": 1001}, {}, id="oom-out-of-range-stays"),
        pytest.param({"cpuset_cpus": ""}, {"cpuset_cpus": ""}, id="cpuset-cleared"),
        pytest.param({"cpuset_mems": "1"}, {"cpuset_mems": "1"}, id="mems"),
    ],
)
def test_fields_of_resources(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    asked, answer = pb.LinuxContainerResources(**ASKED), pb.LinuxContainerResources(**{**ASKED, **changed})
    assert resource_changes(asked, answer) == expected


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        pytest.param({}, {}, id="empty"),
        pytest.param({"cpuset_cpus": "1"}, {"cpuset_cpus": "1"}, id="cpuset"),
        pytest.param({"cpu_quota": -1, "cpu_shares": 2}, {"cpu_quota": -1, "cpu_shares": 2}, id="cpu"),
        pytest.param({"oom_score_adj": 5}, {}, id="no-oom-score"),
        pytest.param({"unified": {"a": "1"}}, {"unified": {"a": "1"}}, id="unified"),
    ],
)
def test_an_update_changes_what_it_has(update: dict[str, Any], expected: dict[str, Any]) -> None:
    stored = pb.LinuxContainerResources(**ASKED)
    merge_update(stored, pb.LinuxContainerResources(**update))
    assert stored == pb.LinuxContainerResources(**{**ASKED, **expected})


def test_no_resources_in_the_answer_change_nothing() -> None:
    asked = pb.ContainerResourceHookRequest(container_resources=ASKED)
    request = cri.CreateContainerRequest(config={"linux": {"resources": ASKED}})
    before = request.SerializeToString(deterministic=True)
    assert not merge_container(asked, pb.ContainerResourceHookResponse(), request)
    assert request.SerializeToString(deterministic=True) == before


def test_resources_where_the_request_had_none() -> None:
    asked, request = pb.PodSandboxHookRequest(), cri.PodSandboxConfig()
    answer = pb.PodSandboxHookResponse(resources={"cpu_shares": 2})
    assert merge_pod(asked, answer, request)
    assert request.linux.resources == cri.LinuxContainerResources(cpu_shares=2)
    assert asked.resources.cpu_shares == 2
    assert not merge_pod(asked, answer, request)


def test_a_start_keeps_the_answer_for_later_hooks() -> None:
    asked = pb.ContainerResourceHookRequest(container_resources=ASKED)
    answer = pb.ContainerResourceHookResponse(container_resources={**ASKED, "cpu_quota": -1})
    assert not merge_container(asked, answer, None)
    assert asked.container_resources.cpu_quota == -1


def test_environments_keep_order_and_bytes() -> None:
    pairs = [("Z", b"\xff"), ("A", b"1"), ("Z", b"\xfe"), ("GONE", b""), ("N", b"1")]
    config = cri.ContainerConfig(envs=[cri.KeyValue(key=key, value=value) for key, value in pairs])
    asked = env_map(config)
    assert asked["Z"] == "�"
    merge_envs(asked, {"Z": "�", "A": "2", "N": "1", "new2": "b", "new1": "ä"}, config)
    assert [(env.key, env.value) for env in config.envs] == [
        ("Z", b"\xff"), ("A", b"2"), ("Z", b"\xfe"), ("N", b"1"), ("new1", "ä".encode()), ("new2", b"b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        pytest.param({"container_resources": {"cpuset_cpus": "0-3;rm"}}, "cpuset_cpus", id="cpuset"),
        pytest.param({"container_resources": {"cpuset_mems": "-1"}}, "cpuset_mems", id="mems"),
        pytest.param({"container_resources": {"cpu_quota": -2}}, "cpu_quota", id="quota"),
        pytest.param({"container_resources": {"unified": {"../x": "1"}}}, "unified", id="unified"),
        pytest.param({"pod_cgroup_parent": "/a/../../b"}, "pod_cgroup_parent", id="parent"),
        pytest.param({"container_envs": {"": "x"}}, "container_envs", id="env-without-name"),
        pytest.param({"container_envs": {"A=B": "x"}}, "container_envs", id="env-with-equals"),
        pytest.param({"container_envs": {"A": "x\0y"}}, "container_envs", id="env-with-nul"),
    ],
)
def test_nonsense_is_refused(answer: dict[str, Any], word: str) -> None:
    with pytest.raises(AnswerMalformed, match=word):
        check_container_answer(pb.ContainerResourceHookResponse(**answer))


def test_usual_answers_pass() -> None:
    check_container_answer(
        pb.ContainerResourceHookResponse(
            container_resources={**ASKED, "cpu_quota": -1, "cpuset_cpus": "0,2-3"},
            pod_cgroup_parent="kubepods-besteffort-podu1.slice",
            container_envs={"A": "b=c"},
        )
    )
    check_pod_answer(pb.PodSandboxHookResponse())
