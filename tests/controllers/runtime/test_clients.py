"""Clients of the controllers' programs: what waits for an answer when the process may lead no longer."""

from api.kube.meta import ObjectReference
from cluster.command_line import Chosen
from cluster.events import Event
from controllers.runtime.clients import connect_clients
from controllers.runtime.metrics import Metrics
from controllers.runtime.settings import LoopSettings
from tests.deaf_server import deaf_server
from tests.waiting import wait_for

AN_EVENT = Event(ObjectReference(api_version="v1", kind="Pod", namespace="d", name="p"), "Scaled", "more room", "Scale")


def test_an_event_without_an_answer_is_given_up_as_soon_as_another_write() -> None:
    with deaf_server() as server:
        chosen = Chosen("koord-test", None, None, None, server.url)
        leads = [True]
        settings = LoopSettings(request_timeout_seconds=0.3)
        clients = connect_clients(chosen, "one", settings, Metrics(), lambda: bool(leads))
        clients.recorder.start()
        clients.recorder.record(AN_EVENT)
        wait_for(lambda: server.held_seconds, 10)
        leads.clear()
        clients.recorder.stop()
        assert server.held_seconds[0] < 3
