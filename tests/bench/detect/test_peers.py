"""Verdicts of simple rules on made samples."""

from collections.abc import Mapping

import pytest

from api.verdicts import VerdictState
from bench.detect.measures import (
    GAUGES,
    IO_BYTES,
    MEMORY_BYTES,
    STALLED_CPU,
    STALLED_IO,
    STALLED_MEMORY,
    USAGE,
    WAIT,
    Sample,
)
from bench.detect.peers import PEERS, Rule, Span, by_correlation, by_pressure, by_usage, spans_of, told_by

PATHS = {"victim": "/top/victim", "hog": "/top/hog", "decoy": "/top/decoy"}


def span(time: float, **roles: Mapping[str, float]) -> Span:
    return Span(time, roles)


def test_counters_become_rates_and_gauges_stand() -> None:
    samples = [Sample(float(second), {"hog": {USAGE: second * 0.5, MEMORY_BYTES: 7.0}}) for second in range(3)]
    spans = spans_of(samples, GAUGES)
    assert [(each.time, each.of("hog", USAGE), each.of("hog", MEMORY_BYTES)) for each in spans] == [
        (1.0, 0.5, 7.0),
        (2.0, 0.5, 7.0),
    ]


def test_samples_that_follow_too_closely_are_left_out() -> None:
    samples = [Sample(time, {"hog": {USAGE: time}}) for time in (0.0, 1.0, 1.1, 2.0)]
    assert [each.time for each in spans_of(samples, GAUGES)] == [1.0, 2.0]


def test_a_role_that_is_born_counts_from_zero_and_one_that_shrinks_from_nothing() -> None:
    samples = [Sample(0.0, {"a": {WAIT: 5.0}}), Sample(1.0, {"a": {WAIT: 1.0}, "b": {WAIT: 2.0}})]
    (only,) = spans_of(samples, GAUGES)
    assert (only.of("a", WAIT), only.of("b", WAIT)) == (0.0, 2.0)


@pytest.mark.parametrize(
    ("rule", "now", "statement"),
    [
        pytest.param(by_usage, {"victim": {USAGE: 0.9}, "hog": {USAGE: 0.6}}, {"cpu": "hog"}, id="usage"),
        pytest.param(by_usage, {"victim": {USAGE: 0.9}, "hog": {USAGE: 0.4}}, {}, id="usage-too-little"),
        pytest.param(
            by_usage,
            {"victim": {WAIT: 0.5}, "hog": {USAGE: 0.6}, "decoy": {USAGE: 0.9}},
            {"cpu": "decoy"},
            id="usage-is-fooled",
        ),
        pytest.param(
            by_pressure, {"victim": {STALLED_CPU: 0.2, USAGE: 0.9}, "hog": {USAGE: 0.1}}, {"cpu": "hog"}, id="psi-cpu"
        ),
        pytest.param(
            by_pressure, {"victim": {STALLED_IO: 0.2}, "hog": {IO_BYTES: 1.0}}, {"blockio": "hog"}, id="psi-io"
        ),
        pytest.param(by_pressure, {"victim": {STALLED_MEMORY: 0.2}}, {"memory": ""}, id="psi-memory-nobody"),
        pytest.param(by_pressure, {"victim": {STALLED_CPU: 0.09}, "hog": {USAGE: 1.0}}, {}, id="psi-too-little"),
    ],
)
def test_what_a_rule_says_of_one_moment(
    rule: Rule, now: Mapping[str, Mapping[str, float]], statement: Mapping[str, str]
) -> None:
    assert rule([Span(1.0, now)], "victim") == statement


def test_correlation_names_whose_usage_goes_with_the_wait() -> None:
    calm = [span(float(t), victim={WAIT: 0.0}, hog={USAGE: 0.0}, decoy={USAGE: 1.0}) for t in range(6)]
    harmed = [span(6.0 + t, victim={WAIT: 0.5}, hog={USAGE: 0.5}, decoy={USAGE: 1.0}) for t in range(2)]
    assert by_correlation([*calm, *harmed], "victim") == {"cpu": "hog"}
    assert by_correlation(calm, "victim") == {}


def test_a_statement_opens_after_two_of_three_and_closes_after_three_calm_ones() -> None:
    uses = [0.0, 0.9, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0]
    spans = [span(float(t), victim={}, hog={USAGE: use}) for t, use in enumerate(uses)]
    told = told_by(by_usage, spans, ["victim"], PATHS)
    assert [(line.time, line.state) for line in told] == [(3.0, VerdictState.OPEN), (6.0, VerdictState.CLOSE)]
    assert told[0].victim == "/top/victim"
    assert told[0].culprits[0].path == "/top/hog"


def test_another_culprit_is_an_update() -> None:
    users = ["hog", "hog", "decoy"]
    spans = [Span(float(t), {"victim": {}, user: {USAGE: 1.0}}) for t, user in enumerate(users)]
    told = told_by(by_usage, spans, ["victim"], PATHS)
    assert [(line.state, line.culprits[0].path) for line in told] == [
        (VerdictState.OPEN, "/top/hog"),
        (VerdictState.UPDATE, "/top/decoy"),
    ]


def test_silence_is_silence() -> None:
    spans = [span(float(t), victim={}) for t in range(5)]
    assert all(told_by(rule, spans, ["victim"], PATHS) == [] for rule in PEERS.values())
