"""Verdicts from the extensions of a report; unreadable ones are passed over."""

from typing import Any

import msgspec
import pytest

from api.crds import NodeMetric
from scheduler.interference.verdicts import NodeVerdict, from_metric


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        pytest.param(None, (), id="absent"),
        pytest.param({"a": 1}, (), id="no list"),
        pytest.param([{"victim": "x"}], (), id="no resource"),
        pytest.param([{"resource": "luck"}], (), id="unknown resource"),
        pytest.param(
            [{"resource": "blockio"}], (NodeVerdict("block-io", "", (), 0.0, None),), id="the node's name for it"
        ),
        pytest.param(
            [
                {
                    "resource": "cpu",
                    "victim": "/batch.slice",
                    "culprits": ["Job/ns/etl"],
                    "lostSecondsPerSecond": 0.2,
                    "until": "1970-01-01T00:01:40Z",
                }
            ],
            (NodeVerdict("cpu", "/batch.slice", ("Job/ns/etl",), 0.2, 100.0),),
            id="full",
        ),
    ],
)
def test_extension_of_the_status(listed: Any, expected: tuple[NodeVerdict, ...]) -> None:
    extensions = {} if listed is None else {"interference": {"verdicts": listed}}
    metric = msgspec.convert({"status": {"extensions": extensions}}, NodeMetric)
    assert from_metric(metric) == expected


def test_extensions_of_pods() -> None:
    pods = [
        {"name": "web", "namespace": "ns", "extensions": {"interference": {"verdicts": [{"resource": "cache"}]}}},
        {"name": "odd", "namespace": "ns", "extensions": {"interference": 7}},
        {"name": "calm", "namespace": "ns"},
    ]
    metric = msgspec.convert({"status": {"podsMetric": pods}}, NodeMetric)
    assert from_metric(metric) == (NodeVerdict("cache", "ns/web", (), 0.0, None),)


def test_a_verdict_ends() -> None:
    verdict = NodeVerdict("cpu", "", (), 0.0, 100.0)
    assert verdict.live(99.9)
    assert not verdict.live(100.0)
    assert NodeVerdict("cpu", "", (), 0.0, None).live(1e12)
