"""Published tree vectors, and the sums that hold after any history of events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.quota.tree import DEFAULT, SYSTEM, PodUse, QuotaSpec, QuotaTree

CORE = 1000
GIB = 1 << 30


def cpu(cores: int) -> dict[str, int]:
    return {"cpu": cores * CORE}


def spec(name: str, minimum: int, maximum: int = 96, **options: object) -> QuotaSpec:
    return QuotaSpec(name, cpu(minimum), cpu(maximum), **options)  # type: ignore[arg-type]


def tree_of(total: int, *specs: QuotaSpec, **options: bool) -> QuotaTree:
    tree = QuotaTree(cpu(total), **options)
    for each in specs:
        tree.apply(each)
    return tree


def runtimes(tree: QuotaTree, *names: str) -> list[int]:
    """In cores."""
    return [tree.quota(name).runtime["cpu"] // CORE for name in names]


def family(root: bool, c1: bool, c2: bool) -> QuotaTree:
    return tree_of(
        100,
        spec("R", 60, lends=root, is_parent=True),
        spec("c1", 20, lends=c1, parent="R"),
        spec("c2", 20, lends=c2, parent="R"),
    )


def test_an_unlent_minimum_is_kept_from_a_hungry_sibling() -> None:
    tree = tree_of(100, spec("t1", 60), spec("t2", 40, lends=False))
    tree.put_pod("p", "t1", PodUse(cpu(120)))
    assert runtimes(tree, "t1", "t2") == [60, 40]


@pytest.mark.parametrize(
    ("lends", "asked", "expected"),
    [
        pytest.param((False, False, False), 0, [60, 20, 20], id="none lends, none"),
        pytest.param((False, False, False), 40, [60, 40, 20], id="none lends, 40"),
        pytest.param((False, False, False), 60, [80, 60, 20], id="none lends, 60"),
        pytest.param((True, False, True), 0, [20, 20, 0], id="c1 keeps, none"),
        pytest.param((True, False, True), 40, [40, 40, 0], id="c1 keeps, 40"),
        pytest.param((True, False, True), 60, [60, 60, 0], id="c1 keeps, 60"),
        pytest.param((True, False, False), 0, [40, 20, 20], id="both keep, none"),
        pytest.param((True, False, False), 40, [60, 40, 20], id="both keep, 40"),
        pytest.param((True, False, False), 60, [80, 60, 20], id="both keep, 60"),
    ],
)
def test_lending_in_a_family(lends: tuple[bool, bool, bool], asked: int, expected: list[int]) -> None:
    tree = family(*lends)
    if asked:
        tree.put_pod("p", "c1", PodUse(cpu(asked)))
    assert runtimes(tree, "R", "c1", "c2") == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param((10, 30), (10, 30), id="below the minimum"),
        pytest.param((25, 45), (25, 45), id="between minimum and maximum"),
        pytest.param((55, 75), (30, 60), id="capped by the leaf's maximum"),
    ],
)
def test_a_chain_passes_up_limited_requests(asked: tuple[int, int], expected: tuple[int, int]) -> None:
    def amounts(cores: int, gib: int) -> dict[str, int]:
        return {"cpu": cores * CORE, "memory": gib * GIB}

    tree = QuotaTree(amounts(96, 160))
    tree.apply(QuotaSpec("A", amounts(80, 80), amounts(96, 160), is_parent=True))
    tree.apply(QuotaSpec("B", amounts(50, 80), amounts(60, 80), parent="A", is_parent=True))
    tree.apply(QuotaSpec("C", amounts(20, 40), amounts(30, 60), parent="B"))
    tree.put_pod("p", "C", PodUse(amounts(*asked)))
    for name in "ABC":
        assert tree.quota(name).runtime == amounts(*expected)
    for name in "AB":
        assert tree.quota(name).request == amounts(*expected)
    assert tree.quota("C").request == amounts(*asked)


def test_minimums_shrink_and_come_back_with_the_cluster() -> None:
    tree = tree_of(200, spec("p", 300, 600, is_parent=True), *(spec(n, 100, 600, parent="p") for n in "abc"))
    for name in "abc":
        tree.put_pod(f"pod-{name}", name, PodUse(cpu(200)))
    assert tree.quota("p").scaled_minimum == cpu(200)
    assert [tree.quota(name).scaled_minimum["cpu"] for name in "abc"] == [66666] * 3
    assert [tree.quota(name).runtime["cpu"] for name in "abc"] == [66667, 66667, 66666]
    tree.set_total(cpu(600))
    assert tree.quota("p").scaled_minimum == cpu(300)
    assert [tree.quota(name).scaled_minimum["cpu"] for name in "abc"] == [100_000] * 3
    assert runtimes(tree, *"abc") == [200, 200, 200]


def test_unshared_quotas_keep_their_maximum_and_shrink_the_total() -> None:
    tree = tree_of(100, spec(DEFAULT, 0, 500), spec(SYSTEM, 0, 500), spec("a", 0, 200))
    tree.put_pod("want", "a", PodUse(cpu(200)))
    assert runtimes(tree, "a", DEFAULT) == [100, 500]
    tree.put_pod("d", DEFAULT, PodUse(cpu(10), assigned=True))
    tree.put_pod("s", SYSTEM, PodUse(cpu(5), assigned=True))
    assert runtimes(tree, "a", SYSTEM) == [85, 500]
    tree.drop_pod("d")
    assert runtimes(tree, "a") == [95]


def test_usage_can_be_guaranteed() -> None:
    tree = tree_of(100, spec("a", 20, 100), spec("b", 60, 100), guarantee_usage=True)
    tree.put_pod("a-pod", "a", PodUse(cpu(45), assigned=True))
    tree.put_pod("b-pod", "b", PodUse(cpu(100)))
    assert runtimes(tree, "a", "b") == [45, 60]
    tree.drop_pod("a-pod")
    assert runtimes(tree, "a", "b") == [20, 80]


def test_every_sibling_sees_a_change_of_one() -> None:
    tree = tree_of(100, spec("a", 50, 100), spec("b", 50, 100))
    tree.put_pod("b", "b", PodUse(cpu(100)))
    assert runtimes(tree, "a", "b") == [0, 100]
    tree.put_pod("a", "a", PodUse(cpu(30)))
    assert runtimes(tree, "b") == [70]


def test_events_may_repeat_and_arrive_in_any_order() -> None:
    tree = tree_of(100)
    tree.put_pod("p", "child", PodUse(cpu(7), assigned=True))
    tree.put_pod("p", "child", PodUse(cpu(7), assigned=True))
    tree.apply(spec("child", 10, parent="late"))
    assert tree.quota("child").used == cpu(7)
    tree.apply(spec("late", 20, is_parent=True))
    tree.apply(spec("late", 20, is_parent=True))
    assert tree.quota("late").used == cpu(7)
    tree.drop_pod("p")
    tree.drop_pod("p")
    assert tree.quota("late").used == cpu(0)
    tree.remove("late")
    assert tree.quota("child").parent is tree.quota("koordinator-root-quota")


def test_a_cycle_of_parents_hangs_below_the_root() -> None:
    tree = tree_of(100, spec("x", 1, parent="y"), spec("y", 1, parent="x"))
    tree.put_pod("p", "x", PodUse(cpu(3)))
    assert tree.quota("x").runtime == cpu(3)


NAMES = ["a", "b", "a1", "a2", "b1"]
PARENTS = {"a1": "a", "a2": "a", "b1": "b"}
quantities = st.integers(0, 120)
events = st.one_of(
    st.tuples(st.just("quota"), st.sampled_from(NAMES), quantities, quantities, st.booleans()),
    st.tuples(st.just("pod"), st.integers(0, 9), st.sampled_from(NAMES), quantities, st.booleans()),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("total"), quantities),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("read"), st.sampled_from(NAMES)),
)


def play(tree: QuotaTree, event: tuple[object, ...]) -> None:
    match event:
        case ("quota", str(name), int(low), int(high), bool(lends)):
            low, high = sorted((low, high))
            parent = PARENTS.get(name, "koordinator-root-quota")
            tree.apply(QuotaSpec(name, {"cpu": low}, {"cpu": high}, parent=parent, lends=lends))
        case ("pod", int(key), str(name), int(amount), bool(assigned)):
            tree.put_pod(str(key), name, PodUse({"cpu": amount}, assigned))
        case ("drop", int(key)):
            tree.drop_pod(str(key))
        case ("total", int(amount)):
            tree.set_total({"cpu": amount})
        case ("remove", str(name)):
            tree.remove(name)
        case ("read", str(name)) if name in tree:
            tree.quota(name)


@settings(max_examples=200, deadline=None)
@given(history=st.lists(events, max_size=30))
def test_runtimes_sum_to_no_more_than_the_total_after_any_history(history: list[tuple[object, ...]]) -> None:
    tree = QuotaTree({"cpu": 100})
    for event in history:
        play(tree, event)
    root = tree.quota("koordinator-root-quota")
    top = [tree.quota(name) for name in root.children]
    assert sum(q.runtime["cpu"] for q in top) <= tree._total.get("cpu", 0)
    for name in tree.names():
        quota = tree.quota(name)
        below = sum(tree.quota(child).runtime["cpu"] for child in quota.children)
        assert below <= quota.runtime["cpu"]
        assert quota.runtime["cpu"] <= quota.spec.maximum["cpu"]


@settings(max_examples=100, deadline=None)
@given(history=st.lists(events, max_size=30))
def test_deltas_agree_with_a_recount(history: list[tuple[object, ...]]) -> None:
    tree, fresh = QuotaTree({"cpu": 100}), QuotaTree({"cpu": 100})
    for event in history:
        play(tree, event)
        if event[0] != "read":
            play(fresh, event)
    for name in tree.names():
        live, recounted = tree.quota(name), fresh.quota(name)
        assert live.runtime == recounted.runtime
        assert live.limited_request("cpu") == recounted.limited_request("cpu")
        assert live.used.get("cpu", 0) == recounted.used.get("cpu", 0)
