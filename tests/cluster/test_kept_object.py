"""An object that a program keeps: against the twin, with writers in between and a server that fails."""

from collections.abc import Iterator
from typing import Any

import pytest

from cluster import CONFIG_MAPS, Client, ClientSettings, ClusterError, Document, KeptObject, Key
from cluster.twin import Fault, FaultType, Twin

KEY = Key("default", "kept")


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[Client]:
    with twin.client(ClientSettings(attempts=1)) as opened:
        yield opened


def with_data(value: str) -> Any:
    def change(stored: Document | None) -> Document | None:
        if stored is None:
            return {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "data": {"mine": value}}
        data = stored.get("data", {})
        return None if data.get("mine") == value else {**stored, "data": {**data, "mine": value}}

    return change


def test_created_then_left_alone_then_changed(client: Client) -> None:
    kept = KeptObject(client, CONFIG_MAPS, KEY)
    assert [kept.sync(with_data(value), now) for now, value in enumerate("aab")] == [True, False, True]
    assert client.get(CONFIG_MAPS, KEY)["data"] == {"mine": "b"}
    assert kept.writes == 2


def test_a_writer_in_between_keeps_its_part(client: Client) -> None:
    kept = KeptObject(client, CONFIG_MAPS, KEY)
    kept.sync(with_data("a"), 0.0)
    client.modify(CONFIG_MAPS, KEY, lambda document: {**document, "data": {**document["data"], "theirs": "x"}})
    assert kept.sync(with_data("b"), 1.0)
    assert client.get(CONFIG_MAPS, KEY)["data"] == {"mine": "b", "theirs": "x"}


def test_a_deleted_object_comes_back_after_the_next_check(client: Client) -> None:
    kept = KeptObject(client, CONFIG_MAPS, KEY, check_seconds=60.0)
    kept.sync(with_data("a"), 0.0)
    client.delete(CONFIG_MAPS, KEY)
    assert not kept.sync(with_data("a"), 59.0)
    assert kept.sync(with_data("a"), 60.0)


def test_a_deleted_object_comes_back_with_the_next_change(client: Client) -> None:
    kept = KeptObject(client, CONFIG_MAPS, KEY)
    kept.sync(with_data("a"), 0.0)
    client.delete(CONFIG_MAPS, KEY)
    assert kept.sync(with_data("b"), 1.0)
    assert client.get(CONFIG_MAPS, KEY)["data"] == {"mine": "b"}


def test_an_error_is_raised_and_the_next_sync_reads_again(twin: Twin, client: Client) -> None:
    kept = KeptObject(client, CONFIG_MAPS, KEY)
    kept.sync(with_data("a"), 0.0)
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"update"}), times=1))
    with pytest.raises(ClusterError):
        kept.sync(with_data("b"), 1.0)
    assert kept.sync(with_data("b"), 2.0)
    assert client.get(CONFIG_MAPS, KEY)["data"] == {"mine": "b"}


def test_an_object_of_another_program_is_found_not_replaced(client: Client) -> None:
    client.create(CONFIG_MAPS, {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "data": {"theirs": "x"}})
    assert KeptObject(client, CONFIG_MAPS, KEY).sync(with_data("a"), 0.0)
    assert client.get(CONFIG_MAPS, KEY)["data"] == {"mine": "a", "theirs": "x"}
