"""Roll-up: many small culprits are named by the cgroup above them, few or unrelated ones are not."""

import numpy as np
import pytest

from api.verdicts import OTHER
from api.window import Window
from detector.judging.engine import RuleEngine
from detector.roll_up import Tree, roll_up
from detector.view import View
from tests.frames import make_frame


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


def culprits(paths: list[str], victim: str = "/web") -> dict[str, float]:
    """Of a verdict about the victim, whose wait was behind these in equal parts."""
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
