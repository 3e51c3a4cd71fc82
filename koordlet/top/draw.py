"""Styled text of the live view: bars of causes, sparklines, lines of a given width. Pure.

Each cause has a letter as well as a colour, so that a bar reads without colours too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from api.cgroup_names import owner_of
from koordlet.top.rows import CulpritShare, Latencies, Order, TopRow

_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class CauseStyle:
    """Letter, colour and meaning of one cause."""

    letter: str
    colour: str
    meaning: str


CAUSE_STYLES: Mapping[str, CauseStyle] = {
    "cpu:neighbour": CauseStyle("N", "red", "CPU held by another cgroup"),
    "cpu:kernel": CauseStyle("K", "magenta", "CPU held by kernel threads"),
    "cpu:irq": CauseStyle("I", "magenta", "interrupts on top of its threads"),
    "cpu:own_irq": CauseStyle("r", "blue", "interrupts for its own packets"),
    "cpu:self": CauseStyle("s", "blue", "CPU held by its own threads"),
    "cpu:own_quota": CauseStyle("q", "yellow", "its own CPU quota"),
    "cpu:ancestor_quota": CauseStyle("a", "yellow", "a parent's CPU quota"),
    "cpu:idle": CauseStyle("i", "cyan", "a CPU was idle meanwhile (wake-up, affinity)"),
    "cpu:unknown": CauseStyle("?", "white", "CPU wait of unknown cause"),
    "memory:global": CauseStyle("M", "red", "reclaim: the node is short of memory"),
    "memory:compaction": CauseStyle("C", "magenta", "memory compaction"),
    "memory:self": CauseStyle("g", "blue", "reclaim that its own allocations caused"),
    "memory:own_limit": CauseStyle("m", "yellow", "reclaim under its own memory limit"),
    "memory:ancestor_limit": CauseStyle("p", "yellow", "reclaim under a parent's memory limit"),
    "blockio:queue": CauseStyle("B", "red", "block IO waits for others' IO"),
    "blockio:device": CauseStyle("D", "red", "others' IO keeps the disk busy"),
    "blockio:self": CauseStyle("o", "blue", "block IO behind its own IO"),
    "blockio:limit": CauseStyle("b", "yellow", "its own IO limit"),
    "net:qdisc": CauseStyle("T", "red", "packets wait for others' in the send queue"),
    "net:self": CauseStyle("t", "blue", "packets wait for its own, or as it asked for"),
}
"""Styles by cause: upper-case letters for losses to others; lower-case ones for own doing, limits, or no culprit."""
_OTHER_STYLE = CauseStyle("*", "white", "")


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the parts of a line."""

    name: int
    lost: int
    cpu: int
    bar: int
    trend: int
    culprit: int

    @classmethod
    def fit(cls, width: int) -> "Columns":
        """Share out a screen's width; at 80 everything is there."""
        lost, cpu, gaps = 6, 5, 5
        bar = trend = 12 if width >= 80 else 8
        free = width - lost - cpu - bar - trend - gaps
        name = max(free * 9 // 20, 8)
        return cls(name, lost, cpu, bar, trend, max(free - name, 0))


def heading(columns: Columns, order: Order) -> Text:
    """Titles over the columns; the sorted one is underlined."""
    text = Text(style="bold")
    for title, width, sorts in (
        ("CGROUP".ljust(columns.name), columns.name, Order.NAME),
        ("LOST".rjust(columns.lost), columns.lost, Order.LOST),
        ("CPU".rjust(columns.cpu), columns.cpu, Order.ONCPU),
        ("CAUSES".ljust(columns.bar), columns.bar, None),
        ("LAST MINUTE".ljust(columns.trend), columns.trend, None),
        ("CULPRITS".ljust(columns.culprit), columns.culprit, Order.BY_OTHERS),
    ):
        text.append(cell(title, width), style="underline" if sorts is order else "")
        text.append(" ")
    text.right_crop(1)
    return text


def line(row: TopRow, trend: Sequence[float], columns: Columns, *, is_selected: bool) -> Text:
    """One cgroup."""
    text = Text()
    text.append(cell(row.info.name, columns.name))
    text.append(" " + seconds(row.lost).rjust(columns.lost), style="bold" if row.lost >= 0.1 else "")
    text.append(" " + (f"{row.oncpu:.2f}" if row.oncpu >= 0.005 else "·").rjust(columns.cpu))
    text.append(" ")
    text.append_text(bar(row.causes, columns.bar))
    text.append(" " + sparkline(trend, columns.trend) + " ")
    text.append(cell(culprits_text(row.culprits, columns.culprit), columns.culprit))
    if is_selected:
        text.stylize(Style(reverse=True), 0, columns.name + columns.lost + columns.cpu + 2)
    return text


def bar(causes: Mapping[str, float], width: int) -> Text:
    """`width` letters, each cause in its share (largest remainder); blank where nothing worth a line is lost."""
    if sum(causes.values()) < 0.0005:
        return Text(" " * width)
    text = Text()
    for name, letters in _shares(causes, width).items():
        cause_style = CAUSE_STYLES.get(name, _OTHER_STYLE)
        text.append(cause_style.letter * letters, style=Style(color="black", bgcolor=cause_style.colour))
    return text


def _shares(causes: Mapping[str, float], length: int) -> dict[str, int]:
    """Whole letters for each cause; they sum to `length`."""
    whole = sum(causes.values())
    exact = {name: length * value / whole for name, value in causes.items()}
    shares = {name: int(value) for name, value in exact.items()}
    left = length - sum(shares.values())
    for name in sorted(exact, key=lambda name: int(exact[name]) - exact[name])[:left]:
        shares[name] += 1
    return {name: letters for name, letters in shares.items() if letters}


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest values, oldest left, each column the largest of its share of them; scaled to their maximum."""
    if not values or max(values) <= 0:
        return " " * width
    per_column = -(-len(values) // width) if len(values) > width else 1
    groups = [values[max(end - per_column, 0) : end] for end in range(len(values), 0, -per_column)][:width][::-1]
    top = max(max(group) for group in groups)
    heights = [-(-max(group) * (len(_BLOCKS) - 1) // top) if top > 0 else 0 for group in groups]
    return "".join(_BLOCKS[int(height)] for height in heights).rjust(width)


def seconds(value: float) -> str:
    """Seconds per second in at most six letters."""
    if value < 0.0005:
        return "·"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def culprits_text(culprits: Sequence[CulpritShare], width: int) -> str:
    """The biggest culprits with what they cost, as many as fit whole; the first one's name is cut if it must be."""
    text = ""
    for culprit in culprits:
        cost = f" {seconds(culprit.lost)}"
        if not text:
            text = cell(culprit.name, min(max(width - len(cost), 0), len(culprit.name))) + cost
        elif len(text) + len(culprit.name) + len(cost) + 2 <= width:
            text += f", {culprit.name}{cost}"
        else:
            break
    return text


def legend(rows: Sequence[TopRow], width: int) -> Text:
    """The letters that are on the screen, biggest cause first, as far as they fit."""
    totals: dict[str, float] = {}
    for row in rows:
        for name, value in row.causes.items():
            totals[name] = totals.get(name, 0.0) + value
    text = Text()
    for name in sorted(totals, key=lambda name: -totals[name]):
        cause_style = CAUSE_STYLES.get(name, _OTHER_STYLE)
        item = f" {name.replace('_', ' ')}  "
        if text.cell_len + len(item) + 1 > width:
            break
        text.append(cause_style.letter, style=Style(color="black", bgcolor=cause_style.colour))
        text.append(item)
    return text


FACTS: Mapping[str, Callable[[float], str]] = {
    "requests_per_second": lambda value: f"{value:.1f} requests/s",
    "cycles_per_instruction": lambda value: f"{value:.2f} cycles per instruction",
    "llc_miss_ratio": lambda value: f"{value:.1%} of cache accesses miss",
    "llc_bytes": lambda value: f"{size(value)} of the last-level cache",
    "memory_bytes_per_second": lambda value: f"{size(value)}/s of memory traffic",
    "smt_foreign": lambda value: f"{seconds(value)} s/s beside others on its cores",
    "memory_usage_bytes": lambda value: f"{size(value)} of memory",
}
"""Texts of `rows.facts`."""


def detail(
    row: TopRow,
    trend: Sequence[float],
    found: Sequence[Latencies],
    width: int,
    *,
    facts: Mapping[str, float],
    verdicts: Text | None = None,
) -> Text:
    """Everything about one cgroup."""
    text = Text()
    text.append(f"{row.info.name}", style="bold")
    text.append(f"   {owner}\n" if (owner := owner_of(row.info)) else "\n")
    text.append(f"{row.info.path}\n")
    qos = f"   QoS class {row.info.qos}" if row.info.qos else ""
    text.append(f"on CPU {seconds(row.oncpu)} s/s   loses {seconds(row.lost)} s/s{qos}\n\n")
    if verdicts:
        text.append_text(verdicts).append("\n")
    text.append("To what\n", style="bold")
    for name, value in sorted(row.causes.items(), key=lambda item: -item[1]):
        cause_style = CAUSE_STYLES.get(name, _OTHER_STYLE)
        length = max(round(12 * value / row.lost), 1)
        text.append(f"  {seconds(value):>6}  ")
        text.append(cause_style.letter * length, style=Style(color="black", bgcolor=cause_style.colour))
        text.append(" " * (12 - length))
        text.append(f"  {cell(name.replace('_', ' '), 21)} {cell(cause_style.meaning, max(width - 47, 0)).rstrip()}\n")
    text.append("\nCulprits\n", style="bold")
    for culprit in row.culprits:
        text.append(f"  {seconds(culprit.lost):>6}  {cell(culprit.resource, 8)} {cell(culprit.name, width - 20)}\n")
    if not row.culprits:
        text.append("  no known culprit\n")
    for item in found:
        text.append(f"\n{item.name}: half within {duration(item.p50)}, 99 % within {duration(item.p99)}")
    for name, value in facts.items():
        text.append(f"\n{FACTS[name](value)}")
    text.append("\n\nLast minute, lost seconds per second" + (f", up to {max(trend):.3f}\n" if trend else "\n"))
    return text.append(sparkline(trend, min(60, width)).lstrip())


def duration(value: float) -> str:
    """A time in the unit that reads best."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def size(value: float) -> str:
    """Bytes in the binary unit that reads best."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def cell(text: str, width: int) -> str:
    """Exactly `width` letters; a longer text loses its middle, where names of one kind are alike."""
    if width <= 0:
        return ""
    if len(text) > width:
        tail = (width - 1) // 2
        text = text[: width - 1 - tail] + "…" + (text[-tail:] if tail else "")
    return text.ljust(width)
