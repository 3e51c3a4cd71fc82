"""The store against a model: deltas always add up to its content."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import ChangeType, DeltaType, Identity, Item, Key, WatchEvent
from cluster.store import Store, newer_version

Value = tuple[str, str]


def item(name: str, uid: str, version: int, value: Any = "state") -> Item[Any]:
    identity = Identity(name, "ns", uid, str(version))
    return Item(identity, None if value is None else (uid, str(version)))


def change(kind: str, name: str, uid: str, version: int) -> WatchEvent:
    return WatchEvent(ChangeType(kind), item(name, uid, version))


def summary(deltas: list[Any]) -> list[tuple[str, str, Value | None, Value | None]]:
    return [(delta.type.value, delta.key.name, delta.old, delta.new) for delta in deltas]


def test_a_change_is_told_once() -> None:
    store: Store[Value] = Store()
    first = change("ADDED", "a", "u", 1)
    assert summary(store.apply([first])) == [("added", "a", None, ("u", "1"))]
    assert store.apply([first]) == []
    assert summary(store.apply([change("MODIFIED", "a", "u", 2)])) == [("updated", "a", ("u", "1"), ("u", "2"))]
    assert store.apply([change("MODIFIED", "a", "u", 1)]) == []
    assert summary(store.apply([change("DELETED", "a", "u", 3)])) == [("deleted", "a", ("u", "3"), None)]
    assert store.apply([change("DELETED", "a", "u", 3)]) == []
    assert len(store) == 0


def test_a_list_tells_the_difference_deletions_first() -> None:
    store: Store[Value] = Store()
    store.replace([item("gone", "u1", 1), item("same", "u2", 2), item("changed", "u3", 3), item("again", "u4", 4)])
    deltas = store.replace(
        [item("same", "u2", 2), item("changed", "u3", 9), item("again", "u5", 8), item("new", "u6", 7)]
    )
    assert summary(deltas) == [
        ("deleted", "gone", ("u1", "1"), None),
        ("updated", "changed", ("u3", "3"), ("u3", "9")),
        ("deleted", "again", ("u4", "4"), None),
        ("added", "again", None, ("u5", "8")),
        ("added", "new", None, ("u6", "7")),
    ]


def test_a_deletion_of_the_predecessor_leaves_the_successor() -> None:
    store: Store[Value] = Store()
    store.apply([change("ADDED", "a", "old", 1)])
    store.replace([item("a", "new", 5)])
    assert store.apply([change("DELETED", "a", "old", 4)]) == []
    assert store.entry(Key("ns", "a")) is not None


def test_an_unreadable_state_leaves_the_last_readable_one() -> None:
    store: Store[Value] = Store()
    store.replace([item("a", "u", 1)])
    assert store.replace([item("a", "u", 2, None), item("b", "v", 3, None)]) == []
    assert store.undecodable == 2
    entry = store.entry(Key("ns", "a"))
    assert entry is not None
    assert entry.value == ("u", "1")


@pytest.mark.parametrize(
    ("left", "right", "newer"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("x", "1", False), ("", "1", False), ("2", "", False)],
)
def test_versions_compare_as_numbers(left: str, right: str, newer: bool) -> None:
    assert newer_version(left, right) is newer


NAMES = st.sampled_from("abc")
ITEMS = st.builds(item, NAMES, st.sampled_from(["u", "v"]), st.integers(1, 6))
CHANGES = st.builds(lambda kind, it: WatchEvent(kind, it), st.sampled_from(list(ChangeType)), ITEMS)
INPUTS = st.lists(
    st.one_of(
        st.tuples(st.just("list"), st.lists(ITEMS, unique_by=lambda it: it.identity.key, max_size=3)),
        st.tuples(st.just("watch"), st.lists(CHANGES, max_size=4)),
    ),
    max_size=8,
)


@given(INPUTS)
def test_what_is_told_adds_up_to_what_is_held(inputs: list[tuple[str, list[Any]]]) -> None:
    store: Store[Value] = Store()
    model: dict[Key, Value] = {}
    for kind, things in inputs:
        for delta in store.replace(things) if kind == "list" else store.apply(things):
            if delta.type is DeltaType.ADDED:
                assert delta.key not in model
            else:
                assert delta.type is DeltaType.DELETED or delta.old == model[delta.key] != delta.new
                assert delta.key in model
            if delta.new is None:
                del model[delta.key]
            else:
                model[delta.key] = delta.new
        assert {key: entry.value for key, entry in store.entries().items()} == model
        if kind == "list":
            assert model == {it.identity.key: it.value for it in things}
