"""Roll-up: many small culprits are named by the cgroup above them, few or unrelated ones are not."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from api.frame import CgroupInfo
from api.verdicts import OTHER, group_ref
from api.window import Window
from detector.judging.engine import RuleEngine
from detector.roll_up import Tree, roll_up
from detector.view import View
from tests.frames import make_frame

NO_PODS: Mapping[str, tuple[str, str]] = {}


def told(victim: str, shares: dict[str, float]) -> tuple[dict[str, float], float]:
    """What is named above these culprits, and the sum of what is left of them."""
    values = np.array(list(shares.values()))
    named, left = roll_up(victim, Tree(list(shares)), np.arange(len(shares)), values)
    assert sum(share for _, share in named) + left.sum() == pytest.approx(values.sum())
    return dict(named), float(left.sum())


def many(parent: str, count: int, share: float) -> dict[str, float]:
    return {f"{parent}/job-{number}": share / count for number in range(count)}


def test_many_jobs_are_their_parent() -> None:
    assert told("/web", many("/batch/jobs", 400, 0.9)) == ({"/batch/jobs": pytest.approx(0.9)}, pytest.approx(0.0))


def test_a_node_full_of_pods_costs_a_number_for_each_level_not_for_each_pod() -> None:
    tree = Tree([f"/pods/class/{number}/main" for number in range(1000)])
    assert len(tree.paths) == 1002
    assert tree.above.shape == (1000, 3)


def test_a_few_keep_their_names() -> None:
    assert told("/web", many("/batch/jobs", 5, 0.2)) == ({}, pytest.approx(0.2))


def test_the_lowest_that_holds_most_is_named_then_the_next() -> None:
    named, left = told("/web", many("/ci/a", 40, 0.5) | many("/ci/b", 40, 0.3))
    assert named == {"/ci/a": pytest.approx(0.5), "/ci/b": pytest.approx(0.3)}
    assert left == pytest.approx(0.0)
    spread = {path: share for each in range(20) for path, share in many(f"/ci/{each}", 5, 0.04).items()}
    assert told("/web", spread)[0] == {"/ci": pytest.approx(0.8)}


def test_no_cgroup_that_the_victim_is_in_is_named() -> None:
    assert told("/pods/web", many("/pods", 100, 0.9)) == ({}, pytest.approx(0.9))
    assert told("/pods/web/main", many("/pods/web", 100, 0.9)) == ({}, pytest.approx(0.9))
    assert told("/podsweb", many("/pods", 100, 0.9))[0] == {"/pods": pytest.approx(0.9)}


def test_top_level_cgroups_and_the_kernel_have_nothing_above() -> None:
    assert told("/web", {f"/top{number}": 0.01 for number in range(50)} | {"[kernel]": 0.01})[0] == {}


def culprits(paths: list[str], victim: str = "/web", pods: Mapping[str, tuple[str, str]] = NO_PODS) -> dict[str, float]:
    """Of a verdict about the victim, whose wait was behind these in equal parts; `pods` have workload and namespace."""
    known = {1: victim} | dict(enumerate(paths, start=2))
    frames = [
        make_frame(
            tick,
            known,
            {"cpu.wait_neighbour_ns": [tick * 9e8] + [0] * len(paths), "cpu.oncpu_ns": [0] * len(known)},
            {(1, number): int(tick * 9e8 / len(paths)) for number in list(known)[1:]},
        )
        for tick in (0, 1)
    ]
    frames = [replace(frame, cgroups=tuple(_in_pod(info, pods) for info in frame.cgroups)) for frame in frames]
    engine = RuleEngine()
    (verdict,) = engine.step(View(Window(frames), engine.columns), frames[-1].monotonic_ns)
    return {culprit.path: culprit.share for culprit in verdict.culprits}


@pytest.mark.parametrize("count", [110, 400])
def test_a_verdict_on_hundreds_of_jobs_names_their_parent(count: int) -> None:
    assert culprits([f"/ci/jobs/j{number}" for number in range(count)]) == {"/ci/jobs": pytest.approx(1.0)}


def test_what_has_no_cgroup_in_common_is_others() -> None:
    assert culprits([f"/j{number}" for number in range(400)]) == {OTHER: pytest.approx(1.0)}


def test_few_culprits_stand_as_they_are() -> None:
    assert culprits(["/a/x", "/a/y", "/b"]) == {path: pytest.approx(1 / 3) for path in ("/a/x", "/a/y", "/b")}


def _in_pod(info: CgroupInfo, pods: Mapping[str, tuple[str, str]]) -> CgroupInfo:
    if info.path not in pods:
        return info
    workload, namespace = pods[info.path]
    return replace(info, pod=info.path.rpartition("/")[2], workload=workload, namespace=namespace)


NEIGHBOURS = [f"/pods/{number}" for number in range(400)]
"""Pods next to the victim `/pods/web`."""


def test_pods_next_to_the_victim_are_their_workload() -> None:
    pods = dict.fromkeys(NEIGHBOURS, ("Job/ci/build", "ci"))
    found = culprits(NEIGHBOURS, "/pods/web", {**pods, "/pods/web": ("Deployment/shop/web", "shop")})
    assert found == {"[workload Job/ci/build]": pytest.approx(1.0)}


def test_pods_of_many_workloads_are_their_namespace() -> None:
    pods = {path: (f"Job/ci/build-{number}", "ci") for number, path in enumerate(NEIGHBOURS)}
    found = culprits(NEIGHBOURS, "/pods/web", {**pods, "/pods/web": ("Deployment/shop/web", "shop")})
    assert found == {"[namespace ci]": pytest.approx(1.0)}


@pytest.mark.parametrize("bare", [0, 20, 39], ids=["first", "between", "last"])
def test_a_pod_without_workload_leaves_the_others_theirs(bare: int) -> None:
    pods = dict.fromkeys(NEIGHBOURS[:40], ("Job/ci/build", "ci")) | {NEIGHBOURS[bare]: ("", "ci")}
    found = culprits(NEIGHBOURS[:40], "/pods/web", {**pods, "/pods/web": ("Deployment/shop/web", "shop")})
    assert found["[workload Job/ci/build]"] == pytest.approx(39 / 40)
    assert "[namespace ci]" not in found


def test_a_cgroup_is_named_before_a_workload_for_it_can_be_acted_on() -> None:
    paths = [f"/batch/{number}" for number in range(400)]
    found = culprits(paths, "/pods/web", dict.fromkeys(paths, ("Job/ci/build", "ci")))
    assert found == {"/batch": pytest.approx(1.0)}


def test_the_victims_own_namespace_is_no_neighbour() -> None:
    pods = {path: (f"Job/shop/build-{number}", "shop") for number, path in enumerate(NEIGHBOURS)}
    found = culprits(NEIGHBOURS, "/pods/web", {**pods, "/pods/web": ("Deployment/shop/web", "shop")})
    assert found == {OTHER: pytest.approx(1.0)}


@pytest.mark.parametrize(
    ("culprit", "workload", "namespace"),
    [
        pytest.param("[workload Job/ci/build]", "Job/ci/build", "ci", id="workload"),
        pytest.param("[namespace ci]", "", "ci", id="namespace"),
        pytest.param("[own quota]", "", "", id="another bracketed name"),
        pytest.param("/namespace ci", "", "", id="a path"),
    ],
)
def test_a_group_carries_its_names(culprit: str, workload: str, namespace: str) -> None:
    found = group_ref(culprit)
    assert (found.workload, found.namespace) == (workload, namespace)
