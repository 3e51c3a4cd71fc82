"""The quota of a pod, and separate trees."""

import pytest

from scheduler.quota.forest import Member, QuotaForest
from scheduler.quota.tree import DEFAULT, PodUse, QuotaSpec

CPU = {"cpu": 1000}
FULL = {"cpu": 100_000}


def member(namespace: str = "x", label: str = "", *, assigned: bool = False) -> Member:
    return Member(namespace, label, PodUse(CPU, assigned))


def forest(*specs: QuotaSpec, **options: bool) -> QuotaForest:
    made = QuotaForest(**options)
    made.set_cluster(FULL)
    made.apply(QuotaSpec(DEFAULT, {}, FULL))
    for spec in specs:
        made.apply(spec)
    return made


@pytest.mark.parametrize(
    ("namespace", "label", "expected"),
    [
        pytest.param("x", "team", "team", id="label"),
        pytest.param("x", "gone", DEFAULT, id="unknown label"),
        pytest.param("own", "gone", "own", id="unknown label, own namespace"),
        pytest.param("own", "", "own", id="named like its namespace"),
        pytest.param("listed", "", "team", id="listed namespace"),
        pytest.param("stray", "", DEFAULT, id="same name, other namespace"),
        pytest.param("x", "", DEFAULT, id="default"),
    ],
)
def test_resolution(namespace: str, label: str, expected: str) -> None:
    made = forest(
        QuotaSpec("team", {}, FULL, namespaces=("listed",)),
        QuotaSpec("own", {}, FULL, namespace="own"),
        QuotaSpec("stray", {}, FULL, namespace="elsewhere"),
    )
    assert made.resolve(namespace, label) == expected


def test_pods_move_when_their_quota_appears_and_goes() -> None:
    made = forest()
    made.put("p", member(label="team", assigned=True))
    found = made.of("p")
    assert found is not None
    assert found[1] == DEFAULT
    made.apply(QuotaSpec("team", {}, FULL))
    moved = made.of("p")
    assert moved is not None
    assert moved[1] == "team"
    assert moved[0].quota(DEFAULT).used.get("cpu", 0) == 0
    assert moved[0].quota("team").used == CPU
    made.remove("team")
    back = made.of("p")
    assert back is not None
    assert back[1] == DEFAULT


def test_without_a_default_quota_others_are_not_counted() -> None:
    made = forest(default_quota=False)
    made.put("p", member())
    assert made.of("p") is None
    made.assign("p", True)
    made.drop("p")


def test_trees_have_totals_of_their_own() -> None:
    made = forest(
        QuotaSpec("root-t", {}, FULL, tree="t", total={"cpu": 30_000}, apart=True, is_parent=True),
        QuotaSpec("leaf-t", {}, FULL, parent="root-t", tree="t"),
        QuotaSpec("plain", {}, FULL),
        multiple_trees=True,
    )
    for name in ("leaf-t", "plain"):
        made.put(name, Member("x", name, PodUse({"cpu": 90_000})))
    runtimes = {}
    for name in ("leaf-t", "plain"):
        found = made.of(name)
        assert found is not None
        runtimes[name] = found[0].quota(name).runtime["cpu"]
    assert runtimes == {"leaf-t": 30_000, "plain": 70_000}


def test_a_pod_may_change_trees() -> None:
    made = forest(QuotaSpec("a", {}, FULL, tree="1"), QuotaSpec("b", {}, FULL, tree="2"), multiple_trees=True)
    made.put("p", member(label="a", assigned=True))
    made.put("p", member(label="b", assigned=True))
    assert made.trees["1"].quota("a").used.get("cpu", 0) == 0
    assert made.trees["2"].quota("b").used == CPU
