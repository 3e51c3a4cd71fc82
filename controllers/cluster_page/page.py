"""The document of the cluster page. Pure: a state in, HTML out."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from api.kube.losses import Loss
from api.pages.document import (
    MOST_ROWS,
    Badge,
    Heading,
    document,
    left_out,
    name_span,
    noun,
    number_cell,
    section,
    table,
    table_row,
    tiles,
)
from api.pages.markup import Child, Markup, element, joined
from controllers.cluster_page.values import ClusterState, NodeRow, PairRow, Trait, WorkloadRow

SILENT_SECONDS = 300.0
"""Age from which a report tells of the past."""
_LINKS = (
    ("nodes", "Nodes"),
    ("pairs", "Apart"),
    ("sensitive", "Sensitive"),
    ("aggressive", "Aggressive"),
    ("verdicts", "Verdicts"),
)
_NO_PROFILES = (
    "No profile is known. [controllers.workload_profiles] enabled = true in the manager's settings publishes what the "
    "nodes' reports tell; the first ones take some minutes of losses."
)
_BAR = 160


def render(state: ClusterState) -> str:
    """Return the whole document."""
    return document(
        _heading(state),
        (
            _tiles(state),
            section("nodes", "Nodes by loss", _nodes(state.nodes)),
            section("pairs", "Who should not meet", _pairs(state)),
            section("sensitive", "Workloads by sensitivity", _sensitive(state)),
            section("aggressive", "Workloads by aggressiveness", _aggressive(state)),
            section("verdicts", "Open verdicts", _verdicts(state.losses)),
        ),
    )


def _heading(state: ClusterState) -> Heading:
    when = datetime.fromtimestamp(state.now, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    reporting = sum(row.age_seconds is not None and row.age_seconds < SILENT_SECONDS for row in state.nodes)
    nodes = f"{len(state.nodes)} {noun(len(state.nodes), 'node')}"
    facts = f"koord-manager {state.version}, {reporting} of {nodes} report; {when} UTC"
    badge = Badge("leading", "good") if state.leading else Badge("standing by", "faint")
    return Heading("Cluster", "koord-manager", [badge], facts, _LINKS)


def _tiles(state: ClusterState) -> Markup:
    silent = sum(row.age_seconds is None or row.age_seconds >= SILENT_SECONDS for row in state.nodes)
    with_loss = sum(row.lost > 0 for row in state.nodes)
    figures = (
        (f"{sum(row.lost for row in state.nodes):.2f}", "seconds lost to others, per second"),
        (f"{with_loss} of {len(state.nodes)}", "nodes with victims"),
        (str(len(state.losses)), noun(len(state.losses), "open verdict")),
        (str(silent), f"{noun(silent, 'node')} without a report for {SILENT_SECONDS / 60:.0f} minutes"),
        (str(state.profiles), f"{noun(state.profiles, 'workload')} with a profile"),
    )
    return tiles(figures)


def _nodes(nodes: Sequence[NodeRow]) -> Markup:
    if not nodes:
        return element("p", "There are no nodes.", class_="faint")
    scale = max(nodes[0].lost, 0.05)
    body = [
        table_row(
            row.name,
            name_span(row.name),
            number_cell(row.lost),
            _bar(row.lost, scale),
            element("td", row.victims, class_="number"),
            _sentence(row.worst) if row.worst is not None else "-",
            element("td", "-" if row.cpu_used is None else f"{row.cpu_used:.0%}", class_="number"),
            element("td", _slow(row.slow_ratio), class_="number"),
            element("td", _age(row.age_seconds), class_="number"),
        )
        for row in nodes[:MOST_ROWS]
    ]
    head = ("node", "lost, s/s", "", "victims", "worst", "CPU used", "slower by", "reported")
    return joined((table(head, body, right=(1, 3, 5, 6, 7)), left_out(len(nodes))))


def _pairs(state: ClusterState) -> Markup:
    if not state.pairs:
        text = _NO_PROFILES if not state.profiles else "No two workloads are expected to cost each other notable time."
        return element("p", text, class_="faint")
    scale = max(max(row.expected, row.now) for row in state.pairs)
    body = [
        table_row(
            f"{row.victim} {row.neighbour}",
            name_span(row.victim),
            name_span(row.neighbour),
            element("td", _expected(row), class_="number"),
            _bar(max(row.expected, row.now), max(scale, 0.05)),
            _by_resource(row),
            element("td", f"{row.now:.3f}" if row.now > 0 else "-", class_="number"),
            _together(row.together),
        )
        for row in state.pairs[:MOST_ROWS]
    ]
    head = ("victim", "neighbour", "expected, s/s", "", "resources", "open now, s/s", "on one node now")
    note = element(
        "p",
        "Expected: what one replica of the neighbour costs on the victim's node, sensitivity times aggressiveness; "
        "± half of the interval of 90 %.",
        class_="faint",
    )
    return joined((table(head, body, right=(2, 5)), note))


def _sensitive(state: ClusterState) -> Markup:
    return _workloads(
        state,
        lambda row: row.most_sensitive,
        lambda trait: trait.sensitivity,
        ("workload", "resource", "sensitivity", "", "± at 90 %", "pods", "nodes", "loses now, s/s"),
        lambda row, trait: (
            element("td", "-" if trait.error is None else f"{trait.error:.3f}", class_="number"),
            element("td", row.replicas, class_="number"),
            element("td", row.nodes, class_="number"),
            number_cell(row.lost),
        ),
    )


def _aggressive(state: ClusterState) -> Markup:
    return _workloads(
        state,
        lambda row: row.most_aggressive,
        lambda trait: trait.aggressiveness,
        ("workload", "resource", "aggressiveness", "", "pods", "nodes", "costs now, s/s"),
        lambda row, _: (
            element("td", row.replicas, class_="number"),
            element("td", row.nodes, class_="number"),
            number_cell(row.costs),
        ),
    )


def _workloads(
    state: ClusterState,
    most: Callable[[WorkloadRow], tuple[str, Trait] | None],
    figure: Callable[[Trait], float],
    head: Sequence[str],
    further: Callable[[WorkloadRow, Trait], tuple[Child, ...]],
) -> Markup:
    known = [(row, *found) for row in state.workloads if (found := most(row)) is not None]
    if not known:
        return element("p", _NO_PROFILES if not state.profiles else "None is known.", class_="faint")
    known.sort(key=lambda each: (-figure(each[2]), each[0].name))
    scale = figure(known[0][2])
    body = [
        table_row(
            row.name,
            name_span(row.name),
            resource,
            number_cell(figure(trait)),
            _bar(figure(trait), scale),
            *further(row, trait),
        )
        for row, resource, trait in known[:MOST_ROWS]
    ]
    right = [place for place in range(2, len(head)) if place != 3]
    return joined((table(head, body, right=right), left_out(len(known))))


def _verdicts(opened: Sequence[Loss]) -> Markup:
    if not opened:
        return element("p", "None: no workload loses notable time.", class_="good")
    body = [
        table_row(
            f"{loss.node} {loss.victim} {loss.resource}",
            name_span(loss.node),
            name_span(loss.victim, loss.workload),
            loss.resource,
            number_cell(loss.lost_seconds_per_second),
            _culprits(loss),
            element("td", _age(loss.age_seconds), class_="number"),
        )
        for loss in opened[:MOST_ROWS]
    ]
    head = ("node", "victim", "resource", "lost, s/s", "culprits", "reported")
    return joined((table(head, body, right=(3, 5)), left_out(len(opened))))


def _sentence(loss: Loss) -> Markup:
    return joined((name_span(loss.victim, loss.workload), f" waits for {loss.resource}: ", _culprits(loss)))


def _culprits(loss: Loss) -> Markup:
    parts = []
    for place, culprit in enumerate(loss.culprits[:3]):
        share = f" {loss.shares[place]:.0%}" if place < len(loss.shares) else ""
        parts.append(f"{culprit}{share}")
    more = len(loss.culprits) - len(parts)
    return element("span", ", ".join(parts) + (f" and {more} more" if more > 0 else "") or "-", class_="name")


def _expected(row: PairRow) -> str:
    if row.expected <= 0:
        return "-"
    return f"{row.expected:.3f} ± {row.error:.3f}" if row.error > 0 else f"{row.expected:.3f}"


def _by_resource(row: PairRow) -> str:
    order = sorted(row.resources.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{name} {lost:.3f}" for name, lost in order[:3]) or "-"


def _together(nodes: Sequence[str]) -> Markup:
    if not nodes:
        return element("span", "-")
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return element("span", ", ".join(nodes[:3]) + more, class_="name warn")


def _slow(ratio: float | None) -> Markup:
    if ratio is None:
        return element("span", "-", class_="faint")
    return element("span", f"{ratio - 1:.0%}", class_="warn")


def _age(seconds: float | None) -> Markup:
    if seconds is None:
        return element("span", "never", class_="bad")
    text = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else "hours ago"
    return element("span", text, class_="bad" if seconds >= SILENT_SECONDS else None)


def _bar(value: float, scale: float) -> Markup:
    width = round(min(value / scale, 1.0) * _BAR, 1) if scale > 0 else 0.0
    shape = element("rect", x=0, y=2, width=width, height=12, class_="c-others")
    return element("svg", shape, width=_BAR, height=16, role="img", aria_label=f"{value:.3f}")
