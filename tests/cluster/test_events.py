"""Events become series and keep to their rates; writing them never disturbs the caller."""

from dataclasses import replace

import pytest
from msgspec import structs

from api.kube.meta import ObjectReference
from cluster import EVENTS, Event, EventRecorder, RecorderSettings
from cluster.events import NOTE_BYTES, SWEEP_AT, EventSeries, Series, admitted, correlate, cut, remember
from cluster.resources import Key
from cluster.twin import Fault, FaultType, Twin
from tests.cluster.conftest import Site
from tests.waiting import wait_for

SETTINGS = RecorderSettings("koord-scheduler", "scheduler-0", burst_per_object=3, remembered=4)


def about(name: str, note: str = "no node fits", namespace: str = "d") -> Event:
    pod = ObjectReference(kind="Pod", namespace=namespace, name=name, uid=f"uid-{name}")
    return Event(pod, "FailedScheduling", note, "Scheduling", "Warning")


def test_equal_events_continue_a_series_until_it_is_old() -> None:
    memory, event = EventSeries(), about("a")
    assert correlate(memory, event, SETTINGS, 0.0) is None
    remember(memory, event, Series(Key("d", "e"), 1, 100.0), SETTINGS)
    assert correlate(memory, event, SETTINGS, 460.0) == Series(Key("d", "e"), 1, 100.0)
    assert correlate(memory, event, SETTINGS, 460.1) is None
    assert correlate(memory, about("a", "another note"), SETTINGS, 100.0) is None


def test_a_chatty_object_is_held_back_and_others_are_not() -> None:
    memory = EventSeries()
    verdicts = [admitted(memory, about("a", str(number)), SETTINGS, 0.0) for number in range(5)]
    assert verdicts == [True, True, True, False, False]
    assert admitted(memory, about("b"), SETTINGS, 0.0)
    assert admitted(memory, about("a"), SETTINGS, SETTINGS.seconds_per_event)


def test_an_object_that_was_written_since_is_still_the_same_object() -> None:
    memory = EventSeries()
    events = [replace(about("a"), regarding=structs.replace(about("a").regarding, resource_version=v)) for v in "12345"]
    assert [admitted(memory, event, SETTINGS, 0.0) for event in events] == [True, True, True, False, False]
    remember(memory, events[0], Series(Key("d", "e"), 1, 0.0), SETTINGS)
    assert correlate(memory, events[1], SETTINGS, 0.0) is not None


def test_memory_is_bounded() -> None:
    memory = EventSeries()
    for number in range(20):
        admitted(memory, about(str(number)), SETTINGS, 0.0)
        remember(memory, about(str(number)), Series(Key("d", "e"), 1, 0.0), SETTINGS)
    assert len(memory.series) == len(memory.buckets) == SETTINGS.remembered
    assert about("19") in memory.series


def test_what_is_over_is_forgotten() -> None:
    memory = EventSeries()
    settings = replace(SETTINGS, remembered=10_000)
    for number in range(1000):
        now = 60.0 * number
        assert correlate(memory, about(str(number)), settings, now) is None
        assert admitted(memory, about(str(number)), settings, now)
        remember(memory, about(str(number)), Series(Key("d", "e"), 1, now), settings)
    assert len(memory.series) == 7
    assert len(memory.buckets) <= SWEEP_AT


@pytest.mark.parametrize(
    ("note", "length"),
    [
        pytest.param("x" * 1024, 1024, id="at-the-limit"),
        pytest.param("x" * 1025, 1024, id="over-the-limit"),
        pytest.param("é" * 900, 1023, id="two-byte-characters"),
    ],
)
def test_notes_fit_the_limit_of_the_server(note: str, length: int) -> None:
    assert len(cut(note).encode()) == length <= NOTE_BYTES


def test_events_are_written_as_series(site: Site) -> None:
    recorder = EventRecorder(site.client, SETTINGS)
    recorder.start()
    for _ in range(3):
        recorder.record(about("a", namespace=site.namespace))
    recorder.record(about("b", namespace=site.namespace))
    recorder.stop()
    assert (recorder.counters.created, recorder.counters.continued) == (2, 2)
    events = {
        event["regarding"]["name"]: event
        for event in site.client.list(EVENTS).values
        if event["metadata"]["namespace"] == site.namespace
    }
    assert events["a"]["series"]["count"] == 3
    assert "series" not in events["b"]
    assert events["a"]["note"] == "no node fits"
    assert events["a"]["reportingController"] == "koord-scheduler"


def test_an_expired_event_begins_anew(twin: Twin) -> None:
    with twin.client() as client:
        recorder = EventRecorder(client, SETTINGS)
        recorder.start()
        recorder.record(about("a"))
        wait_for(lambda: recorder.counters.created == 1)
        (key,) = twin.objects(EVENTS)
        client.delete(EVENTS, key)
        recorder.record(about("a"))
        recorder.stop()
    assert recorder.counters.created == 2
    assert len(twin.objects(EVENTS)) == 1


def test_a_server_that_refuses_loses_events_not_the_program(twin: Twin) -> None:
    twin.faults.add(Fault(FaultType.ERROR, status=403))
    with twin.client() as client:
        recorder = EventRecorder(client, replace(SETTINGS, queue_size=2))
        for number in range(5):
            recorder.record(about(str(number)))
        assert recorder.counters.dropped == 3
        recorder.start()
        recorder.stop()
    assert recorder.counters.failed == 2
