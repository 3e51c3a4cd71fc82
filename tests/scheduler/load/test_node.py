"""Assumed usage of a node: reports, percentiles and pods too new to show in them."""

from dataclasses import replace

import pytest

from scheduler.load.node import Assigned, LoadScope, LoadView, NodeLoad, PodLoad, expired, used

NODE = LoadView()
PROD = LoadView(LoadScope.PROD)
OLD = PodLoad({"cpu": 800}, prod=True)
LOAD = NodeLoad(
    update_seconds=1000.0,
    usage={"cpu": 5000},
    aggregated={("p95", 300.0): {"cpu": 7000}, ("p95", 600.0): {"cpu": 6500}, ("p50", 1800.0): {"cpu": 4000}},
    system={"cpu": 300},
    pods={"ns/old": OLD, "ns/other": PodLoad({"cpu": 100}, prod=False)},
)


def pod(name: str, since: float, *, estimate: int = 1000, prod: bool = True, until: float | None = None) -> Assigned:
    return Assigned(f"ns/{name}", {"cpu": estimate}, since, prod, until)


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        pytest.param([], 5000, id="nothing placed"),
        pytest.param([pod("old", 500)], 5000, id="shows in the report"),
        pytest.param([pod("new", 500)], 6000, id="has no figures"),
        pytest.param([pod("old", 940)], 5000, id="placed as the interval began"),
        pytest.param([pod("old", 941)], 5200, id="placed within the interval: the excess"),
        pytest.param([pod("old", 941, estimate=700)], 5000, id="no negative excess"),
        pytest.param([pod("old", 500, until=1001.0)], 5200, id="to be estimated for longer"),
        pytest.param([pod("old", 500, until=1000.0)], 5000, id="estimated for long enough"),
        pytest.param([pod("new", 990), pod("newer", 995)], 7000, id="several"),
    ],
)
def test_average_usage(assigned: list[Assigned], expected: int) -> None:
    assert used(NODE, LOAD, assigned) == {"cpu": expected}


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        pytest.param(LoadView(aggregation="p95", window_seconds=300.0), 8000, id="a window"),
        pytest.param(LoadView(aggregation="p95"), 7500, id="the longest window of the type"),
        pytest.param(LoadView(aggregation="p99"), 6000, id="type missing, any window: the average"),
        pytest.param(LoadView(aggregation="p95", window_seconds=900.0), 2000, id="window missing: estimates only"),
    ],
)
def test_percentiles(view: LoadView, expected: int) -> None:
    assert used(view, LOAD, [pod("old", 500), pod("new", 999)]) == {"cpu": expected}


@pytest.mark.parametrize(
    ("view", "assigned", "expected"),
    [
        pytest.param(PROD, [pod("old", 500)], 800, id="reported as prod"),
        pytest.param(PROD, [pod("old", 990)], 1000, id="reported and new"),
        pytest.param(PROD, [pod("new", 990)], 1000, id="not reported"),
        pytest.param(PROD, [pod("other", 500)], 1000, id="reported as something else"),
        pytest.param(PROD, [pod("old", 500, prod=False)], 0, id="not a prod pod"),
        pytest.param(replace(PROD, with_system=True), [pod("old", 500)], 1100, id="with the system"),
    ],
)
def test_prod_usage(view: LoadView, assigned: list[Assigned], expected: int) -> None:
    assert used(view, LOAD, assigned).get("cpu", 0) == expected


def test_expiry() -> None:
    assert not expired(LOAD, 1179.9, 180)
    assert expired(LOAD, 1180.0, 180)
    assert expired(NodeLoad(None), 0.0, 180)
