"""Dashboards: the JSON is that of the code, panels fit the grid, and every series exists in a program of ours."""

import json
import re
from typing import Any

import pytest
import yaml

from deploy.grafana.__main__ import FOLDER
from deploy.grafana.board import WIDTH, Dashboard, text
from deploy.grafana.dashboards import dashboards
from tests.deploy.test_alerts import ALERTS, ROOT

SERIES = re.compile(r"\b((?:koord|scheduler|descheduler)_\w+)")
HIERARCHICAL = re.compile(r"koord_cgroup_(?:cpu_usage_seconds_total|memory_\w+_bytes)")
"""Series of a cgroup that have those of the cgroups in it."""


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Every series that the programs expose, histograms by their family: the page is made from their code."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    return set(re.findall(r"`(\w+)`", "\n".join(line for line in page.splitlines() if line.startswith("|"))))


@pytest.mark.parametrize("board", dashboards(), ids=lambda board: board.name)
class TestDashboard:
    def test_its_file_is_up_to_date(self, board: Dashboard) -> None:
        assert (FOLDER / f"{board.name}.json").read_text() == text(board), "run python -m deploy.grafana"

    def test_panels_fit_the_grid_and_do_not_overlap(self, board: Dashboard) -> None:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(text(board))["panels"]:
            place: dict[str, int] = panel["gridPos"]
            assert place["x"] + place["w"] <= WIDTH
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, panel["title"]
            taken |= cells

    def test_its_series_exist(self, board: Dashboard, known: set[str]) -> None:
        for panel in board.panels:
            for query in panel.queries:
                named = {re.sub(r"_(bucket|count|sum)$", "", name) for name in SERIES.findall(query.expression)}
                assert named <= known, panel.title

    def test_every_line_has_a_name(self, board: Dashboard) -> None:
        drawn = [panel for panel in board.panels if panel.kind == "timeseries"]
        assert not [panel.title for panel in drawn if not all(query.legend for query in panel.queries)]

    def test_rates_of_seconds_alone_are_seconds(self, board: Dashboard) -> None:
        for panel in (each for each in board.panels if each.unit == "s"):
            rates = [name for query in panel.queries for name in re.findall(r"rate\((\w+)", query.expression)]
            assert not [name for name in rates if "_seconds" not in name], panel.title

    def test_what_is_stacked_counts_a_cgroup_once(self, board: Dashboard) -> None:
        for panel in (each for each in board.panels if each.stacked):
            for query in panel.queries:
                assert not HIERARCHICAL.search(query.expression) or 'container!=""' in query.expression, panel.title


def test_the_overview_begins_with_the_use_of_a_day() -> None:
    first = list(dashboards()[0].panels)[:5]
    assert [panel.title for panel in first] == ["All nodes, mean of a day", "Total, now", "Prod", "Batch", "Mid"]


def test_no_file_is_left_of_a_dropped_dashboard() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == {board.name for board in dashboards()}


def test_the_series_of_alerts_exist(known: set[str]) -> None:
    groups: list[dict[str, Any]] = yaml.safe_load((ALERTS / "koord.yaml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        named = {re.sub(r"_(bucket|count|sum)$", "", name) for name in SERIES.findall(rule["expr"])}
        assert named <= known, rule["alert"]
