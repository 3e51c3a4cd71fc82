"""Trips that wait are answered by the holder of the lock, however many come while it is held."""

import threading

from koordlet.control.trip_answers import TripAnswers
from probes.tripwire import Trip
from tests.waiting import wait_for


def trip(culprit: int) -> Trip:
    return Trip(victim=3, culprit=culprit, lost_ns=10_000_000, span_ns=50_000_000, at_ns=1_000_000_000)


def test_two_trips_are_answered_within_one_step() -> None:
    answered: list[int] = []

    def respond(one: Trip) -> str:
        answered.append(one.culprit)
        return "acted"

    lock = threading.Lock()
    answers = TripAnswers(lock, respond)
    listening = threading.Thread(target=lambda: [answers.take(trip(4)), answers.take(trip(5))])
    with lock:
        listening.start()
        wait_for(lambda: answers.serve() or len(answered) == 2, 10.0)
    listening.join(30)
    assert answered == [4, 5]
    assert answers.counts == {"acted": 2}
