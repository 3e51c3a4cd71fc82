"""`why` and the command line."""

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from cluster import NODES, PODS
from cluster.twin import Twin
from scheduler.__main__ import main
from scheduler.explain.why import explain
from tests.schedobjects import engine, node, pod


def test_the_sentence_counts_nodes_per_reason() -> None:
    taint = {"key": "x", "effect": "NoSchedule"}
    nodes = [node("a"), node("b"), node("c", taints=[taint])]
    made = engine(nodes, [pod("other", {"cpu": "3"}, nodeName="a")])
    explanation = explain(made, pod("p", {"cpu": "5"}), 0.0)
    assert explanation.sentence == ("0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.")
    assert {item.node: [reason.text for reason in item.reasons] for item in explanation.nodes} == {
        "a": ["Insufficient cpu"],
        "b": ["Insufficient cpu"],
        "c": ["node(s) had untolerated taint(s)"],
    }


@pytest.mark.parametrize(
    ("candidate", "sentence"),
    [
        pytest.param(pod("p", nodeName="a"), "default/p is on node a.", id="bound"),
        pytest.param(pod("p", phase="Failed"), "default/p has ended (Failed).", id="ended"),
        pytest.param(
            pod("p", schedulingGates=[{"name": "g"}]),
            "default/p is held before the queue by SchedulingGates: waiting for scheduling gates: ['g'].",
            id="gated",
        ),
        pytest.param(pod("p"), "default/p fits on 1 of 1 nodes; the best is a.", id="fits"),
    ],
)
def test_other_answers(candidate: Any, sentence: str) -> None:
    assert explain(engine([node("a")]), candidate, 0.0).sentence == sentence


def test_the_command_reads_the_cluster() -> None:
    with Twin() as twin:
        twin.load(NODES, [msgspec.to_builtins(node("a"))])
        twin.load(PODS, [msgspec.to_builtins(pod("p", {"cpu": "5"}))])
        result = CliRunner().invoke(main, ["--server", twin.url, "why", "default/p"])
        assert result.exit_code == 0, result.output
        assert "0/1 nodes are available: 1 Insufficient cpu." in result.output
        assert "a: Insufficient cpu (NodeResourcesFit)" in result.output
        missing = CliRunner().invoke(main, ["--server", twin.url, "why", "default/none"])
        assert missing.exit_code == 1


@pytest.mark.parametrize("verb", [pytest.param(["run"], id="run"), pytest.param(["why", "default/p"], id="why")])
def test_wrong_settings_are_named(tmp_path: Any, verb: list[str]) -> None:
    path = tmp_path / "s.toml"
    path.write_text("[plugins.noderesourcesfit]\nstrategy = 'Best'\n")
    result = CliRunner().invoke(main, ["--config", str(path), "--server", "http://127.0.0.1:9", *verb])
    assert result.exit_code == 2
    assert "strategy" in result.output


def test_help_shows_examples() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "koord-scheduler why shop/cart" in result.output
    assert "simulate" in result.output
