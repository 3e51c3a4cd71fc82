"""Admission against runtime, maximum, minimum and ancestors; every denial names its figures."""

import pytest

from scheduler.quota.admission import admit
from scheduler.quota.tree import PodUse, QuotaSpec, QuotaTree


def tree(used_cpu: int = 0, used_gpu: int = 0, *, firm: bool = False) -> QuotaTree:
    made = QuotaTree({"cpu": 10_000, "gpu": 4})
    made.apply(QuotaSpec("parent", {"cpu": 4000}, {"cpu": 5000, "gpu": 4}, is_parent=True))
    made.apply(QuotaSpec("team", {"cpu": 4000}, {"cpu": 8000, "gpu": 2}, parent="parent"))
    made.put_pod("old", "team", PodUse({"cpu": used_cpu, "gpu": used_gpu}, assigned=True, preemptible=not firm))
    return made


def ask(made: QuotaTree, preemptible: bool = True, /, **options: bool) -> str | None:
    use = PodUse({"cpu": 2000, "memory": 1 << 40}, preemptible=preemptible)
    made.put_pod("new", "team", use)
    denial = admit(made, "team", use, **options)
    return denial.sentence() if denial else None


@pytest.mark.parametrize(
    ("used_cpu", "used_gpu", "options", "expected"),
    [
        pytest.param(0, 0, {}, None, id="fits; memory is no key of the quota"),
        pytest.param(3000, 0, {}, None, id="up to the runtime"),
        pytest.param(3001, 0, {}, "cpu used 3001m + requested 2000m > runtime 5000m", id="beyond runtime"),
        pytest.param(3001, 0, {"by_runtime": False}, None, id="below max"),
        pytest.param(6001, 0, {"by_runtime": False}, "6001m + requested 2000m > max 8000m", id="beyond max"),
        pytest.param(0, 3, {}, "gpu used 3 + requested 0 > runtime 2", id="over-used in a key not asked for"),
        pytest.param(
            3001,
            0,
            {"by_runtime": False, "check_parents": True},
            "quota parent has no room: cpu used 3001m + requested 2000m > max 5000m",
            id="an ancestor is full",
        ),
    ],
)
def test_admission(used_cpu: int, used_gpu: int, options: dict[str, bool], expected: str | None) -> None:
    sentence = ask(tree(used_cpu, used_gpu), **options)
    assert (expected is None) == (sentence is None)
    assert sentence is None or str(expected) in sentence


def test_firm_pods_fit_into_the_minimum() -> None:
    assert ask(tree(2000, firm=True), False) is None
    assert ask(tree(2001, firm=True), True) is None
    sentence = ask(tree(2001, firm=True), False)
    assert sentence == "quota team has no room: cpu non-preemptible used 2001m + requested 2000m > min 4000m"
