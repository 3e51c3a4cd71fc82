"""Flame graphs of a verdict's stacks: wider is longer, callers above callees. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from api.pages.markup import Child, Markup, element, joined
from api.stacks import StackEvidence, StackKind, StackRole, StackSeries, unresolved_ratio
from koordlet.node_page.timeline import clock
from koordlet.node_page.values import Section

MOST_SERIES = 4
_WIDTH, _ROW, _DEEPEST = 1180, 17, 48
_NARROWEST = 2.0
"""Pixels below which a frame and its callees are left out."""
_LETTER = 6.6
_KINDS = {StackKind.ON_CPU: "on CPU", StackKind.PREEMPTED: "waiting for a CPU", StackKind.BLOCKED: "blocked"}


@dataclass(slots=True)
class _Frame:
    """A frame below its callers."""

    seconds: float = 0.0
    callees: dict[str, "_Frame"] = field(default_factory=dict)


def newest(kept: Iterable[StackEvidence], name_of: Callable[[str], str]) -> tuple[Section, ...]:
    """Return a section for each measurement, the newest first."""
    return tuple(section(number, one, name_of(one.victim)) for number, one in enumerate(reversed(tuple(kept))))


def section(number: int, evidence: StackEvidence, name: str) -> Section:
    """Return the section of one measurement; `name` is the victim's."""
    parts: list[Child] = [
        element(
            "p",
            f"{evidence.rule}, {clock(evidence.time)}, {evidence.seconds:g} s at {evidence.hz} Hz. "
            "Callers are above callees; the width is time.",
            class_="faint",
        )
    ]
    for series in evidence.series[:MOST_SERIES]:
        parts += _series(series)
    parts += [element("p", note, class_="faint") for note in evidence.notes]
    return Section(f"evidence-{number}", f"Stacks behind the verdict on {name}", joined(parts))


def _series(series: StackSeries) -> list[Child]:
    role = "culprit" if series.role is StackRole.CULPRIT else "victim"
    parts: list[Child] = [element("h3", f"{role} ", element("span", series.path, class_="name"))]
    for kind, words in _KINDS.items():
        root = _Frame()
        for stack in series.stacks:
            if stack.kind is kind:
                _add(root, stack.frames, stack.seconds)
        if root.seconds > 0:
            parts += [element("p", f"{words}: {root.seconds:.2f} s"), _picture(root, f"{role} {words}", kind)]
    if len(parts) == 1:
        parts.append(element("p", "No stack was taken.", class_="faint"))
    unnamed = unresolved_ratio(series)
    if unnamed > 0.01:
        parts.append(element("p", f"{unnamed:.0%} of the frames have no name.", class_="faint"))
    return parts


def _add(root: _Frame, frames: tuple[str, ...], seconds: float) -> None:
    root.seconds += seconds
    frame = root
    for name in frames[:_DEEPEST]:
        frame = frame.callees.setdefault(name, _Frame())
        frame.seconds += seconds


def _picture(root: _Frame, label: str, kind: StackKind) -> Markup:
    shapes: list[Child] = []
    deepest = 0
    waiting = [(root, 0.0, 0)]
    while waiting:
        frame, x, depth = waiting.pop()
        for name, callee in sorted(frame.callees.items()):
            width = callee.seconds / root.seconds * _WIDTH
            if width >= _NARROWEST:
                shapes.append(_rectangle(name, callee.seconds, root.seconds, x, width, depth, kind))
                deepest = max(deepest, depth + 1)
                waiting.append((callee, x, depth + 1))
            x += width
    height = deepest * _ROW
    return element(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
        class_="wide",
        role="img",
        aria_label=label,
    )


def _rectangle(name: str, seconds: float, whole: float, x: float, width: float, depth: int, kind: StackKind) -> Markup:
    is_kernel = name.endswith("_[k]")
    tone = "c-kernel" if is_kernel else "c-own" if kind is StackKind.ON_CPU else "c-others"
    letters = int((width - 6) / _LETTER)
    text = name.removesuffix("_[k]")
    shown = text if len(text) <= letters else f"{text[: letters - 1]}…" if letters > 3 else ""
    return element(
        "g",
        element("title", f"{text}: {seconds:.3f} s, {seconds / whole:.1%}"),
        element(
            "rect",
            x=round(x, 1),
            y=depth * _ROW,
            width=round(max(width - 0.5, 1.0), 1),
            height=_ROW - 1,
            rx=1,
            class_=tone,
        ),
        element("text", shown, x=round(x + 3, 1), y=depth * _ROW + 12, class_="frame"),
    )
