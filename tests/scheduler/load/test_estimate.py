"""Published estimates of pods by class, limit and factor."""

import pytest

from api.qos import PriorityBand
from scheduler.load.estimate import ScalingFactors, estimated_usage

GIB = 1 << 30
FOUR = {"cpu": 4000, "memory": 8 * GIB}
BATCH = {"kubernetes.io/batch-cpu": 4000, "kubernetes.io/batch-memory": 8 * GIB}
PROD = PriorityBand.PROD


@pytest.mark.parametrize(
    ("requests", "limits", "band", "percents", "expected"),
    [
        pytest.param({}, {}, PROD, (85, 70), (250, 209715200), id="asks for nothing"),
        pytest.param(FOUR, FOUR, PROD, (85, 70), (3400, 6012954214), id="request equals limit"),
        pytest.param(FOUR, FOUR | {"cpu": 8000}, PROD, (85, 70), (6800, 6012954214), id="limit above request"),
        pytest.param(FOUR, FOUR, PROD, (110, 70), (4000, 6012954214), id="cpu capped by the limit"),
        pytest.param(FOUR, FOUR, PROD, (85, 110), (3400, 8589934592), id="memory capped by the limit"),
        pytest.param(BATCH, BATCH, PriorityBand.BATCH, (85, 70), (3400, 6012954214), id="batch"),
        pytest.param(FOUR, {}, PROD, (80, 80), (3200, 6871947674), id="only requests"),
        pytest.param({}, {"cpu": 16000, "memory": 32 * GIB}, PROD, (85, 70), (13600, 24051816858), id="only limits"),
        pytest.param(FOUR, {}, PROD, (110, 110), (4400, 9448928051), id="no limit, no cap"),
        pytest.param({}, {}, PriorityBand.BATCH, (85, 70), (250, 209715200), id="batch asks for nothing"),
        pytest.param({}, {}, PriorityBand.MID, (85, 70), (0, 0), id="mid asks for nothing"),
        pytest.param(FOUR, FOUR, PriorityBand.FREE, (85, 70), (0, 0), id="free has no resources"),
        pytest.param(
            {"kubernetes.io/mid-cpu": 1000, "kubernetes.io/mid-memory": GIB},
            {},
            PriorityBand.MID,
            (85, 70),
            (850, 751619277),
            id="mid",
        ),
    ],
)
def test_estimated_usage(
    requests: dict[str, int],
    limits: dict[str, int],
    band: PriorityBand,
    percents: tuple[int, int],
    expected: tuple[int, int],
) -> None:
    factors = ScalingFactors().overridden({"cpu": percents[0], "memory": percents[1]})
    usage = estimated_usage(requests, limits, band=band, factors=factors)
    assert (usage["cpu"], usage["memory"]) == expected
