"""The timeline: open and closed verdicts of the last minutes as bars, steps of the response as marks. Pure."""

import time
from collections.abc import Callable, Sequence

from api.pages.markup import Child, Markup, element, joined
from koordlet.node_page.values import NodeState, Span
from koordlet.response.steps import ResponseStep, StepKind

SECONDS = 900.0
"""Width of the timeline."""
_LANES = 14
_LEFT, _WIDTH, _LANE, _TOP, _LETTERS = 250, 950, 22, 22, 38
_BACKWARDS = frozenset({StepKind.REVERTED, StepKind.RELEASED, StepKind.LIFTED, StepKind.REFUSED})


def timeline(state: NodeState) -> Markup:
    """Return the picture as SVG, or a sentence where there was no verdict."""
    begin = state.now - SECONDS
    spans = [span for span in state.spans if (span.closed or state.now) >= begin]
    lanes = _lanes(spans)
    if not lanes:
        return element("p", "No verdict in the last quarter of an hour.", class_="faint")
    shown, left_out = lanes[:_LANES], len(lanes) - _LANES
    height = _TOP + _LANE * len(shown) + 4
    x_of = _scale(begin)
    parts: list[Child] = [_grid(begin, height, x_of)]
    for number, ((victim, resource), members) in enumerate(shown):
        top = _TOP + _LANE * number
        parts.append(_label(f"{state.name_of(victim)} · {resource}", top))
        parts += [_bar(span, state.now, top, x_of) for span in members]
        parts += [
            _mark(when, step, top, x_of)
            for when, step in state.steps
            if (step.victim, step.resource) == (victim, resource) and when >= begin
        ]
    label = f"{len(spans)} verdicts of the last {SECONDS / 60:.0f} minutes, by victim and resource"
    picture = element(
        "svg",
        joined(parts),
        viewBox=f"0 0 {_LEFT + _WIDTH} {height}",
        width=_LEFT + _WIDTH,
        height=height,
        class_="wide",
        role="img",
        aria_label=label,
    )
    more = element("p", f"and {left_out} more victims", class_="faint") if left_out > 0 else Markup()
    return joined((picture, _legend(), more))


def _lanes(spans: Sequence[Span]) -> list[tuple[tuple[str, str], list[Span]]]:
    """A lane for each victim and resource; open ones and greater losses first."""
    lanes: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        lanes.setdefault((span.last.victim, span.last.resource), []).append(span)
    return sorted(
        lanes.items(),
        key=lambda lane: (all(span.closed for span in lane[1]), -max(span.worst for span in lane[1]), lane[0]),
    )


def _scale(begin: float) -> Callable[[float], float]:
    return lambda when: round(_LEFT + min(max((when - begin) / SECONDS, 0.0), 1.0) * _WIDTH, 1)


def _grid(begin: float, height: int, x_of: Callable[[float], float]) -> Markup:
    parts: list[Child] = []
    minute = (int(begin) // 180 + 1) * 180
    while minute < begin + SECONDS:
        x = x_of(minute)
        parts.append(element("line", x1=x, x2=x, y1=_TOP - 4, y2=height, class_="grid"))
        parts.append(element("text", clock(minute)[:5], x=x, y=12, text_anchor="middle", class_="faint"))
        minute += 180
    return joined(parts)


def _label(text: str, top: int) -> Markup:
    shown = text if len(text) <= _LETTERS else f"…{text[-_LETTERS:]}"
    return element("text", element("title", text), shown, x=_LEFT - 8, y=top + 15, text_anchor="end")


def _bar(span: Span, now: float, top: int, x_of: Callable[[float], float]) -> Markup:
    start, end = x_of(span.opened), x_of(span.closed or now)
    first = (
        f", most of it to {span.last.culprits[0].ref.name or span.last.culprits[0].path}" if span.last.culprits else ""
    )
    until = f"to {clock(span.closed)}" if span.closed else "open"
    title = f"{span.last.cause}: up to {span.worst:.2f} s/s{first}; {clock(span.opened)} {until}"
    tall = 6 + round(12 * min(span.worst, 1.0))
    return element(
        "rect",
        element("title", title),
        x=start,
        y=top + (_LANE - tall) // 2,
        width=max(round(end - start, 1), 2),
        height=tall,
        rx=2,
        class_="c-quota" if any(word in span.last.cause for word in ("quota", "limit")) else "c-others",
    )


def _mark(when: float, step: ResponseStep, top: int, x_of: Callable[[float], float]) -> Markup:
    x = x_of(when)
    title = f"{clock(when)} {step.rung} {step.kind.value} on {step.culprit}: {before_and_after(step)}"
    back = step.kind in _BACKWARDS
    return element(
        "line",
        element("title", title),
        x1=x,
        x2=x,
        y1=top + 1,
        y2=top + _LANE - 1,
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
