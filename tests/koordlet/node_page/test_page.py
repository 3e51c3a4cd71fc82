"""The document: what it says of a quiet, a busy and a hostile node, and that nothing in it leaves the page."""

import re

import pytest

from api.loss import LOSS_CAUSES
from koordlet.node_page.page import render
from koordlet.node_page.tables import group_of
from koordlet.node_page.timeline import timeline
from koordlet.node_page.values import NodeState
from tests.api.pages.test_markup import assert_fetches_nothing, read
from tests.koordlet.node_page.states import HOSTILE, busy, hostile, quiet


def section(document: str, identity: str) -> str:
    found = re.search(rf'<section id="{identity}">(.*?)</section>', document, re.DOTALL)
    assert found, identity
    return read(found[1]).text


def test_a_quiet_node_says_so_in_every_section() -> None:
    document = render(quiet())
    assert "no cgroup loses notable time" in section(document, "verdicts")
    assert "No verdict" in section(document, "timeline")
    assert "No cgroup loses time" in section(document, "victims")
    assert "No cgroup keeps others waiting" in section(document, "culprits")
    assert "No step" in section(document, "actions")
    assert "Nothing is changed" in section(document, "settings")
    assert "no hardware counters" in section(document, "capabilities")
    assert "observing" in read(document).text


def test_a_busy_node_names_victim_culprit_action_and_what_it_changed() -> None:
    document = render(busy())
    verdicts = section(document, "verdicts")
    assert "shop/web-0/web lost 0.38 s/s waiting for CPU: 0.34 to jobs/train-3/batch" in verdicts
    assert re.search(r"70%\s*40 s", verdicts)
    victims = section(document, "victims")
    assert victims.index("web") < victims.index("batch")
    assert "0.400" in victims, "neighbour and kernel"
    assert "0.460" in victims, "all causes"
    assert "batch 0.350" in victims
    assert "0.350" in section(document, "culprits")
    assert "0.38 → 0.05 s/s" in section(document, "actions")
    assert "unknown → 0.05 s/s" in section(document, "actions")
    assert re.search(r"cpu\.weight100\s*10response", section(document, "settings"))
    assert "runtime_hooks (protocol)" in section(document, "settings")
    assert "refused (dry run)" in section(document, "decisions")
    assert "BE koord-batch" in section(document, "decisions")
    assert "Events lost: cpu.switch 12" in section(document, "capabilities")
    assert "two stacks" in section(document, "evidence")
    assert "stopped: /run/koord/stop is there" in read(document).text


@pytest.mark.parametrize("state", [quiet(), busy(), hostile()], ids=["quiet", "busy", "hostile"])
def test_the_page_fetches_nothing_and_has_one_style_and_one_script(state: NodeState) -> None:
    assert_fetches_nothing(render(state))


def test_names_made_to_break_the_page_are_shown_as_text() -> None:
    document = render(hostile())
    assert "<script>window" not in document
    assert "\u202e" not in document
    assert HOSTILE in read(document).text


def test_the_timeline_has_a_lane_for_each_victim_and_resource_with_the_open_one_first() -> None:
    found = read(timeline(busy()))
    assert found.text.index("shop/web-0/web · cpu") < found.text.index("db.service · blockio")
    assert found.elements.count("rect") == 3 + 2, "three verdicts and two signs of the legend"
    lanes = len([value for name, value in found.attributes if (name, value) == ("class", "lane")])
    assert lanes == 2
    assert found.elements.count("line") == 5 * lanes + 3 + 2, "minutes of each lane, three steps, two signs"


def test_bars_end_at_the_edges_of_the_timeline() -> None:
    state = busy()
    found = read(timeline(state)).attributes
    xs = [float(value.removesuffix("%")) for name, value in found if name in ("x", "x1") and value and "%" in value]
    assert len(xs) > 10
    assert all(0 <= x <= 100 for x in xs)


@pytest.mark.parametrize(
    ("cause", "group"),
    [
        ("cpu:neighbour", "others"),
        ("cpu:irq", "kernel"),
        ("memory:compaction", "kernel"),
        ("blockio:queue", "others"),
        ("cpu:self", "own"),
        ("cpu:own_irq", "own"),
        ("cpu:ancestor_quota", "quota"),
        ("memory:own_limit", "quota"),
        ("cpu:unknown", "rest"),
    ],
)
def test_causes_are_coloured_by_what_can_be_done_about_them(cause: str, group: str) -> None:
    assert group_of(cause) == group


def test_only_idle_cpus_and_unknown_waits_are_of_no_group() -> None:
    assert {cause.name for cause in LOSS_CAUSES if group_of(cause.name) == "rest"} == {"cpu:idle", "cpu:unknown"}
