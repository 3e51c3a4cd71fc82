"""Pages of dashboards without Grafana: every kind of panel is drawn, names of strangers stay text."""

import re
from collections.abc import Sequence

import pytest

from deploy.grafana.board import Dashboard, Panel, Query
from deploy.grafana.dashboards import dashboards
from deploy.grafana.preview import Series, _named, _round, amount, concrete, page

HOSTILE = "<script>alert(1)</script>\u202e"


def answers(query: Query, at_once: bool) -> Sequence[Series]:
    points = [(60.0 * step, float(step)) for step in range(1 if at_once else 20)]
    return [Series(HOSTILE, {"pod": HOSTILE}, points), Series("other", {"pod": "web"}, points)]


def nothing(query: Query, at_once: bool) -> Sequence[Series]:
    return []


@pytest.mark.parametrize("board", dashboards(), ids=lambda board: board.name)
def test_every_panel_of_every_dashboard_is_drawn(board: Dashboard) -> None:
    text = page(board, answers)
    assert text.count("<section") == len(list(board.panels))
    assert "no data" not in text
    assert "<script" not in text
    assert "\u202e" not in text


def test_a_panel_without_data_says_so() -> None:
    board = Dashboard("b", "B", "", [("row", [Panel("empty", [Query("up")])])])
    assert "no data" in page(board, nothing)


def test_a_panel_that_is_often_empty_says_why() -> None:
    board = Dashboard(
        "b", "B", "", [("row", [Panel("p", [Query("up")], only_faults=True, about="Empty until it rains.")])]
    )
    assert "no data: empty until it rains<" in page(board, nothing)


@pytest.mark.parametrize(("width", "stamps"), [(6, 4), (8, 5), (24, 5)])
def test_times_on_a_narrow_axis_do_not_overlap(width: int, stamps: int) -> None:
    line = Series("p", {}, [(0.0, 1.0), (60.0, 2.0)])
    board = Dashboard("b", "B", "", [("row", [Panel("p", [Query("up")], width=width)])])
    assert len(re.findall(r"\d\d:\d\d:\d\d<", page(board, lambda _query, _at_once: [line]))) == stamps


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        pytest.param(0.25, "percentunit", "25 %", id="share"),
        pytest.param(0.0023, "s", "2.3 ms", id="milliseconds"),
        pytest.param(0.0, "s", "0 s", id="zero"),
        pytest.param(3 * 1024**3, "bytes", "3 GiB", id="bytes"),
        pytest.param(1010 * 1024.0**2, "bytes", "1010 MiB", id="nearly-the-next-unit"),
        pytest.param(2048.0, "Bps", "2 KiB/s", id="bytes-a-second"),
        pytest.param(1500.0, "ops", "1.5 k/s", id="rate"),
        pytest.param(1.5, "cores", "1.5", id="cores"),
        pytest.param(0.0, "bool", "no", id="flag"),
    ],
)
def test_amounts_read_as_people_write_them(value: float, unit: str, expected: str) -> None:
    assert amount(value, unit) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"namespace": "shop", "pod": "web-0", "container": "web"}, "read shop/web-0/web", id="container"),
        pytest.param({"cgroup": "/batch.slice"}, "read /batch.slice", id="cgroup"),
        pytest.param({"cgroup": "/"}, "read /", id="root"),
        pytest.param({"namespace": "shop", "pod": "web-0", "cgroup": "/k"}, "read shop/web-0 /k", id="pod"),
    ],
)
def test_a_legend_has_slashes_between_the_labels_that_are_there(labels: dict[str, str], expected: str) -> None:
    assert _named("read {{namespace}}/{{pod}}/{{container}} {{cgroup}}", labels).strip() == expected


@pytest.mark.parametrize(
    ("most", "unit", "end"),
    [
        pytest.param(2.37, "cores", 2.4, id="cores"),
        pytest.param(0.111, "s", 0.12, id="milliseconds"),
        pytest.param(1.12, "percentunit", 1.2, id="share"),
        pytest.param(23.5 * 1024**3, "bytes", 24 * 1024**3, id="bytes"),
        pytest.param(2.57 * 1024**3, "bytes", 4 * 1024**3, id="parts-of-a-unit"),
        pytest.param(8.43, "s", 10.0, id="seconds"),
        pytest.param(0.0, "ops", 1.0, id="nothing"),
    ],
)
def test_an_axis_ends_where_its_quarters_are_short(most: float, unit: str, end: float) -> None:
    assert _round(most, Panel("p", [Query("up")], unit)) == pytest.approx(end)


def test_variables_stand_for_everything() -> None:
    query = 'rate(x{instance=~"$instance"}[$__rate_interval])'
    assert concrete(query, 8) == 'rate(x{instance=~".*"}[8s])'
