"""Tables of the node page: victims, culprits, what the agent did, and what it can measure. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from api.loss import CAUSED_BY_OTHERS
from api.pages.document import MOST_ROWS, left_out, name_span, number_cell, table, table_row
from api.pages.markup import Child, Markup, element, joined
from koordlet.node_page.timeline import before_and_after, clock
from koordlet.node_page.values import Decision, NodeState, SettingInEffect
from koordlet.response.steps import ResponseStep, StepKind
from koordlet.serving.status import Capability
from koordlet.top.rows import TopRow

_BAR = 220
_GROUPS = {
    "others": "other cgroups",
    "kernel": "the kernel",
    "own": "own threads",
    "quota": "quotas and limits",
    "rest": "idle CPUs and unknown",
}


def group_of(cause: str) -> str:
    """Return the group of a cause of `api.loss`: others, kernel, own, quota or rest."""
    word = cause.partition(":")[2]
    if cause in CAUSED_BY_OTHERS:
        return "kernel" if word in ("kernel", "irq", "compaction") else "others"
    if "quota" in word or "limit" in word:
        return "quota"
    return "own" if word == "self" or word.startswith("own_") else "rest"


def victims(rows: Sequence[TopRow]) -> Markup:
    """Return a row for each cgroup that loses time, those that lose most to others first."""
    losing = [row for row in rows if row.lost >= 0.0005]
    shown = sorted(losing, key=lambda row: (-round(row.by_others, 4), -round(row.lost, 4), row.info.path))[:MOST_ROWS]
    if not shown:
        return element("p", "No cgroup loses time now.", class_="faint")
    scale = max(max(row.lost for row in shown), 0.05)
    body = [
        table_row(
            row.info.path,
            name_span(row.info.name, row.info.path),
            row.info.qos,
            number_cell(row.by_others),
            number_cell(row.lost),
            _bar(row, scale),
            number_cell(row.oncpu),
            element("span", ", ".join(f"{each.name} {each.lost:.3f}" for each in row.culprits) or "-", class_="name"),
        )
        for row in shown
    ]
    head = ("cgroup", "class", "lost to others", "lost", "by cause", "on CPU", "culprits, s/s")
    return joined((table(head, body, right=(2, 3, 5)), _legend(), left_out(len(losing))))


def culprits(rows: Sequence[TopRow]) -> Markup:
    """Return a row for each cgroup that others wait for, summed over its victims."""
    costs: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        for each in row.culprits:
            costs.setdefault((each.name, each.resource), {})[row.info.name] = each.lost
    order = sorted(costs, key=lambda key: (-round(sum(costs[key].values()), 4), key))[:MOST_ROWS]
    if not order:
        return element("p", "No cgroup keeps others waiting.", class_="faint")
    body = []
    for name, resource in order:
        cost = costs[name, resource]
        worst = sorted(cost.items(), key=lambda item: (-item[1], item[0]))[:3]
        who = ", ".join(f"{victim} {lost:.3f}" for victim, lost in worst)
        body.append(
            table_row(
                f"{name} {resource}",
                name_span(name),
                resource,
                number_cell(sum(cost.values())),
                element("span", who, class_="name"),
            )
        )
    head = ("culprit", "resource", "costs others", "most of it, s/s")
    return joined((table(head, body, right=(2,)), left_out(len(costs))))


def steps(state: NodeState) -> Markup:
    """Return the response's steps with the victim's loss without and with each rung, newest first."""
    if not state.steps:
        return element("p", "No step so far.", class_="faint")
    body = [
        table_row(
            f"{when} {step.rung} {step.culprit}",
            clock(when),
            element("span", step.kind.value.replace("_", " "), class_=_tone(step)),
            step.rung,
            name_span(state.name_of(step.culprit), step.culprit),
            name_span(state.name_of(step.victim), step.victim),
            element("span", before_and_after(step), class_="number"),
            step.reason,
        )
        for when, step in reversed(state.steps[-MOST_ROWS:])
    ]
    return table(("time", "step", "rung", "culprit", "for", "victim's loss", "reason"), body)


def settings(state: NodeState) -> Markup:
    """Return the values in effect with those before; actions first."""
    if not state.settings:
        return element("p", "Nothing is changed.", class_="faint")
    order = sorted(state.settings, key=lambda one: (one.protocol_state, one.target, one.knob))
    body = [_setting(one, state) for one in order[:MOST_ROWS]]
    head = ("cgroup", "setting", "before", "now", "by", "reason")
    return joined((table(head, body), left_out(len(order))))


def decisions(lines: Sequence[Decision]) -> Markup:
    """Return the last decisions of the enforcer, newest first."""
    if not lines:
        return element("p", "No decision so far.", class_="faint")
    body = [
        table_row(
            f"{line.time} {line.target} {line.knob_or_file}",
            line.time[11:19],
            f"{line.outcome.replace('_', ' ')}{' (dry run)' if line.dry_run else ''}",
            name_span(line.target),
            line.qos,
            element("span", line.knob_or_file, class_="name"),
            element("span", f"{line.before or '-'} → {line.after or '-'}", class_="name"),
            line.reason,
        )
        for line in reversed(lines[-MOST_ROWS:])
    ]
    return table(("time", "outcome", "target", "class", "what", "change", "reason"), body)


def capabilities(known: Iterable[Capability], lost_events: Mapping[str, int]) -> Markup:
    """Return what this host can measure, with reason and remedy for the rest."""
    body = [
        table_row(
            each.name,
            name_span(each.name),
            element("span", *_capability(each)),
            each.reason or "-",
            each.remedy or "-",
        )
        for each in known
    ]
    lost = ", ".join(f"{name} {count}" for name, count in sorted(lost_events.items()) if count)
    said = element("p", f"Events lost: {lost}", class_="warn") if lost else Markup()
    return joined((table(("source", "measured", "reason", "remedy"), body), said))


def _bar(row: TopRow, scale: float) -> Markup:
    parts: list[Child] = []
    x = 0.0
    for group in _GROUPS:
        amounts = {cause: lost for cause, lost in row.causes.items() if group_of(cause) == group}
        width = sum(amounts.values()) / scale * _BAR
        if width >= 0.5:
            title = ", ".join(f"{cause} {lost:.3f}" for cause, lost in amounts.items())
            shape = element(
                "rect",
                element("title", title),
                x=round(x, 1),
                y=2,
                width=round(width, 1),
                height=12,
                class_=f"c-{group}",
            )
            parts.append(shape)
        x += width
    label = ", ".join(f"{cause} {lost:.3f}" for cause, lost in row.causes.items())
    return element("svg", *parts, width=_BAR, height=16, role="img", aria_label=label)


def _legend() -> Markup:
    entries = (
        element(
            "span", element("svg", element("rect", width=10, height=10, class_=f"c-{group}"), width=10, height=10), text
        )
        for group, text in _GROUPS.items()
    )
    return element("p", *entries, class_="legend")


def _tone(step: ResponseStep) -> str:
    if step.kind in (StepKind.APPLIED, StepKind.KEPT):
        return "good"
    return "bad" if step.kind is StepKind.REFUSED else "warn"


def _setting(one: SettingInEffect, state: NodeState) -> Markup:
    by = one.strategy + (" (protocol)" if one.protocol_state else "")
    return table_row(
        f"{one.target} {one.knob}",
        name_span(state.name_of(one.target), one.target),
        element("span", one.knob, class_="name"),
        element("span", one.original or "-", class_="name"),
        element("span", one.value, class_="name"),
        by,
        one.reason or one.verdict or "-",
    )


def _capability(each: Capability) -> tuple[Child, ...]:
    if not each.available:
        return (element("span", "no", class_="bad"),)
    return (element("span", "in part", class_="warn"),) if each.reason else (element("span", "yes", class_="good"),)
