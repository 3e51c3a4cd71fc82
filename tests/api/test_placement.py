"""The placement protocol: round trips, and requests that are refused before the scheduler sees them."""

from typing import Any

import msgspec
import pytest

from api.kube.meta import ObjectMeta
from api.kube.objects import Container, Pod, PodSpec, ResourceRequirements
from api.placement import MAX_PODS, PlacementAnswer, PlacementRequest, PodPlacement, Rejection, SimulatedPod

NEW = Pod(
    metadata=ObjectMeta(name="new", namespace="shop", labels={"app": "cart"}),
    spec=PodSpec(containers=[Container(name="main", resources=ResourceRequirements(requests={"cpu": "500m"}))]),
)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(PlacementRequest([SimulatedPod(uid="u-1")]), id="smallest-request"),
        pytest.param(
            PlacementRequest(
                [SimulatedPod(uid="u-1", excluded_nodes=["n1"]), SimulatedPod(pod=NEW)],
                gone_pods=["u-2"],
                excluded_nodes=["n2", "n3"],
            ),
            id="full-request",
        ),
        pytest.param(
            PlacementAnswer(
                [
                    PodPlacement("u-1", "shop", "cart", "n4", score=412, feasible_nodes=7),
                    PodPlacement(
                        "",
                        "shop",
                        "new",
                        message="0/9 nodes are available: 9 Insufficient cpu.",
                        rejections=[Rejection("Insufficient cpu", "NodeResourcesFit", 9, True)],
                    ),
                ],
                nodes=9,
                at_seconds=1_700_000_000.5,
                unknown_pods=["u-2"],
                unknown_nodes=["n3"],
            ),
            id="answer",
        ),
    ],
)
def test_a_value_survives_the_wire(value: Any) -> None:
    encoded = msgspec.json.encode(value)
    assert msgspec.json.decode(encoded, type=type(value)) == value
    assert msgspec.json.decode(encoded)["schema"] == "koord.placement/v1"


def test_an_answer_of_a_later_minor_schema_is_read() -> None:
    answer = msgspec.to_builtins(PlacementAnswer([], nodes=0, at_seconds=0.0)) | {"later_field": 1}
    assert msgspec.json.decode(msgspec.json.encode(answer), type=PlacementAnswer).nodes == 0


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"pods": []}, "length >= 1", id="nothing-to-place"),
        pytest.param({"pods": [{"uid": "u"}] * (MAX_PODS + 1)}, f"length <= {MAX_PODS}", id="too-many"),
        pytest.param({"pods": [{}]}, "exactly one of uid and pod", id="neither-uid-nor-pod"),
        pytest.param({"pods": [{"uid": "u", "pod": {}}]}, "exactly one of uid and pod", id="uid-and-pod"),
        pytest.param({"pods": [{"uid": "u"}], "schema": "koord.placement/v2"}, "schema", id="another-version"),
        pytest.param({"pods": [{"uid": "u"}], "exclude": []}, "exclude", id="unknown-field"),
        pytest.param({"pods": [{"uid": "u"}, {"uid": "u"}]}, "more than once", id="a-pod-twice"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.json.decode(msgspec.json.encode(document), type=PlacementRequest)
