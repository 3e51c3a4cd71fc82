"""Dashboards as values: panels in rows, and the JSON that Grafana imports (schema 39, Grafana 10 and later)."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTH = 24
"""Columns of Grafana's grid."""
_SCHEMA = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Query:
    """A PromQL expression; `legend` names its series and may use their labels as {{label}}."""

    expression: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel. `unit` is an id of Grafana's units; `kind` is timeseries, stat, table or bargauge."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    about: str = ""
    """What the reader should see in it."""
    stacked: bool = False
    most: float | None = None
    """Upper end of the axis."""
    needs: str = ""
    """Capability of the host without which it stays empty, by its name in `koord_capability`."""
    only_faults: bool = False
    """Series that exist after a fault alone: the panel of a healthy system is empty."""


@dataclass(frozen=True)
class Variable:
    """A selection at the top of a dashboard: the values of one label."""

    name: str
    query: str
    many: bool = True


@dataclass(frozen=True)
class Dashboard:
    """Rows of panels; `name` is its uid and file."""

    name: str
    title: str
    about: str
    rows: Sequence[tuple[str, Sequence[Panel]]]
    variables: Sequence[Variable] = ()
    span: str = "now-6h"
    tags: Sequence[str] = field(default=("koord",))

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels in order."""
        for _, panels in self.rows:
            yield from panels


def document(board: Dashboard) -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in board.rows:
        panels.append(
            {
                "type": "row",
                "title": title,
                "id": len(panels) + 1,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            }
        )
        top += 1
        left, height = 0, 0
        for panel in row:
            if left + panel.width > WIDTH:
                left, top, height = 0, top + height, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return {
        "uid": board.name,
        "title": board.title,
        "description": board.about,
        "tags": list(board.tags),
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": board.span, "to": "now"},
        "templating": {"list": [_source_variable(), *map(_variable, board.variables)]},
        "links": [{"type": "dashboards", "tags": ["koord"], "title": "Koord", "asDropdown": True, "keepTime": True}],
        "panels": panels,
    }


def text(board: Dashboard) -> str:
    """Return the dashboard as the file's text."""
    return json.dumps(document(board), indent=1, sort_keys=True) + "\n"


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    options: dict[str, Any] = {}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"fillOpacity": 30 if panel.stacked else 8, "lineWidth": 1, "stacking": stacking}
        defaults["custom"]["showPoints"] = "never"
        legend = {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"]}
        options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    elif panel.kind in ("stat", "bargauge"):
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""}}
        if panel.kind == "bargauge":
            options |= {"orientation": "horizontal", "displayMode": "gradient"}
    made: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            _target(query, letter, panel.kind) for letter, query in zip("ABCDEFGH", panel.queries, strict=False)
        ],
    }
    if panel.kind == "table":
        hidden = {"Time": True, "__name__": True, "job": True}
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return made


def _target(query: Query, letter: str, kind: str) -> dict[str, Any]:
    at_once = query.instant or kind in ("table", "bargauge")
    made: dict[str, Any] = {"refId": letter, "expr": query.expression, "datasource": _SOURCE, "range": not at_once}
    if at_once:
        made["instant"] = True
    if kind == "table":
        made["format"] = "table"
    if query.legend:
        made["legendFormat"] = query.legend
    return made


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(variable: Variable) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": variable.name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": variable.many,
        "includeAll": variable.many,
    }
    if variable.many:
        made |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return made
