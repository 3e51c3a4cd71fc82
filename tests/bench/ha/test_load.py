"""Rounds of preemptors: which of them fail a trial."""

from random import Random
from typing import Any, cast

import pytest

from bench.ha import load
from bench.ha.__main__ import Trial
from bench.ha.ledger import Ledger
from bench.ha.load import Load
from cluster import Client


class Server:
    """Takes every pod and binds none."""

    def __init__(self) -> None:
        self.created: list[str] = []

    def create(self, _: Any, document: Any) -> Any:
        """Take it."""
        self.created.append(document["metadata"]["name"])
        return {**document, "metadata": {**document["metadata"], "uid": f"uid-{len(self.created)}"}}

    def delete(self, *_: Any) -> None:
        """Take it away."""


@pytest.mark.parametrize("over", [pytest.param(False, id="never bound"), pytest.param(True, id="cut off")])
def test_a_round_that_is_not_bound_fails_the_trial_unless_its_end_cut_it_off(
    over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "ROUND_SECONDS", 0.01)
    made = Load(cast(Client, Server()), 1.0, 0)
    made._more.set()
    if over:
        made._over.set()
    made._preempt()
    assert [each.failed for each in made.rounds] == [not over]
    assert Trial(made, Ledger(), [], Random(0), 1.0).report() is over


def test_no_round_begins_once_nothing_more_is_to_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "ROUND_SECONDS", 0.01)
    server = Server()
    made = Load(cast(Client, server), 1.0, 0)
    made._more.set()
    made.ebb()
    made._preempt()
    assert server.created == []
    assert made.rounds == []
