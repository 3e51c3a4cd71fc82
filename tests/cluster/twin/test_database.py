"""Revisions and history."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster import Key
from cluster.twin.database import Database
from cluster.twin.kinds import builtin_kinds

MAPS = ("", "v1", "configmaps")


def write(database: Database, name: str, value: int) -> None:
    table = database.tables[MAPS]
    if value < 0:
        if Key("d", name) in table.records:
            database.remove(table, Key("d", name))
    else:
        database.put(table, Key("d", name), {"metadata": {"name": name}, "value": value})


def values(records: dict[Key, Any]) -> dict[str, int]:
    return {key.name: record.document["value"] for key, record in records.items()}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 5)), max_size=25))
def test_every_past_state_can_be_read(writes: list[tuple[str, int]]) -> None:
    database = Database(builtin_kinds(), history_length=1000)
    table = database.tables[MAPS]
    states = {database.revision: values(table.records)}
    for name, value in writes:
        write(database, name, value)
        states[database.revision] = values(table.records)
    for revision, state in states.items():
        assert values(table.at(revision)) == state
        # Replaying what came after leads to the present.
        replayed = dict(state)
        for event in table.since(revision):
            replayed.pop(event.record.key.name, None)
            if event.type != "DELETED":
                replayed[event.record.key.name] = event.record.document["value"]
        assert replayed == values(table.records)


def test_history_is_bounded_and_says_so() -> None:
    database = Database(builtin_kinds(), history_length=3)
    for value in range(10):
        write(database, "a", value)
    table = database.tables[MAPS]
    assert len(table.history) == 3
    assert table.compacted == database.revision - 3
    database.compact()
    assert table.compacted == database.revision
    assert not table.history


def test_listeners_hear_every_write_in_order() -> None:
    database = Database(builtin_kinds(), history_length=10)
    heard: list[tuple[str, int]] = []
    database.listeners.append(lambda _, event: heard.append((event.type, event.revision)))
    for value in (1, 2, -1):
        write(database, "a", value)
    assert heard == [("ADDED", 2), ("MODIFIED", 3), ("DELETED", 4)]
