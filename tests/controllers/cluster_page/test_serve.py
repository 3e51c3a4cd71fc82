"""Who gets the page: loopback by an address, GET alone; a manager that plans or has no port goes on."""

import socket
import urllib.error
import urllib.request

import pytest

from cluster import NODES
from cluster.serving import Request
from cluster.twin import Twin
from controllers.cluster_page.serve import LEAST_SECONDS, SHOWN, ClusterPage, serve_page
from controllers.cluster_page.settings import ClusterPageSettings
from controllers.runtime.writes import kind_name
from tests.controllers.cluster_page.states import NOW
from tests.managed import running
from tests.waiting import wait_for

EMPTY = {kind_name(kind): {} for kind in SHOWN}


def page(*, known: bool = True) -> ClusterPage:
    return ClusterPage(lambda _: EMPTY if known else None, lambda: False, lambda: NOW)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (Request("GET", "/", host="127.0.0.1:8081"), 200),
        (Request("GET", "/?x=1", host="localhost"), 200),
        (Request("GET", "/", host="evil.example:8081"), 403),
        (Request("POST", "/", host="127.0.0.1"), 405),
        (Request("GET", "/metrics", host="127.0.0.1"), 404),
        (Request("GET", "/../../etc/passwd", host="127.0.0.1"), 404),
    ],
    ids=["address", "localhost", "rebound-name", "post", "metrics", "traversal"],
)
def test_who_is_answered(request_: Request, status: int) -> None:
    assert page().answer(request_).status == status


def test_without_a_view_the_page_says_so() -> None:
    assert page(known=False).answer(Request("GET", "/", host="127.0.0.1")).status == 503


def test_many_readers_cost_one_look() -> None:
    looks: list[float] = []
    times = [100.0]

    def look(seconds: float):  # type: ignore[no-untyped-def]
        looks.append(seconds)
        return EMPTY

    shown = ClusterPage(look, lambda: True, lambda: NOW, lambda: times[0])
    first = shown.answer(Request("GET", "/", host="127.0.0.1"))
    times[0] += LEAST_SECONDS - 0.1
    second = shown.answer(Request("GET", "/", host="127.0.0.1"))
    assert len(looks) == 1
    assert first.body == second.body
    assert b"leading" in first.body
    times[0] += 0.2
    shown.answer(Request("GET", "/", host="127.0.0.1"))
    assert len(looks) == 2


def test_a_running_manager_shows_what_its_nodes_report() -> None:
    with Twin() as twin:
        twin.load(NODES, [{"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8"}}}])
        with running(twin, {}, shown=SHOWN) as loop:
            server = serve_page(ClusterPageSettings(port=0), loop.look, lambda: True)
            assert server is not None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=10) as answer:
                    body, headers = answer.read().decode(), answer.headers
                assert "n1" in body
                assert "default-src 'none'" in headers["Content-Security-Policy"]
                assert headers.get_all("X-Content-Type-Options") == ["nosniff"]
                with pytest.raises(urllib.error.HTTPError, match="403"):
                    urllib.request.urlopen(
                        urllib.request.Request(f"http://127.0.0.1:{server.port}/", headers={"Host": "evil.example"}),
                        timeout=10,
                    )
                with twin.client() as client:
                    client.create(NODES, {"metadata": {"name": "n2"}})

                def renewed() -> bool:
                    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=10) as answer:
                        return b"n2" in answer.read()

                wait_for(renewed, interval_seconds=0.3)
            finally:
                server.stop()


def test_a_taken_port_ends_no_manager(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve_page(ClusterPageSettings(port=port), lambda _: None, lambda: True) is None
    assert "choose another port" in caplog.text
    assert serve_page(ClusterPageSettings(enabled=False), lambda _: None, lambda: True) is None
