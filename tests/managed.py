"""Views, plans and a running manager for the tests of the controllers."""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
import pytest
from click.testing import CliRunner

from api.kube.meta import ObjectReference
from cluster import (
    NODES,
    Client,
    ClientSettings,
    DeltaType,
    Event,
    EventRecorder,
    Key,
    Resource,
    StoreDelta,
    Withheld,
    merge_patch,
)
from cluster.twin import Twin
from controllers.runtime.controller import AnyController, Controller
from controllers.runtime.loop import Loop, copy_for
from controllers.runtime.settings import LoopSettings
from controllers.runtime.view import NEVER, ClusterCopy, View
from controllers.runtime.writes import kind_name, metadata_of
from tests.waiting import wait_for

CONFIG = Key("koordinator-system", "slo-controller-config")
FAST = LoopSettings(round_seconds=0.02, requests_per_second=10_000, burst=10_000, retry_seconds=0.05)

Objects = Mapping[Resource[Any], Sequence[Any]]


def built(kind: type[Controller[Any]], **settings: Any) -> AnyController:
    """Return a controller with settings."""
    return kind(kind.settings_type(**settings), CONFIG)


def added(objects: Sequence[Any]) -> list[StoreDelta[Any]]:
    """Return the changes that add objects."""
    deltas = []
    for each in objects:
        meta = metadata_of(each)
        deltas.append(StoreDelta(DeltaType.ADDED, Key(meta.namespace, meta.name), None, each))
    return deltas


def copy_of(controller: AnyController, objects: Objects) -> ClusterCopy:
    """Return the copy of a cluster that has these objects, as far as the controller watches their kinds."""
    copy = copy_for({"it": controller})
    for resource, listed in objects.items():
        if kind_name(resource) in copy.resources:
            copy.apply(resource, added(listed))
    return copy


def view_of(controller: AnyController, objects: Objects, *, heard_since_seconds: float = NEVER) -> View:
    """Return the view of a full plan over these objects."""
    return copy_of(controller, objects).view("it", full=True, heard_since_seconds=heard_since_seconds)


@contextmanager
def running(twin: Twin, controllers: Mapping[str, AnyController], **options: Any) -> Iterator[Loop]:
    """A manager's loop on a twin, synced."""
    once = ClientSettings(requests_per_second=1e6, burst=1_000_000, attempts=1, timeout_seconds=3.0)
    with (
        twin.client() as reader,
        twin.client(once) as writer,
        running_on(reader, controllers, writer, **options) as loop,
    ):
        yield loop


@contextmanager
def running_on(
    reader: Client, controllers: Mapping[str, AnyController], writer: Client | None = None, **options: Any
) -> Iterator[Loop]:
    """A manager's loop on any API server, synced."""
    loop = Loop(reader, writer or reader, controllers, options.pop("settings", FAST), **options)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        wait_for(loop.ready.is_set)
        yield loop
    finally:
        loop.stop()
        thread.join(10)
        assert not thread.is_alive()


def check_fenced(monkeypatch: pytest.MonkeyPatch, main: click.Group, twin: Twin, *options: str) -> None:
    """Check that a program which waits for its lease reads, and sends neither writes nor Events."""
    twin.load(NODES, [{"metadata": {"name": "fenced"}}])

    def instead(
        _loop: Any, recorder: EventRecorder, _elector: Any, *, servers: Any, clients: Sequence[Client], hints: Any
    ) -> None:
        for server in servers:
            server.stop()
        reader, writer = clients
        key, change = Key("", "fenced"), merge_patch({"metadata": {"labels": {"a": "b"}}})
        assert "labels" not in reader.get(NODES, key)["metadata"]
        with pytest.raises(Withheld):
            writer.patch(NODES, key, change)
        recorder.start()
        recorder.record(Event(ObjectReference(kind="Node", name="fenced"), "Tried", "a write", "Trying"))
        recorder.stop()
        assert (recorder.counters.created, recorder.counters.dropped) == (0, 1)

    module = sys.modules[main.callback.__module__] if main.callback else None
    monkeypatch.setattr(module, "run_until_signal", instead)
    words = ["--server", twin.url, *options, "run", "--address", "127.0.0.1", "--port", "0"]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
