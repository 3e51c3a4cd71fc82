"""Outages: begin with silence, end with the first word, and are remembered by their end."""

from controllers.runtime.outages import Outages
from controllers.runtime.view import NEVER


def test_an_outage_begins_after_silence_and_ends_with_the_first_word() -> None:
    it = Outages(120.0)
    assert not it.observe(120.0, 1000.0)
    assert not it.away
    assert it.observe(121.0, 1001.0)
    assert it.away
    assert it.heard_since_seconds == NEVER
    assert not it.observe(600.0, 1480.0)
    assert it.observe(0.5, 1500.0)
    assert not it.away
    assert it.heard_since_seconds == 1500.0
    assert not it.observe(0.5, 1501.0)
    assert it.heard_since_seconds == 1500.0


def test_a_process_that_starts_counts_from_its_first_lists() -> None:
    it = Outages(120.0)
    it.begin(900.0)
    assert it.heard_since_seconds == 900.0
    assert not it.observe(1.0, 1000.0)
    assert it.heard_since_seconds == 900.0
