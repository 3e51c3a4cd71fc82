"""Koordinator's tables of pre-allocation: which pods a reservation takes on a node, and the node's score."""

from typing import Any

import pytest

from api.kube.resources import Resources
from scheduler.reservation.pre_allocation import Candidate, pods_to_take, worth
from scheduler.reservation.value import Policy, PreAllocation, Reservation
from tests.scheduler.upstream.reading import table

CASES = table("pre_allocation")["cases"]


def amounts(cores: int, gibibytes: int) -> Resources:
    return {"cpu": 1000 * cores, "memory": gibibytes << 30} if cores or gibibytes else {}


def taken(case: dict[str, Any], prefer_none: bool) -> tuple[list[str] | None, int]:
    how = PreAllocation(case.get("cluster", False), case.get("multiple", False), case.get("required", False))
    reservation = Reservation("r", request=amounts(*case["reserve"]), policy=Policy.RESTRICTED, pre_allocation=how)
    pods = [Candidate(name, amounts(cores, gib), priority) for name, cores, gib, priority in case["pods"]]
    found = pods_to_take(reservation.request, reservation, pods, amounts(*case["free"]), prefer_none=prefer_none)
    return (None, 0) if found is None else ([each.uid for each in found], worth(reservation, found))


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_pods_taken(case: dict[str, Any]) -> None:
    assert taken(case, prefer_none=False) == (case["takes"], case.get("score", 0))
    spare = (case["spare"], case["spare_score"]) if "spare" in case else (case["takes"], case.get("score", 0))
    assert taken(case, prefer_none=True) == spare
