"""The exchange with one cluster: what is offered while this process leads, and nothing of an earlier lead."""

from typing import cast

from prometheus_client import CollectorRegistry

from controllers.yarn.board import Board, Offer
from controllers.yarn.exchange import Exchange, ExchangeMetrics
from controllers.yarn.protocol import Capability, NodeReport
from controllers.yarn.resource_managers import ResourceManagers

HAS, GETS = Capability(8, 8192), Capability(9, 9216)


class Managers:
    name = "main"
    active = "http://rm1"

    def __init__(self) -> None:
        self.set: list[Capability] = []

    def nodes(self) -> dict[str, NodeReport]:
        return {"n1:1": NodeReport("n1:1", "n1", "RUNNING", HAS, HAS, "")}

    def set_resource(self, node_id: str, wanted: Capability, overcommit_timeout_seconds: float) -> None:
        self.set.append(wanted)


def test_an_offer_does_not_outlive_the_lead_in_which_it_was_made() -> None:
    managers, board, leads = Managers(), Board(), [False]
    exchange = Exchange(
        cast("ResourceManagers", managers),
        board,
        leading=lambda: leads[0],
        metrics=ExchangeMetrics(CollectorRegistry()),
        poll_seconds=1.0,
        overcommit_timeout_seconds=30.0,
    )
    board.offer({"main": {"n1:1": Offer(GETS, HAS, "")}})
    exchange.once()
    leads[0] = True
    exchange.once()
    assert not managers.set
    board.offer({"main": {"n1:1": Offer(GETS, HAS, "")}})
    exchange.once()
    assert managers.set == [GETS]
