"""Lists, watches and informers, the same against every server."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster import (
    CONFIG_MAPS,
    PODS,
    Binding,
    BindOutcome,
    DeltaType,
    Document,
    Informer,
    Invalid,
    Query,
    StoreDelta,
    bind,
    merge_patch,
)
from cluster.transport import Request
from cluster.twin import UNLIMITED
from tests.cluster.conftest import Site, config_map, version
from tests.waiting import wait_for


def test_selectors_choose(site: Site) -> None:
    for name, labels in (("a", {"t": "x"}), ("b", {"t": "y"}), ("c", {})):
        site.client.create(PODS, site.pod(name, labels=labels))
    assert bind(site.client, Binding(site.key("c"), "", "some-node")) is BindOutcome.BOUND

    def names(labels: str = "", fields: str = "") -> str:
        listing = site.client.list(PODS, Query(site.namespace, labels, fields))
        return "".join(sorted(item.identity.name for item in listing.items))

    assert names() == "abc"
    assert names("t=x") == "a"
    assert names("t!=x") == "bc"
    assert names("t in (x, y)") == "ab"
    assert names("t notin (x)") == "bc"
    assert names("t") == "ab"
    assert names("!t") == "c"
    assert names("t,t!=y") == "a"
    assert names(fields="spec.nodeName=") == "ab"
    assert names(fields="spec.nodeName=some-node") == "c"
    assert names(fields="metadata.name!=a,status.phase=Pending") == "bc"
    with pytest.raises(Invalid):
        names(fields="spec.hostname=x")


def test_chunks_of_a_list_are_one_state(site: Site) -> None:
    for number in range(7):
        site.client.create(CONFIG_MAPS, config_map(site, f"m-{number}"))
    path = CONFIG_MAPS.path(site.namespace)
    seen: list[str] = []
    token = ""
    versions = set()
    while True:
        page = msgspec.json.decode(site.client.send(Request("GET", path, {"limit": "3", "continue": token})))
        seen += [item["metadata"]["name"] for item in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
        # Neither what is deleted nor what is added under way shows.
        site.client.delete(CONFIG_MAPS, site.key("m-6"))
        site.client.create(CONFIG_MAPS, config_map(site, f"m-3{len(seen)}"))
    # A real cluster may keep certificates in every namespace.
    assert [name for name in seen if name.startswith("m-")] == [f"m-{number}" for number in range(7)]
    assert len(versions) == 1


def test_long_lists_arrive_whole(site: Site) -> None:
    for number in range(25):
        site.client.create(CONFIG_MAPS, config_map(site, f"m-{number:02}"))
    small = site.connect(replace(UNLIMITED, page_size=7))
    names = [item.identity.name for item in small.list(CONFIG_MAPS, Query(site.namespace)).items]
    assert [name for name in names if name.startswith("m-")] == [f"m-{number:02}" for number in range(25)]


def test_a_watch_tells_what_came_after_a_version(site: Site) -> None:
    first = site.client.create(CONFIG_MAPS, config_map(site, "a", key="1"))
    second = site.client.update(CONFIG_MAPS, {**first, "data": {"key": "2"}})
    site.client.delete(CONFIG_MAPS, site.key("a"))
    heard: list[tuple[str, str]] = []
    with site.client.watch(CONFIG_MAPS, Query(site.namespace), resource_version=version(first)) as watch:
        for changes in watch.batches():
            heard += [(change.type.value, change.item.identity.resource_version) for change in changes]
            if len(heard) >= 2:
                break
        assert heard[0] == ("MODIFIED", version(second))
        assert heard[1][0] == "DELETED"
        # A deletion has a version of its own, or a watch could not resume behind it.
        assert int(heard[1][1]) > int(version(second))
        assert watch.resource_version == heard[1][1]


def test_a_selecting_watch_adds_and_deletes_what_comes_and_goes(site: Site) -> None:
    listing = site.client.list(PODS, Query(site.namespace))
    site.client.create(PODS, site.pod("a"))
    for labels in ({"t": "x"}, {"t": "y"}):
        site.client.patch(PODS, site.key("a"), merge_patch({"metadata": {"labels": labels}}))
    heard: list[str] = []
    query = Query(site.namespace, labels="t=x")
    with site.client.watch(PODS, query, resource_version=listing.resource_version) as watch:
        for changes in watch.batches():
            heard += [change.type.value for change in changes]
            if len(heard) >= 2:
                break
    assert heard == ["ADDED", "DELETED"]


def test_an_informer_follows_and_tells(site: Site) -> None:
    site.client.create(PODS, site.pod("a"))
    heard: list[tuple[DeltaType, str]] = []

    def listen(deltas: Any) -> None:
        heard.extend((delta.type, delta.key.name) for delta in deltas)

    with Informer(site.client, PODS, Query(site.namespace)) as informer:
        informer.subscribe(listen)
        assert informer.wait_synced(10)
        site.client.create(PODS, site.pod("b"))
        bind(site.client, Binding(site.key("b"), "", "n1"))
        site.client.delete(PODS, site.key("a"))
        wait_for(lambda: len(heard) == 5)
        assert {key.name for key in informer.snapshot()} == {"b"}
        late: list[StoreDelta[Document]] = []
        informer.subscribe(late.extend)
        assert [(delta.type, delta.key.name) for delta in late] == [(DeltaType.ADDED, "b")]
    assert heard == [
        (DeltaType.ADDED, "a"),
        (DeltaType.ADDED, "b"),
        (DeltaType.UPDATED, "b"),
        # The end of the grace period, even of none, is a write of its own.
        (DeltaType.UPDATED, "a"),
        (DeltaType.DELETED, "a"),
    ]
