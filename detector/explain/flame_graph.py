"""Flame graphs of recorded stacks as one SVG, without scripts and without anything fetched.

A box is a function, as wide as the time in it and in what it called, above its caller. Names come from recordings,
which are not trusted: they are escaped, and cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

from api.stacks import Stack, StackEvidence, StackKind, StackSeries, unresolved_ratio

WIDTH, ROW, MARGIN = 1200.0, 17.0, 10.0
_LEAST_WIDTH = 0.4
_LETTER_WIDTH = 6.6
_MAX_DEPTH = 140
_KERNEL = "_[k]"
_GRAPHS = (
    ("running", (StackKind.ON_CPU,)),
    ("waiting for a CPU that was taken from it", (StackKind.PREEMPTED,)),
    ("waiting for anything else", (StackKind.BLOCKED,)),
)


@dataclass(slots=True)
class _Box:
    """Seconds in a function, called by the functions above it, and the functions that it called."""

    seconds: float = 0.0
    called: dict[str, "_Box"] = field(default_factory=dict)

    def depth(self) -> int:
        """Levels below this one."""
        deepest, level = 0, [self]
        while level := [box for each in level for box in each.called.values()]:
            deepest += 1
        return deepest


def flame_graphs(evidences: Sequence[StackEvidence], title: str) -> str:
    """One document with a graph for each series and state of threads."""
    parts, y = [], MARGIN + ROW
    parts.append(_text(MARGIN, y, title, size=15))
    for evidence in evidences:
        for series in evidence.series:
            for label, kinds in _GRAPHS:
                stacks = [stack for stack in series.stacks if stack.kind in kinds]
                if stacks:
                    lines, y = _graph(series, evidence, label, stacks, y + 2 * ROW)
                    parts += lines
    height = y + 2 * ROW
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" '
        f'height="{height:.0f}" font-family="monospace" font-size="11">'
    )
    return "\n".join((head, f'<rect width="{WIDTH:.0f}" height="{height:.0f}" fill="#ffffff"/>', *parts, "</svg>\n"))


def summary(evidence: StackEvidence, series: StackSeries) -> str:
    """One line: what was seen, and the share of frames without a name."""
    samples = sum(stack.count for stack in series.stacks if stack.kind is StackKind.ON_CPU)
    waited = sum(stack.seconds for stack in series.stacks if stack.kind is not StackKind.ON_CPU)
    waits = f", {waited:.2f} s of waits" if waited else ""
    unseen = sum(series.unseen_seconds.values())
    without = f", {unseen:.2f} s without a stack" if unseen >= 0.005 else ""
    return (
        f"{series.role} {series.path}: {samples} samples at {evidence.hz} Hz in {evidence.seconds:.1f} s"
        f"{waits}{without}; {unresolved_ratio(series):.0%} of the frames have no name"
    )


def _graph(
    series: StackSeries, evidence: StackEvidence, label: str, stacks: Sequence[Stack], y: float
) -> tuple[list[str], float]:
    root = _merged(stacks)
    parts = [
        _text(MARGIN, y, summary(evidence, series), size=12),
        _text(MARGIN, y + ROW, f"{label}: {root.seconds:.2f} s", size=12),
    ]
    bottom = y + (1 + root.depth()) * ROW + 0.5 * ROW
    scale = (WIDTH - 2 * MARGIN) / root.seconds if root.seconds else 0.0
    parts += _boxes(root, scale, bottom)
    return parts, bottom + ROW


def _merged(stacks: Iterable[Stack]) -> _Box:
    root = _Box()
    for stack in stacks:
        root.seconds += stack.seconds
        here = root
        for frame in stack.frames[:_MAX_DEPTH]:
            here = here.called.setdefault(frame, _Box())
            here.seconds += stack.seconds
    return root


def _boxes(root: _Box, scale: float, bottom: float) -> Iterator[str]:
    """Boxes from the outermost functions up, those of a caller side by side in the order of their names."""
    waiting = [(root, MARGIN, bottom)]
    while waiting:
        caller, x, y = waiting.pop()
        for name, box in sorted(caller.called.items()):
            width = box.seconds * scale
            if width >= _LEAST_WIDTH:
                yield _box(name, box.seconds, box.seconds / root.seconds, x, y, width)
                waiting.append((box, x, y - ROW))
            x += width


def _box(name: str, seconds: float, share: float, x: float, y: float, width: float) -> str:
    shown = _plain(name)
    letters = int(width / _LETTER_WIDTH) - 1
    label = shown if len(shown) <= letters else f"{shown[: letters - 1]}…" if letters >= 3 else ""
    inside = f'<text x="{x + 3:.1f}" y="{y + 12:.1f}">{escape(label)}</text>' if label else ""
    return (
        f"<g><title>{escape(shown)}: {seconds:.3f} s, {share:.1%}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.3, 0.2):.1f}" height="{ROW - 1:.0f}" '
        f'fill="{_colour(name)}" rx="1"/>{inside}</g>'
    )


def _colour(name: str) -> str:
    """Kernel blue, no name grey, all else warm; the same name has the same colour in every graph."""
    shade = crc32(name.encode()) % 50
    if name.startswith("["):
        return "#c8c8c8"
    return f"hsl({205 + shade // 5},60%,{66 + shade // 5}%)" if name.endswith(_KERNEL) else f"hsl({shade},80%,68%)"


def _text(x: float, y: float, content: str, *, size: int) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}">{escape(_plain(content))}</text>'


def _plain(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)
