"""The document of the node page. Pure: a state in, HTML out."""

from datetime import UTC, datetime

from api.verdict_text import in_words
from koordlet.node_page import tables
from koordlet.node_page.assets import SCRIPT, STYLE
from koordlet.node_page.markup import Child, Markup, element, joined
from koordlet.node_page.timeline import timeline
from koordlet.node_page.values import NodeState
from koordlet.top.rows import TopRow, rows

_KEYS = (
    ("j, k", "next and previous row"),
    ("/", "filter rows; Esc ends it"),
    ("p", "pause and go on"),
    ("t", "dark or light"),
    ("?", "this help; Esc closes it"),
)
_CULPRITS = 8
"""Culprits of a victim that count in the sums of the table of culprits."""


def render(state: NodeState) -> str:
    """Return the whole document."""
    found = rows(state.window, culprits=_CULPRITS) if state.window is not None else []
    title = f"{state.status.hostname} · koordlet"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    body = element(
        "body",
        _header(state),
        element("main", *_sections(state, found), id="live"),
        _help(),
        element("script", Markup(SCRIPT)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _header(state: NodeState) -> Markup:
    links = (("verdicts", "Verdicts"), ("victims", "Victims"), ("culprits", "Culprits"), ("actions", "Actions"))
    tones = {"acting": "good", "dry run": "warn"}
    status = state.status
    when = datetime.fromtimestamp(state.now, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    facts = (
        f"koordlet {status.version}, Linux {status.kernel}, {status.cgroups} cgroups, "
        f"every {status.interval_seconds:g} s; {when} UTC"
    )
    stopped = (element("span", f"stopped: {state.stopped}", class_="badge bad"),) if state.stopped else ()
    return element(
        "header",
        element("h1", status.hostname),
        element(
            "div",
            element("span", state.mode, class_=f"badge {tones.get(state.mode, 'faint')}"),
            *stopped,
            element("p", facts),
            id="facts",
        ),
        element("span", "", id="state", class_="faint", role="status"),
        element(
            "input", id="filter", type="search", placeholder="filter rows ( / )", aria_label="filter rows", hidden=""
        ),
        element("nav", *(element("a", text, href=f"#{anchor}") for anchor, text in links)),
    )


def _sections(state: NodeState, found: list[TopRow]) -> list[Child]:
    return [
        _tiles(state, found),
        _section("verdicts", "Open verdicts", _verdicts(state)),
        _section("timeline", "Last 15 minutes", timeline(state)),
        _section("victims", "Lost time, seconds per second", tables.victims(found)),
        _section("culprits", "Culprits", tables.culprits(found)),
        *(_section(one.identity, one.title, one.body) for one in state.evidence()),
        _section("actions", "Steps of the response", tables.steps(state)),
        _section("settings", "Settings in effect", tables.settings(state)),
        _section("decisions", "Last decisions", tables.decisions(state.decisions)),
        _section(
            "capabilities", "What this host measures", tables.capabilities(state.status.capabilities, state.lost_events)
        ),
    ]


def _tiles(state: NodeState, found: list[TopRow]) -> Markup:
    to_others = sum(row.by_others for row in found)
    actions = sum(not one.protocol_state for one in state.settings)
    held = len(state.settings) - actions
    missing = sum(not each.available for each in state.status.capabilities)
    tiles = (
        (f"{to_others:.2f}", "seconds lost to others, per second"),
        (str(len(state.open_verdicts)), "open verdicts"),
        (str(actions), f"actions in effect; {held} settings of the protocol"),
        (f"{len(state.status.capabilities) - missing} of {len(state.status.capabilities)}", "sources measure here"),
    )
    return element(
        "section",
        *(element("div", element("b", value), element("span", text), class_="tile") for value, text in tiles),
        class_="tiles",
    )


def _verdicts(state: NodeState) -> Markup:
    if not state.open_verdicts:
        return element("p", "None: no cgroup loses notable time.", class_="good")
    worst = sorted(state.open_verdicts, key=lambda each: (-each.lost_seconds_per_second, each.victim, each.rule))
    body = [
        element(
            "tr",
            element(
                "td", element("span", each.severity.value, class_="bad" if each.severity.value == "high" else "warn")
            ),
            element("td", in_words(each, state.name_of)),
            element("td", f"{each.confidence:.0%}", class_="number"),
            element("td", f"{max(state.now - each.since, 0):.0f} s", class_="number"),
            tabindex=0,
            data_key=f"{each.victim}|{each.rule}",
        )
        for each in worst[: tables.MOST_ROWS]
    ]
    return tables.table(("severity", "verdict", "measured", "for"), body, right=(2, 3))


def _section(identity: str, title: str, body: Markup) -> Markup:
    return element("section", element("h2", title), body, id=identity)


def _help() -> Markup:
    keys = joined(joined((element("dt", element("kbd", key)), element("dd", text))) for key, text in _KEYS)
    close = element("form", element("button", "Close"), method="dialog")
    return element("dialog", element("h2", "Keys"), element("dl", keys), close, id="keys", aria_label="keys")
