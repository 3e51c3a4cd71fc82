"""The timeline: open and closed verdicts of the last minutes as bars, steps of the response as marks. Pure."""

import time
from collections.abc import Callable, Sequence
from math import ceil

from api.pages.document import noun
from api.pages.markup import Child, Markup, element, joined
from koordlet.node_page.values import NodeState, Span
from koordlet.response.steps import ResponseStep, StepKind

SECONDS = 900.0
"""Width of the timeline."""
_LANES = 14
_LANE, _AXIS = 22, 16
"""Heights of a lane and of the axis, in pixels; widths are parts of what the reader's window has."""
_BACKWARDS = frozenset({StepKind.REVERTED, StepKind.RELEASED, StepKind.LIFTED, StepKind.REFUSED})


def timeline(state: NodeState) -> Markup:
    """Return lanes of SVG beside or below their names, or a sentence where there was no verdict."""
    begin = state.now - SECONDS
    spans = [span for span in state.spans if (span.closed or state.now) >= begin]
    lanes = _lanes(spans)
    if not lanes:
        return element("p", "No verdict in the last quarter of an hour.", class_="faint")
    shown, left_out = lanes[:_LANES], len(lanes) - _LANES
    x_of = _scale(begin)
    grid = joined(element("line", x1=x, x2=x, y1=0, y2=_LANE, class_="grid") for x in map(x_of, _minutes(begin)))
    parts: list[Child] = [element("span"), _axis(begin, x_of)]
    for (victim, resource), members in shown:
        title = f"{state.name_of(victim)} · {resource}"
        steps = [
            _mark(when, step, x_of)
            for when, step in state.steps
            if (step.victim, step.resource) == (victim, resource) and when >= begin
        ]
        bars = (_bar(span, state.now, x_of) for span in members)
        label = f"{title}: {len(members)} {noun(len(members), 'verdict')}"
        parts.append(element("span", title, class_="lane-name", title=title))
        parts.append(element("svg", grid, *bars, *steps, height=_LANE, class_="lane", role="img", aria_label=label))
    more = element("p", f"and {left_out} more {noun(left_out, 'victim')}", class_="faint") if left_out > 0 else Markup()
    return joined((element("div", *parts, class_="lanes"), _legend(), more))


def _lanes(spans: Sequence[Span]) -> list[tuple[tuple[str, str], list[Span]]]:
    """A lane for each victim and resource; open ones and greater losses first."""
    lanes: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        lanes.setdefault((span.last.victim, span.last.resource), []).append(span)
    return sorted(
        lanes.items(),
        key=lambda lane: (all(span.closed for span in lane[1]), -max(span.worst for span in lane[1]), lane[0]),
    )


def _scale(begin: float) -> Callable[[float], str]:
    return lambda when: f"{_percent(when, begin):g}%"


def _percent(when: float, begin: float) -> float:
    return round(100 * min(max((when - begin) / SECONDS, 0.0), 1.0), 2)


def _minutes(begin: float) -> range:
    """Every third minute."""
    return range((int(begin) // 180 + 1) * 180, ceil(begin + SECONDS), 180)


def _axis(begin: float, x_of: Callable[[float], str]) -> Markup:
    names = (
        element("text", clock(minute)[:5], x=x_of(minute), y=_AXIS - 4, text_anchor="middle", class_="faint")
        for minute in _minutes(begin)
        # A time at an edge would be cut.
        if 4 <= _percent(minute, begin) <= 96
    )
    return element("svg", *names, height=_AXIS, class_="axis", aria_hidden="true")


def _bar(span: Span, now: float, x_of: Callable[[float], str]) -> Markup:
    begin = now - SECONDS
    wide = _percent(span.closed or now, begin) - _percent(span.opened, begin)
    first = (
        f", most of it to {span.last.culprits[0].ref.name or span.last.culprits[0].path}" if span.last.culprits else ""
    )
    until = f"to {clock(span.closed)}" if span.closed else "open"
    title = f"{span.last.cause}: up to {span.worst:.2f} s/s{first}; {clock(span.opened)} {until}"
    tall = 6 + round(12 * min(span.worst, 1.0))
    return element(
        "rect",
        element("title", title),
        x=x_of(span.opened),
        y=(_LANE - tall) // 2,
        width=f"{max(wide, 0.3):g}%",
        height=tall,
        rx=2,
        class_="c-quota" if any(word in span.last.cause for word in ("quota", "limit")) else "c-others",
    )


def _mark(when: float, step: ResponseStep, x_of: Callable[[float], str]) -> Markup:
    x = x_of(when)
    title = f"{clock(when)} {step.rung} {step.kind.value} on {step.culprit}: {before_and_after(step)}"
    back = step.kind in _BACKWARDS
    return element(
        "line",
        element("title", title),
        x1=x,
        x2=x,
        y1=1,
        y2=_LANE - 1,
        class_="mark back" if back else "mark",
        stroke_dasharray="3 2" if back else None,
    )


def _legend() -> Markup:
    entries = (
        ("a verdict, taller where more is lost", element("rect", width=14, height=10, rx=2, class_="c-others")),
        ("own quota or limit", element("rect", width=14, height=10, rx=2, class_="c-quota")),
        ("an action begins or is kept", element("line", x1=7, x2=7, y1=0, y2=12, class_="mark")),
        ("ends or is refused", element("line", x1=7, x2=7, y1=0, y2=12, class_="mark back", stroke_dasharray="3 2")),
    )
    return element(
        "p",
        *(
            element("span", element("svg", sign, width=14, height=12, aria_hidden="true"), text)
            for text, sign in entries
        ),
        class_="legend",
    )


def before_and_after(step: ResponseStep) -> str:
    """Return the victim's loss without and with the rung."""
    before = f"{step.before:.2f}" if step.before == step.before else "unknown"
    after = f"{step.after:.2f} s/s" if step.after == step.after else "unknown"
    return f"{before} → {after}"


def clock(when: float) -> str:
    """Return the time of day, UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(when))
