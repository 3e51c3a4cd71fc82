"""Turns of the scheduling thread: attempts and messages share its time, so that neither waits long for the other.

Where messages wait, attempts stop after some time and messages get as much, in parts: a list that is read again has a
change for each object, and must not stop placing.
"""

import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from scheduler.inbox import Inbox

M = TypeVar("M")

ATTEMPTS_PER_TURN = 32
"""Attempts of a turn at most."""
ATTEMPTS_SECONDS = 0.01
"""Time for a turn's attempts where messages wait: a pod is better placed on what is known than on what was."""
ATTEMPTS_PER_SENDING = 4
"""Attempts between two looks at the answers to bindings."""
MESSAGES_SECONDS = 0.03
"""Time for messages in a turn; questions over HTTP and lists read again must not stop placing."""


class Turns(Generic[M]):
    """The turns of one thread: call `attempts` and `messages` in turn.

    `take_in` takes a message in, part by part; `next_message` waits so many seconds for one.
    """

    def __init__(
        self, inbox: Inbox[M], take_in: Callable[[M], Iterator[None]], next_message: Callable[[float], M | None]
    ) -> None:
        self._inbox = inbox
        self._take_in = take_in
        self._next_message = next_message
        self._under_way: Iterator[None] | None = None
        """Rest of a message that is too long for a turn."""
        self._owed_seconds = 0.0
        """Time that messages have yet to get before the next attempt: as much as attempts took while they waited."""

    def attempts(self, attempt: Callable[[], bool], send: Callable[[], None]) -> bool:
        """Make a turn's attempts, none while messages are owed time; return whether pods may be left to place.

        `attempt` returns whether there was a pod to place, `send` looks at bindings and their answers.
        """
        if self._owed_seconds:
            return True
        busy, began = False, time.monotonic()
        for number in range(ATTEMPTS_PER_TURN):
            if not attempt():
                break
            busy = True
            if number % ATTEMPTS_PER_SENDING == ATTEMPTS_PER_SENDING - 1:
                send()
            self._owed_seconds = time.monotonic() - began
            if self._owed_seconds >= ATTEMPTS_SECONDS and self._messages_wait():
                break
        return busy

    def messages(self, block_seconds: float) -> None:
        """Take in what waits, for a while; when nothing does, wait up to `block_seconds` for the first."""
        began = time.monotonic()
        self._drain(block_seconds)
        left = self._owed_seconds - (time.monotonic() - began)
        self._owed_seconds = max(left, 0.0) if self._messages_wait() else 0.0

    def _messages_wait(self) -> bool:
        return self._under_way is not None or not self._inbox.empty()

    def _drain(self, block_seconds: float) -> None:
        if self._under_way is None:
            message = self._next_message(block_seconds)
            if message is None:
                return
            self._under_way = self._take_in(message)
        until = time.monotonic() + MESSAGES_SECONDS
        while self._under_way is not None:
            for _ in self._under_way:
                if time.monotonic() >= until:
                    return
            message = self._inbox.take()
            self._under_way = self._take_in(message) if message is not None else None
