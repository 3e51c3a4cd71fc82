"""`koordlet top`: the live view. Its rows, trends and lines come from `rows.py`, `trend.py` and `draw.py`.

Keys: arrows move, enter opens a cgroup, s sorts by the next column, a shows quiet cgroups too, p pauses, ? explains,
q quits. Only the lines on the screen are drawn, so a node of 500 cgroups costs no more than one of 20.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Static

from api.verdicts import Verdict
from api.window import Window
from koordlet.top.draw import CAUSE_STYLES, Columns, detail, heading, legend, line, seconds
from koordlet.top.rows import Order, TopRow, facts, latencies, ordered, rows
from koordlet.top.trend import Trend
from koordlet.top.verdicts import evidence, pane, room_for

NextWindow = Callable[[], Window | None]

TREND_SECONDS = 60.0
_AROUND = 4
"""Lines that are not cgroups: title, headings, legend, keys."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Source of open verdicts, and names of cgroup paths."""

    open_verdicts: Callable[[], Sequence[Verdict]] = tuple
    name_of: Callable[[str], str] = str


def run(next_window: NextWindow, interval_seconds: float, verdicts: Verdicts | None = None) -> int:
    """Show until the user quits; `next_window` measures and is called once an interval. Returns an exit code."""
    app = TopApp(next_window, interval_seconds, verdicts)
    app.run()
    return app.return_code or 0


class TopApp(App[None]):
    """The application: rows last measured, selection, order."""

    CSS = "Screen { background: ansi_default; } Static { width: 100%; } #list { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=True),
        Binding("p,space", "pause", "pause"),
        Binding("s", "sort", "sort"),
        Binding("a", "toggle_quiet", "all"),
        Binding("enter", "open", "open"),
        Binding("question_mark,h", "explain", "help"),
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup", "page(-1)", "page up"),
        Binding("pagedown", "page(1)", "page down"),
        Binding("home,g", "edge(0)", "first"),
        Binding("end,G", "edge(1)", "last"),
    ]

    def __init__(self, next_window: NextWindow, interval_seconds: float, verdicts: Verdicts | None = None) -> None:
        super().__init__(ansi_color=True)
        self._verdicts = verdicts or Verdicts()
        self.open_verdicts: Sequence[Verdict] = ()
        self._next_window = next_window
        self._interval_seconds = interval_seconds
        self.trend = Trend(TREND_SECONDS, interval_seconds)
        self.window: Window | None = None
        self.rows: list[TopRow] = []
        self.order = Order.LOST
        self.is_paused = False
        self.shows_quiet = False
        self.selected: int | None = None
        """Cgroup id, so that the selection stays on its cgroup when the order changes."""
        self._first = 0

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="heading")
        yield Static("measuring", id="list")
        yield Static(id="verdicts")
        yield Static(id="legend")
        yield Static(id="keys")

    def on_mount(self) -> None:
        self.tick()
        self.set_interval(self._interval_seconds, self.tick)

    def tick(self) -> None:
        """Measure; and draw unless paused."""
        window = self._next_window()
        if window is None:
            return
        self.trend.add(window)
        if self.is_paused:
            return
        self.window = window
        self.rows = rows(window, culprits=20)
        self.open_verdicts = self._verdicts.open_verdicts()
        self.draw()

    def on_resize(self, _event: Resize) -> None:
        self.draw()

    @property
    def shown(self) -> list[TopRow]:
        """The rows in their order, without the quiet ones unless asked for."""
        return ordered((row for row in self.rows if self.shows_quiet or not row.is_quiet), self.order)

    def draw(self) -> None:
        """Bring the base screen, and the detail screen if it is open, up to date."""
        if isinstance(self.screen, DetailScreen):
            self.screen.draw()
        base = self.screen_stack[0]
        if self.window is None or not base.query("#list"):
            return
        pane_lines = room_for(self.open_verdicts, self.size.height)
        width, height = self.size.width, max(self.size.height - _AROUND - pane_lines, 1)
        shown = self.shown
        position = self._position(shown)
        self._first = max(min(self._first, position), position - height + 1, 0)
        visible = shown[self._first : self._first + height]
        columns = Columns.fit(width)
        drawn = [
            line(row, self.trend.of(row.info.id), columns, is_selected=self._first + offset == position)
            for offset, row in enumerate(visible)
        ]
        base.query_one("#title", Static).update(self._title(len(self.rows) - len(shown)))
        base.query_one("#heading", Static).update(heading(columns, self.order))
        base.query_one("#list", Static).update(
            Text("\n", no_wrap=True).join(drawn) if drawn else "no cgroup loses time"
        )
        self._draw_verdicts(base.query_one("#verdicts", Static), pane_lines)
        base.query_one("#legend", Static).update(legend(visible, width))
        base.query_one("#keys", Static).update(self._keys(width))

    def _draw_verdicts(self, place: Static, lines: int) -> None:
        place.display = lines > 0
        text = pane(self.open_verdicts, self.now_seconds, self._verdicts.name_of, width=self.size.width, lines=lines)
        place.update(text)

    @property
    def now_seconds(self) -> float:
        """Wall-clock time of the newest frame."""
        return self.window.last.wall_ns / 1e9 if self.window else 0.0

    def evidence_of(self, path: str) -> Text:
        """Return the open verdicts of one cgroup with their evidence."""
        return evidence(
            [each for each in self.open_verdicts if each.victim == path], self.now_seconds, self._verdicts.name_of
        )

    def _title(self, hidden: int) -> Text:
        lost = seconds(sum(row.lost for row in self.rows))
        state = "  PAUSED" if self.is_paused else ""
        quiet = f", {hidden} quiet" if hidden else ""
        return Text(
            f"lost seconds per second, by cgroup   all {lost}   {len(self.rows)} cgroups{quiet}{state}",
            style="reverse" if self.is_paused else "",
            no_wrap=True,
            overflow="ellipsis",
        )

    def _keys(self, width: int) -> Text:
        sort = f"s sort ({self.order.value})"
        keys = ("enter open", sort, "p pause", "a fewer" if self.shows_quiet else "a all", "? help", "q quit")
        return Text("  ".join(keys)[:width], style="dim")

    def _position(self, shown: list[TopRow]) -> int:
        """Index of the selected cgroup; the first where there is none."""
        if self.selected is None:
            return 0
        return next((index for index, row in enumerate(shown) if row.info.id == self.selected), 0)

    def action_move(self, step: int) -> None:
        """Select `step` lines further."""
        shown = self.shown
        if shown:
            position = min(max(self._position(shown) + step, 0), len(shown) - 1)
            self.selected = shown[position].info.id
            self.draw()

    def action_page(self, pages: int) -> None:
        """Select one screen further."""
        self.action_move(pages * max(self.size.height - _AROUND - room_for(self.open_verdicts, self.size.height), 1))

    def action_edge(self, end: int) -> None:
        """Select the first (0) or the last (1); the first one follows the order."""
        self.action_move(len(self.rows) if end else -len(self.rows))
        if not end:
            self.selected = None

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.order = self.order.following
        self.draw()

    def action_pause(self) -> None:
        """Freeze the screen; measuring goes on."""
        self.is_paused = not self.is_paused
        self.draw()

    def action_toggle_quiet(self) -> None:
        """Show or hide cgroups that neither run nor lose."""
        self.shows_quiet = not self.shows_quiet
        self.draw()

    def action_open(self) -> None:
        """Drill into the selected cgroup."""
        shown = self.shown
        if shown and len(self.screen_stack) == 1:
            self.selected = shown[self._position(shown)].info.id
            self.push_screen(DetailScreen(self, self.selected))

    def action_explain(self) -> None:
        """Show the meaning of letters and keys, and the sources that are not measured."""
        if len(self.screen_stack) == 1:
            self.push_screen(HelpScreen(dict(self.window.last.sources) if self.window else {}))


class _Overlay(Screen[None]):
    """A screen over the list; any of its keys goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left,enter,question_mark,h", "back", "back", priority=True)
    ]

    def action_back(self) -> None:
        """Go back to the list."""
        self.app.pop_screen()


class DetailScreen(_Overlay):
    """One cgroup, redrawn at each tick."""

    def __init__(self, top: TopApp, cgroup: int) -> None:
        super().__init__()
        self._top = top
        self._cgroup = cgroup

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="detail")
        yield Static(Text("esc back  p pause  q quit", style="dim"))

    def on_mount(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw the cgroup as of the newest window."""
        row = next((row for row in self._top.rows if row.info.id == self._cgroup), None)
        if not self.query("#detail"):
            return
        if row is None or self._top.window is None:
            self.query_one("#detail", Static).update("this cgroup is gone")
            return
        found = latencies(self._top.window, self._cgroup)
        trend, more = self._top.trend.of(self._cgroup), facts(self._top.window, self._cgroup)
        judged = self._top.evidence_of(row.info.path)
        text = detail(row, trend, found, self.app.size.width, facts=more, verdicts=judged)
        self.query_one("#detail", Static).update(text)


class HelpScreen(_Overlay):
    """Keys, letters, and sources that this host does not measure."""

    def __init__(self, sources: dict[str, str]) -> None:
        super().__init__()
        self._sources = sources

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(help_text(self._sources))
        yield Static(Text("esc back  q quit", style="dim"))


def help_text(sources: dict[str, str]) -> Text:
    """Text of the help screen; `sources` maps each probe and collector to the reason of its absence, or ""."""
    text = Text()
    text.append("Lost time\n", style="bold")
    text.append(
        "Seconds of progress a cgroup's threads lost per second: 0.5 is half a thread standing still, 2 is two.\n"
        "The bar shows the causes in proportion; those in upper case are caused by others.\n\n"
    )
    for name, cause_style in CAUSE_STYLES.items():
        text.append(f" {cause_style.letter} ", style=f"black on {cause_style.colour}")
        text.append(f" {name.replace('_', ' '):<22} {cause_style.meaning}\n")
    text.append("\nKeys\n", style="bold")
    text.append("up down pgup pgdn home end: select   enter: open   s: sort by the next column   p: pause\n")
    text.append("a: show quiet cgroups too        ?: this      esc: back                      q: quit\n")
    missing = {name: why for name, why in sources.items() if why}
    if missing:
        text.append("\nNot measured here\n", style="bold")
        for name, why in sorted(missing.items()):
            text.append(f" {name}: {why}\n")
    return text
