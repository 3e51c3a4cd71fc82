"""Amplification of a node's allocatable on its kubelet's status."""

from collections.abc import Mapping

import msgspec
import pytest

from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import Document, Outcome, review

RATIO = "node.koordinator.sh/resource-amplification-ratio"
RAW = "node.koordinator.sh/raw-allocatable"


def node(allocatable: Mapping[str, str], **annotations: str) -> Document:
    marks = {"ratio": RATIO, "raw": RAW}
    return {
        "metadata": {"name": "n", "annotations": {marks[name]: text for name, text in annotations.items()}},
        "status": {"allocatable": dict(allocatable), "capacity": {"cpu": "16"}},
    }


def reported(new: Document, old: Document) -> Outcome:
    return review(
        "/mutate-node-status",
        ClusterView(),
        obj=new,
        old=old,
        resource=("", "nodes"),
        sub_resource="status",
        namespace="",
        user="system:node:n",
    )


def amplified(new: Document, old: Document) -> Document:
    done = reported(new, old)
    assert done.allowed
    assert done.object is not None
    return done.object


def test_the_first_status_keeps_what_the_kubelet_reported() -> None:
    plain = {"cpu": "10001m", "memory": "1000", "pods": "110"}
    stored = amplified(node(plain, ratio='{"cpu":1.5,"memory":2}'), node(plain, ratio="{}"))
    assert stored["status"]["allocatable"] == {"cpu": "15001m", "memory": "2000", "pods": "110"}
    assert stored["status"]["capacity"] == {"cpu": "16"}
    assert msgspec.json.decode(stored["metadata"]["annotations"][RAW]) == {"cpu": "10001m", "memory": "1000"}


def test_a_kubelet_reports_again_and_others_write_what_is_stored() -> None:
    ratio, raw = '{"cpu":1.5}', '{"cpu":"10","memory":"1Gi"}'
    stored = node({"cpu": "15", "memory": "1Gi"}, ratio=ratio, raw=raw)
    for allocatable in ({"cpu": "10", "memory": "1Gi"}, {"cpu": "15", "memory": "1Gi"}):
        again = amplified(node(allocatable, ratio=ratio, raw=raw), stored)
        assert again == stored, "neither a second amplification nor a lost one"
    grown = amplified(node({"cpu": "12", "memory": "1Gi"}, ratio=ratio, raw=raw), stored)
    assert grown["status"]["allocatable"]["cpu"] == "18"


def test_a_ratio_that_is_taken_away_leaves_nothing_amplified() -> None:
    raw = '{"cpu":"10"}'
    stored = node({"cpu": "15"}, ratio='{"cpu":1.5}', raw=raw)
    assert amplified(node({"cpu": "15"}, ratio='{"cpu":1}', raw=raw), stored)["status"]["allocatable"] == {"cpu": "10"}
    cleaned = amplified(node({"cpu": "10"}, raw=raw), stored)
    assert cleaned["metadata"]["annotations"] == {}
    assert reported(node({"cpu": "10"}), stored).patch == []


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param({"ratio": "["}, id="no-json"),
        pytest.param({"ratio": '{"cpu":-1}'}, id="negative"),
        pytest.param({"ratio": '{"cpu":1e9}'}, id="absurd"),
        pytest.param({"ratio": '{"cpu":"2"}'}, id="text"),
        pytest.param({"ratio": '{"cpu":2}', "raw": "x"}, id="raw-no-json"),
        pytest.param({"ratio": '{"cpu":2}', "raw": '{"cpu":"many"}'}, id="raw-no-quantity"),
    ],
)
def test_a_status_is_never_refused(marks: dict[str, str]) -> None:
    done = reported(node({"cpu": "10"}, **marks), node({"cpu": "10"}, **marks))
    assert done.allowed
    assert done.patch == []
    assert "not amplified" in done.warnings[0]
