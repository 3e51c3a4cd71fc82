"""Writes of a scheduler that competes for a lease: what is on its way is given up before another can lead."""

import time

import pytest

from cluster import PODS, Client, ClientSettings, ClusterError, plain_endpoint
from scheduler.__main__ import LEAST_SLACK_SECONDS, fenced
from tests.deaf_server import deaf_server


def test_a_write_without_an_answer_is_given_up_within_the_slack() -> None:
    with deaf_server() as server:
        settings = fenced(ClientSettings(attempts=1), LEAST_SLACK_SECONDS)
        with Client(plain_endpoint(server.url), settings) as client:
            began = time.monotonic()
            with pytest.raises(ClusterError):
                client.create(PODS, {"metadata": {"name": "p", "namespace": "d"}})
            assert time.monotonic() - began < 5  # 30 s without the fence


def test_without_an_election_answers_are_waited_for_as_usual() -> None:
    assert fenced(ClientSettings(), None) == ClientSettings()
