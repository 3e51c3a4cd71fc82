"""Blame that is shared, against what was used."""

import pytest

from api.verdicts import Culprit, How, Severity, Verdict, VerdictState
from bench.detect.claims import Claim
from bench.detect.measures import USAGE, Sample
from bench.detect.shares import Division, division
from tests.verdicts import make_verdict

PATHS = {"victim": "/victim", "big": "/big", "small": "/small"}
SHARED = Claim("victim", "cpu", "contention", "big", beside="small")


def verdict(big: float, small: float, state: VerdictState = VerdictState.OPEN, victim: str = "/victim") -> Verdict:
    return make_verdict(
        victim,
        time=1.0,
        state=state,
        lost=0.5,
        severity=Severity.LOW,
        culprits=tuple(Culprit(path, share, How.DIRECT) for path, share in (("/big", big), ("/small", small)) if share),
    )


def samples(big: float, small: float) -> list[Sample]:
    before = Sample(0.0, {"victim": {}})
    both = [Sample(t, {"big": {USAGE: big * t}, "small": {USAGE: small * t}}) for t in (1.0, 11.0)]
    return [before, *both]


def test_told_and_used() -> None:
    told = [verdict(0.6, 0.3), verdict(0.4, 0.1, VerdictState.UPDATE)]
    found = division(SHARED, told, samples(0.7, 0.3), PATHS)
    assert found is not None
    assert found.told == pytest.approx((2 / 3 + 0.8) / 2)
    assert found.used == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        pytest.param(Claim("victim", "cpu", "contention", "big"), [verdict(0.6, 0.3)], id="not-shared"),
        pytest.param(SHARED, [verdict(0.6, 0.3, VerdictState.CLOSE)], id="closings-say-nothing"),
        pytest.param(SHARED, [verdict(0.6, 0.3, victim="/big")], id="another-victim"),
        pytest.param(SHARED, [verdict(0.0, 0.0)], id="neither-is-named"),
    ],
)
def test_nothing_to_divide(claim: Claim, told: list[Verdict]) -> None:
    assert division(claim, told, samples(0.7, 0.3), PATHS) is None


def test_one_alone_is_all_of_it() -> None:
    assert division(SHARED, [verdict(0.5, 0.0)], samples(1.0, 0.0), PATHS) == Division(1.0, 1.0)
