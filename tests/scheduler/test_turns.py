"""Turns of attempts and messages: neither waits for the other for longer than it is owed."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from scheduler import turns
from scheduler.inbox import Inbox
from scheduler.turns import ATTEMPTS_PER_SENDING, ATTEMPTS_PER_TURN, ATTEMPTS_SECONDS, MESSAGES_SECONDS, Turns


class Thread:
    """A thread whose attempts take 4 ms and whose parts of messages take 2 ms, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.inbox: Inbox[int] = Inbox()
        self.waited: list[float] = []
        self.parts = self.attempts = self.sendings = 0
        self.turns = Turns(self.inbox, self._take_in, self._next)
        monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _take_in(self, parts: int) -> Iterator[None]:
        for _ in range(parts):
            self.now += 0.002
            self.parts += 1
            yield

    def _next(self, block_seconds: float) -> int | None:
        self.waited.append(block_seconds)
        return self.inbox.take()

    def _attempt(self) -> bool:
        self.now += 0.004
        self.attempts += 1
        return True

    def _send(self) -> None:
        self.sendings += 1

    def place(self) -> bool:
        return self.turns.attempts(self._attempt, self._send)


def test_while_nothing_waits_a_turn_has_its_number_of_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(monkeypatch)
    assert thread.place()
    assert (thread.attempts, thread.sendings) == (ATTEMPTS_PER_TURN, ATTEMPTS_PER_TURN // ATTEMPTS_PER_SENDING)
    thread.turns.messages(0.0)
    assert thread.place()
    assert thread.attempts == 2 * ATTEMPTS_PER_TURN, "nothing is owed to messages that are not there"


def test_a_turn_ends_where_there_is_no_pod_to_place(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(monkeypatch)
    assert not thread.turns.attempts(lambda: False, thread._send)
    thread.turns.messages(0.7)
    assert thread.waited == [0.7]


def test_messages_get_as_much_time_as_attempts_took_while_they_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(monkeypatch)
    for _ in range(1000):
        thread.inbox.put(100)
    for _ in range(50):
        thread.place()
        thread.turns.messages(0.0)
    placing, hearing = 0.004 * thread.attempts, 0.002 * thread.parts
    assert thread.attempts * 0.004 / 50 <= ATTEMPTS_SECONDS + 0.004
    assert placing <= hearing <= placing * (MESSAGES_SECONDS + 0.002) / ATTEMPTS_SECONDS


def test_attempts_wait_until_messages_had_what_they_are_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(monkeypatch)
    thread.inbox.put(10_000)
    thread.turns.messages(0.0)
    assert thread.parts == MESSAGES_SECONDS / 0.002
    long = 0.5

    def slow() -> bool:
        thread.now += long
        thread.attempts += 1
        return True

    heard = thread.parts
    assert thread.turns.attempts(slow, thread._send)
    assert thread.attempts == 1
    while thread.attempts == 1:
        thread.turns.messages(0.0)
        assert thread.turns.attempts(slow, thread._send)
    assert 0.002 * (thread.parts - heard) >= long
