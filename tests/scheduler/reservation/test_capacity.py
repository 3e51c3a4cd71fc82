"""Fitting into a reservation by policy, and choosing the best one."""

from dataclasses import replace

import pytest

from scheduler.reservation.capacity import conflicting_policies, nominate, score, shortfall
from scheduler.reservation.value import Policy, Reservation

GIB = 1 << 30
KEPT = Reservation("r", allocatable={"cpu": 4000, "gpu": 2}, allocated={"cpu": 1000})


@pytest.mark.parametrize(
    ("request_", "free", "policy", "names", "expected"),
    [
        pytest.param({"cpu": 3000}, {}, Policy.ALIGNED, (), None, id="the remaining amount"),
        pytest.param({"cpu": 3001}, {}, Policy.ALIGNED, (), "cpu", id="not more on a full node"),
        pytest.param({"cpu": 5000}, {"cpu": 2000}, Policy.ALIGNED, (), None, id="aligned adds the node's"),
        pytest.param({"cpu": 5000}, {"cpu": 2000}, Policy.DEFAULT, (), None, id="so does the default"),
        pytest.param({"cpu": 5000}, {"cpu": 2000}, Policy.RESTRICTED, (), "cpu", id="restricted does not"),
        pytest.param({"cpu": 3000}, {"cpu": 2000}, Policy.RESTRICTED, (), None, id="restricted fits"),
        pytest.param({"cpu": 5000}, {"cpu": 2000}, Policy.RESTRICTED, ("gpu",), None, id="only gpu is restricted"),
        pytest.param({"disk": 1}, {"disk": 1}, Policy.RESTRICTED, (), None, id="not reserved, not restricted"),
        pytest.param({"disk": 1}, {}, Policy.ALIGNED, (), "disk", id="not reserved, not free"),
        pytest.param({"cpu": 2500}, {"cpu": -600}, Policy.ALIGNED, (), "cpu", id="an over-full node takes from it"),
        pytest.param({"cpu": 0}, {"cpu": -9000}, Policy.ALIGNED, (), None, id="nothing asked, nothing checked"),
    ],
)
def test_shortfall(
    request_: dict[str, int], free: dict[str, int], policy: Policy, names: tuple[str, ...], expected: str | None
) -> None:
    reservation = replace(KEPT, policy=policy, restricted_names=frozenset(names))
    assert shortfall(request_, free, reservation) == expected


def test_policies_that_conflict() -> None:
    default, aligned, restricted = (replace(KEPT, policy=policy) for policy in Policy)
    assert conflicting_policies([default, aligned])
    assert not conflicting_policies([aligned, restricted])
    assert not conflicting_policies([default, default])


def test_score_is_how_full_it_gets() -> None:
    half = Reservation(
        "h",
        allocatable={"cpu": 10_000, "memory": 20 * GIB, "gpu": 0},
        allocated={"cpu": 4000, "memory": 5 * GIB},
    )
    assert score({"cpu": 1000, "memory": 5 * GIB}, half) == 50
    assert score({"cpu": 7000, "memory": 5 * GIB}, half) == 25
    assert score({"cpu": 1000}, Reservation("empty")) == 0


def test_the_fullest_is_nominated_unless_orders_say_otherwise() -> None:
    wide = Reservation("wide", allocatable={"cpu": 8000})
    tight = Reservation("tight", allocatable={"cpu": 2000})
    assert nominate({"cpu": 1000}, [wide, tight]) is tight
    second, first = replace(wide, order=2), replace(wide, name="first", order=1)
    assert nominate({"cpu": 1000}, [tight, second, first]) is first
    assert nominate({"cpu": 1000}, []) is None
