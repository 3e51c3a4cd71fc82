"""The document of the node page. Pure: a state in, HTML out."""

from datetime import UTC, datetime

from api.pages.document import MOST_ROWS, Badge, Heading, document, noun, section, table, table_row, tiles
from api.pages.markup import Child, Markup, element
from api.verdict_text import in_words
from koordlet.node_page import tables
from koordlet.node_page.timeline import timeline
from koordlet.node_page.values import NodeState
from koordlet.top.rows import TopRow, rows

_CULPRITS = 8
"""Culprits of a victim that count in the sums of the table of culprits."""


def render(state: NodeState) -> str:
    """Return the whole document."""
    found = rows(state.window, culprits=_CULPRITS) if state.window is not None else []
    return document(_heading(state), _sections(state, found))


def _heading(state: NodeState) -> Heading:
    links = (("verdicts", "Verdicts"), ("victims", "Victims"), ("culprits", "Culprits"), ("actions", "Actions"))
    tones = {"acting": "good", "dry run": "warn"}
    status = state.status
    when = datetime.fromtimestamp(state.now, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    facts = (
        f"koordlet {status.version}, Linux {status.kernel}, {status.cgroups} {noun(status.cgroups, 'cgroup')}, "
        f"every {status.interval_seconds:g} s; {when} UTC"
    )
    badges = [Badge(state.mode, tones.get(state.mode, "faint"))]
    if state.stopped:
        badges.append(Badge(f"stopped: {state.stopped}", "bad"))
    return Heading(status.hostname, "koordlet", badges, facts, links)


def _sections(state: NodeState, found: list[TopRow]) -> list[Child]:
    return [
        _tiles(state, found),
        section("verdicts", "Open verdicts", _verdicts(state)),
        section("timeline", "Last 15 minutes", timeline(state)),
        section("victims", "Lost time, seconds per second", tables.victims(found)),
        section("culprits", "Culprits", tables.culprits(found)),
        *(section(one.identity, one.title, one.body) for one in state.evidence()),
        section("actions", "Steps of the response", tables.steps(state)),
        section("settings", "Settings in effect", tables.settings(state)),
        section("decisions", "Last decisions", tables.decisions(state.decisions)),
        section(
            "capabilities", "What this host measures", tables.capabilities(state.status.capabilities, state.lost_events)
        ),
    ]


def _tiles(state: NodeState, found: list[TopRow]) -> Markup:
    to_others = sum(each.by_others for each in found)
    actions = sum(not one.protocol_state for one in state.settings)
    held = len(state.settings) - actions
    missing = sum(not each.available for each in state.status.capabilities)
    figures = (
        (f"{to_others:.2f}", "seconds lost to others, per second"),
        (str(len(state.open_verdicts)), noun(len(state.open_verdicts), "open verdict")),
        (str(actions), f"{noun(actions, 'action')} in effect; {held} {noun(held, 'setting')} of the protocol"),
        (f"{len(state.status.capabilities) - missing} of {len(state.status.capabilities)}", "sources measure here"),
    )
    return tiles(figures)


def _verdicts(state: NodeState) -> Markup:
    if not state.open_verdicts:
        return element("p", "None: no cgroup loses notable time.", class_="good")
    worst = sorted(state.open_verdicts, key=lambda each: (-each.lost_seconds_per_second, each.victim, each.rule))
    body = [
        table_row(
            f"{each.victim}|{each.rule}",
            element("span", each.severity.value, class_="bad" if each.severity.value == "high" else "warn"),
            in_words(each, state.name_of),
            element("td", f"{each.confidence:.0%}", class_="number"),
            element("td", f"{max(state.now - each.since, 0):.0f} s", class_="number"),
        )
        for each in worst[:MOST_ROWS]
    ]
    return table(("severity", "verdict", "measured", "for"), body, right=(2, 3))
