"""What the kubelet's probes are told about the loop."""

import threading
from typing import Any

from koordlet.metrics.health import STALLED_SECONDS, TickHealth, few_at_once


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_agent_is_alive_while_it_starts_and_ready_after_its_first_tick() -> None:
    clock = Clock()
    health = TickHealth(1.0, clock)
    assert (health.problem("/healthz"), health.problem("/readyz")) == ("", "no tick yet")
    clock.now += STALLED_SECONDS
    health.beat()
    assert (health.problem("/healthz"), health.problem("/readyz")) == ("", "")


def test_an_agent_that_stopped_ticking_is_neither() -> None:
    clock = Clock()
    health = TickHealth(1.0, clock)
    health.beat()
    clock.now += STALLED_SECONDS + 10.5
    assert health.problem("/healthz") == health.problem("/readyz") == "no tick for 40 s"
    health.beat()
    assert not health.problem("/healthz")


def test_long_intervals_get_more_patience() -> None:
    clock = Clock()
    health = TickHealth(60.0, clock)
    health.beat()
    clock.now += 9 * 60
    assert not health.problem("/healthz")


def test_scrapes_beyond_a_few_are_turned_away() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(_environment: object, respond: Any) -> list[bytes]:
        inside.set()
        go_on.wait(10)
        respond("200 OK", [])
        return [b"metrics"]

    answer = few_at_once(slow, most=1)
    said: list[str] = []
    first = threading.Thread(target=answer, args=({}, lambda status, _headers: said.append(status)))
    first.start()
    assert inside.wait(10)
    assert b"too many" in b"".join(answer({}, lambda status, _headers: said.append(status)))  # type: ignore[arg-type]
    go_on.set()
    first.join()
    assert [status.split()[0] for status in said] == ["503", "200"]
    assert b"metrics" in b"".join(answer({}, lambda status, _headers: said.append(status)))  # type: ignore[arg-type]
