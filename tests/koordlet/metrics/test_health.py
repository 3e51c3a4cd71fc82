"""What the kubelet's probes are told about the loop."""

from koordlet.metrics.health import STALLED_SECONDS, TickHealth


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
