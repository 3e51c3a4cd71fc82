"""A scrape in short stretches: the same bytes as the library's, with breaks on the way."""

import gzip
from collections.abc import Callable, Iterator
from wsgiref.util import setup_testing_defaults

import pytest
from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from koordlet.metrics.spread import scrape_application

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Many(Collector):
    """Families of every kind that the agent has, one of them kept between scrapes."""

    def __init__(self) -> None:
        self._kept = GaugeMetricFamily("kept", "A family that is not made anew.", labels=["cgroup"])
        for number in range(500):
            self._kept.add_metric([f"/a/{number}"], number)

    def collect(self) -> Iterator[Metric]:
        yield self._kept
        counter = CounterMetricFamily("waits", "Waits.", labels=["cgroup"])
        counter.add_metric(['"quoted"\n'], 3, created=1.0)
        yield counter
        histogram = HistogramMetricFamily("lasting", "Time.", labels=["cgroup"])
        histogram.add_metric(["/a"], [("0.1", 1), ("+Inf", 2)], 0.3)
        yield histogram


def asked(app: object, query: str = "", **environment: str) -> tuple[str, dict[str, str], bytes]:
    """Ask an application once; returns status, headers and body."""
    given: dict[str, object] = {"PATH_INFO": "/metrics", "QUERY_STRING": query, **environment}
    setup_testing_defaults(given)
    found: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(app(given, lambda status, headers: found.append((status, headers))))  # type: ignore[operator]
    return found[0][0], dict(found[0][1]), body


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Many())
    return made


class Counted:
    """Breaks that are counted."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> Callable[[], None]:
        return self.take

    def take(self) -> None:
        self.number += 1


@pytest.mark.parametrize(
    ("query", "environment"),
    [
        pytest.param("", {}, id="text"),
        pytest.param("", {"HTTP_ACCEPT": OPENMETRICS}, id="openmetrics"),
        pytest.param("name[]=waits_total&name[]=lasting_sum", {}, id="some-names"),
        pytest.param("", {"REQUEST_METHOD": "OPTIONS", "HTTP_ACCEPT_ENCODING": "gzip"}, id="options"),
        pytest.param("", {"REQUEST_METHOD": "POST", "HTTP_ACCEPT_ENCODING": "gzip"}, id="refused"),
        pytest.param("", {"HTTP_ACCEPT_ENCODING": "gzip;q=1"}, id="compressed"),
    ],
)
def test_the_answer_is_the_librarys(registry: CollectorRegistry, query: str, environment: dict[str, str]) -> None:
    app, theirs = scrape_application(registry), make_wsgi_app(registry)
    for _ in range(2):  # what is kept between scrapes is as it was
        status, headers, body = asked(app, query, **environment)
        expected = asked(theirs, query, **environment)
        assert (status, headers) == expected[:2]
        if headers.get("Content-Encoding") == "gzip":
            assert gzip.decompress(body) == gzip.decompress(expected[2])
        else:
            assert body == expected[2]


def test_breaks_come_between_samples_and_between_compressed_pieces(registry: CollectorRegistry) -> None:
    plain, packed = Counted(), Counted()
    body = asked(scrape_application(registry, plain))[2]
    asked(scrape_application(registry, packed), HTTP_ACCEPT_ENCODING="gzip")
    assert plain.number >= 500 // 32 + 3
    assert packed.number >= plain.number + len(body) // (32 << 10)
