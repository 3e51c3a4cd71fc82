"""Messages to a thread that waits for something else."""

import threading

from scheduler.inbox import Inbox


def test_messages_come_in_order() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(3):
        inbox.put(number)
    assert [inbox.take() for _ in range(4)] == [0, 1, 2, None]
    assert inbox.empty()


def test_a_message_that_is_there_is_not_waited_for() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    waits: list[str] = []
    inbox.wait_elsewhere(lambda: waits.append("waited"), lambda: None)
    assert not waits
    assert inbox.take(600.0) == 1


def test_a_message_ends_a_wait_elsewhere() -> None:
    inbox: Inbox[int] = Inbox()
    began, woken = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert woken.wait(60)

    def send() -> None:
        assert began.wait(60)
        inbox.put(1)

    sender = threading.Thread(target=send)
    sender.start()
    inbox.wait_elsewhere(wait, woken.set)
    sender.join()
    assert inbox.take() == 1
    # Nothing wakes the one that waits no more.
    woken.clear()
    inbox.put(2)
    assert not woken.is_set()
