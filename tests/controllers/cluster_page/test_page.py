"""The document: what it says of a quiet and a busy cluster, and that nothing in it leaves the page."""

import re

import pytest

from controllers.cluster_page.page import render
from controllers.cluster_page.values import ClusterState
from tests.api.pages.test_markup import assert_fetches_nothing, read
from tests.controllers.cluster_page.states import BATCH, DB, HOSTILE, WEB, busy, cluster, hostile, quiet


def section(document: str, identity: str) -> str:
    found = re.search(rf'<section id="{identity}">(.*?)</section>', document, re.DOTALL)
    assert found, identity
    return read(found[1]).text


def test_a_quiet_cluster_says_so_and_how_profiles_are_had() -> None:
    document = render(quiet())
    assert "no workload loses notable time" in section(document, "verdicts")
    for identity in ("pairs", "sensitive", "aggressive"):
        assert "[controllers.workload_profiles] enabled = true" in section(document, identity)
    assert "There are no nodes" in section(render(cluster([])), "nodes")


def test_a_busy_cluster_names_who_should_not_meet() -> None:
    document = render(busy())
    nodes = section(document, "nodes")
    assert nodes.index("node-2") < nodes.index("node-3") < nodes.index("node-1")
    assert f"shop/web-1 waits for cpu: {BATCH} 80%, kernel 10%" in nodes
    assert re.search(r"node-7.*never", nodes)
    assert "15 min" in nodes
    assert "32%" in nodes
    pairs = section(document, "pairs")
    assert pairs.index(WEB + BATCH) < pairs.index(DB + BATCH)
    assert "0.578 ± 0.059" in pairs
    assert "cpu 0.418, cache 0.160" in pairs
    assert "node-2, node-3" in pairs
    sensitive = section(document, "sensitive")
    assert sensitive.index(WEB) < sensitive.index(DB)
    assert BATCH not in sensitive
    assert section(document, "aggressive").index(BATCH) < section(document, "aggressive").index(WEB)
    assert "5 of 7 nodes report" in read(document).text


@pytest.mark.parametrize("state", [quiet(), busy(), hostile()], ids=["quiet", "busy", "hostile"])
def test_the_page_fetches_nothing_and_has_one_style_and_one_script(state: ClusterState) -> None:
    assert_fetches_nothing(render(state))


def test_names_made_to_break_the_page_are_shown_as_text() -> None:
    document = render(hostile())
    assert "<script>window" not in document
    assert "\u202e" not in document
    assert HOSTILE.replace("\u202e", "\\u202e") in read(document).text
