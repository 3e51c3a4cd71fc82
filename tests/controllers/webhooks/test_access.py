"""The right to bind pods: asked once for a while, and no without an answer."""

from typing import Any

import pytest

from cluster import Unavailable
from controllers.webhooks.access import MOST_REMEMBERED, BindingRights
from controllers.webhooks.review import UserInfo


class Answering:
    """An API server that knows who may bind pods."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.asked: list[dict[str, Any]] = []
        self.away = False

    def create(self, _resource: object, document: dict[str, Any]) -> dict[str, Any]:
        if self.away:
            raise Unavailable("away")
        self.asked.append(document["spec"])
        return {"status": {"allowed": document["spec"]["user"] in self.allowed}}


def test_an_answer_is_remembered_for_a_while() -> None:
    server, now = Answering("scheduler"), [0.0]
    rights = BindingRights(server, lambda: now[0])  # type: ignore[arg-type]
    scheduler, other = UserInfo(username="scheduler", groups=["g"]), UserInfo(username="other")
    assert rights(scheduler, "shop")
    assert rights(scheduler, "shop")
    assert not rights(other, "shop")
    assert len(server.asked) == 2
    assert server.asked[0]["resourceAttributes"] == {
        "namespace": "shop",
        "verb": "create",
        "resource": "pods",
        "subresource": "binding",
    }
    assert rights(scheduler, "web"), "another namespace is another question"
    now[0] = 61.0
    server.allowed = ()
    assert not rights(scheduler, "shop")


def test_a_server_that_is_away_means_no_and_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    server = Answering("scheduler")
    server.away = True
    rights = BindingRights(server)  # type: ignore[arg-type]
    assert not rights(UserInfo(username="scheduler"), "shop")
    server.away = False
    assert rights(UserInfo(username="scheduler"), "shop")


def test_memory_is_bounded() -> None:
    rights = BindingRights(Answering())  # type: ignore[arg-type]
    for number in range(MOST_REMEMBERED + 10):
        rights(UserInfo(username=f"u{number}"), "shop")
    assert len(rights._remembered) == MOST_REMEMBERED
