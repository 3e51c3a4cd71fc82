"""Dashboards without Grafana: `python -m deploy.grafana.preview http://127.0.0.1:9090 FOLDER` writes a page for each.

The pages ask nothing of a network and show the time range that they were made of. They are Koord's own drawing of the
panels, for a look at a Prometheus that has no Grafana beside it.
"""

import argparse
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3

from api.pages.markup import escaped

from .board import Dashboard, Panel, Query
from .dashboards import dashboards

TIMEOUT_SECONDS = 30.0
POINTS = 120
"""Of one line."""
_COLOURS = (
    "#3d8bd3",
    "#e08a2e",
    "#3aa36c",
    "#c94f6d",
    "#8a6fd1",
    "#b8a12a",
    "#3bb0b5",
    "#d06ab4",
    "#7c8a97",
    "#6c9b2f",
    "#a0603c",
    "#4b5fa8",
)
MOST_SERIES = len(_COLOURS)
"""Of one panel; Grafana shows all."""
_STEP = 30
"""Pixels of a row of the grid."""
_STAMP = 90
"""Pixels of a time on the axis with those between it and the next."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line, bar or row of a panel."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[Point]
    """Unix seconds and values, oldest first."""

    @property
    def last(self) -> float:
        """Newest value."""
        return self.points[-1][1]


Answer = Callable[[Query, bool], Sequence[Series]]
"""Series of a query; the flag asks for the newest value alone."""


class Prometheus:
    """Asks over HTTP; variables of dashboards stand for everything."""

    def __init__(self, url: str, start: float, end: float, rate_seconds: int) -> None:
        self._url, self._start, self._end, self._rate_seconds = url.rstrip("/"), start, end, rate_seconds

    def answer(self, query: Query, at_once: bool) -> Sequence[Series]:
        """Return the series of a query. Raises OSError where Prometheus is not reached or refuses it."""
        expression = concrete(query.expression, self._rate_seconds)
        if at_once:
            found = self._ask("query", {"query": expression, "time": self._end})
        else:
            step = max(1.0, (self._end - self._start) / POINTS)
            asked = {"query": expression, "start": self._start, "end": self._end, "step": step}
            found = self._ask("query_range", asked)
        return [_series(row, query.legend) for row in found]

    def _ask(self, path: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        fields = {name: str(value) for name, value in parameters.items()}
        url = f"{self._url}/api/v1/{path}"
        try:
            response = urllib3.request("GET", url, fields=fields, timeout=TIMEOUT_SECONDS, retries=False)
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error
        if response.status != HTTPStatus.OK:
            raise OSError(f"{response.status}: {response.data[:200].decode(errors='replace')}")
        rows: list[dict[str, Any]] = json.loads(response.data)["data"]["result"]
        return rows


def concrete(expression: str, rate_seconds: int) -> str:
    """Return a query with everything selected and a range for its rates."""
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", f"{rate_seconds}s"))


def _series(row: Mapping[str, Any], legend: str) -> Series:
    labels = {name: text for name, text in row["metric"].items() if name not in ("__name__", "job")}
    points = [(float(at), float(value)) for at, value in row.get("values") or [row["value"]]]
    name = _named(legend, labels) if legend else ", ".join(labels.values())
    return Series(name.strip() or "value", labels, [p for p in points if math.isfinite(p[1])])


def _named(legend: str, labels: Mapping[str, str]) -> str:
    """Fill a legend in; of labels with slashes between them, those that a series has."""

    def filled(found: re.Match[str]) -> str:
        names = re.findall(r"\w+", found[0])
        return "/".join(labels[name] for name in names if labels.get(name))

    return re.sub(r" +", " ", re.sub(r"\{\{\w+\}\}(?:/\{\{\w+\}\})*", filled, legend))


def amount(value: float, unit: str) -> str:
    """Return a value as people read it."""
    if unit in ("bytes", "Bps"):
        return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB")) + ("/s" if unit == "Bps" else "")
    if unit == "percentunit":
        return f"{value * 100:.3g} %" if abs(value) < 10 else f"{value * 100:.0f} %"
    if unit == "s":
        for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return f"{value / 1e-9:.3g} ns" if value else "0 s"
    if unit == "bool":
        return "yes" if value else "no"
    suffix = {"ops": "/s", "reqps": "/s"}.get(unit, "")
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P")).rstrip() + suffix


def _scaled(value: float, base: int, names: Sequence[str]) -> str:
    size = 0
    while abs(value) >= base and size < len(names) - 1:
        value, size = value / base, size + 1
    return f"{value:.3g} {names[size]}" if abs(value) < 999.5 else f"{value:.0f} {names[size]}"


def page(board: Dashboard, answer: Answer) -> str:
    """Return a dashboard as one HTML document."""
    rows = "".join(
        f'<h2>{escaped(title)}</h2><div class="grid">{"".join(_panel(panel, answer) for panel in panels)}</div>'
        for title, panels in board.rows
    )
    head = f"<h1>{escaped(board.title)}</h1><p>{escaped(board.about)}</p>"
    title = escaped(board.title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<body>{head}{rows}</body></html>\n"
    )


def _panel(panel: Panel, answer: Answer) -> str:
    at_once = panel.kind != "timeseries"
    found = [each for query in panel.queries for each in answer(query, at_once) if each.points]
    drawn = _DRAW[panel.kind](panel, found) if found else _nothing(panel)
    # Bars and tables have a row for each series and no axis: what is below them would be empty.
    high = 0 if panel.kind in ("bargauge", "table") and found else panel.height * _STEP
    style = f"grid-column:span {panel.width};min-height:{high}px"
    about = f' title="{escaped(panel.about)}"' if panel.about else ""
    return f'<section style="{style}"><h3{about}>{escaped(panel.title)}</h3>{drawn}</section>'


def _nothing(panel: Panel) -> str:
    """What a panel without data says; one that is often empty, why."""
    why = f": {panel.about[:1].lower()}{panel.about[1:].rstrip('.')}" if panel.only_faults and panel.about else ""
    return f'<div class="none">no data{escaped(why)}</div>'


def _round(most: float, panel: Panel) -> float:
    """The upper end of an axis whose quarters are short numbers in the unit that is written."""
    if most <= 0:
        return 1.0
    base = 1024 if panel.unit in ("bytes", "Bps") else 1000
    unit = base ** math.floor(math.log(most, base)) if most >= 1 or base == 1000 else 1.0
    unit /= 100 if panel.unit == "percentunit" else 1
    step = most / unit / 4
    if base == 1024 and step < 1:
        return 4 * unit * next(each for each in (0.25, 0.5, 1) if each >= step * (1 - 1e-9))
    size = 10.0 ** math.floor(math.log10(step))
    return (
        4 * unit * size * next(each for each in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if each * size >= step * (1 - 1e-9))
    )


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _stat(panel: Panel, found: Sequence[Series]) -> str:
    return f'<div class="stat">{escaped(amount(found[0].last, panel.unit))}</div>'


def _bars(panel: Panel, found: Sequence[Series]) -> str:
    shown = sorted(found, key=lambda each: -each.last)[:MOST_SERIES]
    most = panel.most or max(each.last for each in shown) or 1.0
    rows = []
    for number, each in enumerate(shown):
        share = min(100.0, max(0.0, 100 * each.last / most))
        rows.append(
            f'<span class="name">{escaped(each.name)}</span>'
            f'<span class="bar"><i style="width:{share:.1f}%;background:{_colour(number)}"></i></span>'
            f"<b>{escaped(amount(each.last, panel.unit))}</b>"
        )
    return f'<div class="bars">{"".join(rows)}</div>'


def _table(panel: Panel, found: Sequence[Series]) -> str:
    shown = sorted(found, key=lambda each: -each.last)[:MOST_SERIES]
    names = [name for name in dict.fromkeys(name for each in shown for name in each.labels) if name != "instance"]
    head = "".join(f"<th>{escaped(name)}</th>" for name in [*names, "value"])
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escaped(each.labels.get(name, ''))}</td>" for name in names)
        + f"<td>{escaped(amount(each.last, panel.unit))}</td></tr>"
        for each in shown
    )
    return f'<div class="table"><table><tr>{head}</tr>{rows}</table></div>'


def _lines(panel: Panel, found: Sequence[Series]) -> str:
    largest = sorted(found, key=lambda each: -max(value for _, value in each.points))[:MOST_SERIES]
    shown = [each for each in found if each in largest]  # as the queries name them: a class has one colour everywhere
    times = sorted({at for each in shown for at, _ in each.points})
    values = [dict(each.points) for each in shown]
    stack = [[0.0] * len(times)]
    for each in values:
        base = stack[-1] if panel.stacked else stack[0]
        stack.append(
            [below + each.get(at, 0.0 if panel.stacked else math.nan) for below, at in zip(base, times, strict=True)]
        )
    top = panel.most or _round(max((value for line in stack for value in line if value == value), default=0.0), panel)
    wide, high, left, below = panel.width * 60, panel.height * _STEP - 58 - 17 * min(len(shown), 4), 62, 16
    plot_wide, plot_high = wide - left - 8, max(40, high - below - 6)
    span = (times[-1] - times[0]) or 1.0

    def at_x(at: float) -> float:
        return left + plot_wide * (at - times[0]) / span

    def at_y(value: float) -> float:
        return 6 + plot_high * (1 - min(value / top, 1.0))

    parts = []
    for step in range(5):
        value = top * step / 4
        y = at_y(value)
        parts.append(f'<line x1="{left}" x2="{wide - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text x="{left - 6}" y="{y + 3:.1f}" text-anchor="end">{escaped(amount(value, panel.unit))}</text>'
        )
    last = min(4, plot_wide // _STAMP)
    for step in range(last + 1):
        at = times[0] + span * step / last
        anchor = "start" if step == 0 else "end" if step == last else "middle"
        stamp = time.strftime("%H:%M:%S" if span < 3600 else "%H:%M", time.gmtime(at))
        parts.append(f'<text x="{at_x(at):.1f}" y="{plot_high + 20}" text-anchor="{anchor}">{stamp}</text>')
    for number in range(len(shown)):
        colour, line = _colour(number), stack[number + 1]
        kept = [(at_x(at), at_y(value)) for at, value in zip(times, line, strict=True) if value == value]
        if panel.stacked and len(kept) > 1:
            under = [(at_x(at), at_y(value)) for at, value in zip(times, stack[number], strict=True)][::-1]
            shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*kept, *under])
            parts.append(f'<polygon points="{shape}" fill="{colour}" opacity="0.35"/>')
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in kept)
        parts.append(f'<polyline points="{shape}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    legend = "".join(
        f'<tr><td><i style="background:{_colour(number)}"></i>{escaped(each.name)}</td>'
        f"<td>{escaped(amount(sum(v for _, v in each.points) / len(each.points), panel.unit))}</td>"
        f"<td>{escaped(amount(max(v for _, v in each.points), panel.unit))}</td></tr>"
        for number, each in enumerate(shown)
    )
    picture = f'<svg viewBox="0 0 {wide} {plot_high + 24}">{"".join(parts)}</svg>'
    return f'{picture}<div class="legend"><table><tr><th></th><th>mean</th><th>max</th></tr>{legend}</table></div>'


_DRAW: Mapping[str, Callable[[Panel, Sequence[Series]], str]] = {
    "stat": _stat,
    "bargauge": _bars,
    "table": _table,
    "timeseries": _lines,
}

_STYLE = (Path(__file__).parent / "preview.css").read_text(encoding="utf-8")


def write_pages(folder: Path, prometheus: Prometheus) -> list[Path]:
    """Write a page for each dashboard."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for board in dashboards():
        files.append(folder / f"{board.name}.html")
        files[-1].write_text(page(board, prometheus.answer), encoding="utf-8")
    return files


def main() -> None:
    """Ask a Prometheus and write the pages."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.preview", description=main.__doc__)
    parser.add_argument("url", help="Prometheus, as http://127.0.0.1:9090")
    parser.add_argument("folder", type=Path, help="where the pages go")
    parser.add_argument("--minutes", type=float, default=60.0, help="time range up to now (60)")
    parser.add_argument("--rate-seconds", type=int, default=120, help="range of rates: four scrapes (120)")
    asked = parser.parse_args()
    now = time.time()
    try:
        files = write_pages(asked.folder, Prometheus(asked.url, now - 60 * asked.minutes, now, asked.rate_seconds))
    except OSError as error:
        parser.exit(1, f"{asked.url}: {error}; is a Prometheus there?\n")
    for file in files:
        print(file)  # noqa: T201


if __name__ == "__main__":
    main()
