"""`koord-manager profile` on small tables: the loss a unit of pressure, and objects that the scheduler reads."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from api.crds import WorkloadProfile
from api.kube.workload import Workload
from controllers.__main__ import main
from controllers.profiles.merge import ALL, Evidence
from controllers.profiles.reports import collect
from scheduler.interference.profile import MICRO, Profiles
from tests.controllers.analysis.test_analyze import DB, SUM, T0, WEB, action, container, harm, node_row, put

TURNS = 12


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two nodes where WEB loses half a second a second per unit of SUM's pressure, and nothing to DB."""
    for number, node in enumerate(("a", "b")):
        times = [T0 + turn * 300 for turn in range(TURNS)]
        cores = [1.0 + (turn + number) % 3 for turn in range(TURNS)]
        runs = [container(time, SUM, use, None) for time, use in zip(times, cores, strict=True)]
        runs += [container(time, name, 1.0, 2.0) for time in times for name in (WEB, DB)]
        put(tmp_path, "profiles", node, runs)
        put(tmp_path, "nodes", node, [node_row(time, 1.0, 1.0, 2.0, 2.0) for time in times])
        lost = [harm(time, WEB, SUM, 0.5 * use / 8 * 300) for time, use in zip(times, cores, strict=True)]
        put(tmp_path, "verdicts", node, lost)
    return tmp_path


def ask(lake: Path, *more: str) -> Any:
    done = CliRunner().invoke(main, ["profile", "--from", str(lake), *more])
    assert done.exit_code == 0, done.output
    return done.output


def test_who_suffers_and_who_hurts(lake: Path) -> None:
    table = {row["workload"]: row["resources"]["cpu"] for row in msgspec.json.decode(ask(lake, "-o", "json"))}
    assert table[SUM]["aggressiveness"] > 0.2
    assert table[DB]["aggressiveness"] == 0.0
    predicted = table[WEB]["sensitivity"] * table[SUM]["aggressiveness"]
    assert predicted == pytest.approx(0.5 * 2.0 / 8, rel=0.01), "mean loss at a mean use of two of eight cores"
    assert not table[WEB]["correlated"]
    assert WEB in ask(lake)


def test_the_scheduler_reads_the_objects(lake: Path) -> None:
    listed = msgspec.json.decode(ask(lake, "-o", "objects"))
    profiles = Profiles()
    for each in listed:
        profiles.put(msgspec.convert(each, WorkloadProfile))
    kind, namespace, name = WEB.split("/")
    traits = profiles.traits(Workload(namespace, kind, name), "")
    assert traits.sensitivity[0] > 0.05 * MICRO
    assert traits.aggressiveness[0] == 0


def test_replicas_of_a_culprit_share_what_was_lost_to_it(lake: Path) -> None:
    alone = {row["workload"]: row["resources"]["cpu"] for row in msgspec.json.decode(ask(lake, "-o", "json"))}
    for node in ("a", "b"):
        twins = [
            container(T0 + turn * 300, SUM, (1.0 + (turn + "ab".index(node)) % 3) / 2, None) | {"path": f"/{SUM}{name}"}
            for turn in range(TURNS)
            for name in ("", "-2")
        ]
        others = [container(T0 + turn * 300, name, 1.0, 2.0) for turn in range(TURNS) for name in (WEB, DB)]
        folder = lake / "profiles" / "date=2023-11-14" / f"node={node}"
        (folder / "part-0.parquet").unlink()
        folder.rmdir()
        put(lake, "profiles", node, [*twins, *others])
    shared = {row["workload"]: row["resources"]["cpu"] for row in msgspec.json.decode(ask(lake, "-o", "json"))}
    assert shared[WEB]["sensitivity"] == pytest.approx(alone[WEB]["sensitivity"], rel=0.01)
    assert shared[SUM]["aggressiveness"] == pytest.approx(alone[SUM]["aggressiveness"] / 2, rel=0.01)


LOST, LEFT = 30.0, 6.0
"""Seconds that WEB lost in a row before and during an action."""


def restrained(lake: Path, *, left: float = LEFT, more: tuple[dict[str, Any], ...] = ()) -> Path:
    """Two nodes where WEB's loss moves with all neighbours together, until SUM is restrained in the fourth row."""
    for node in ("a", "b"):
        times = [T0 + turn * 300 for turn in range(6)]
        put(lake, "nodes", node, [node_row(time, 1.0, 1.0, 2.0, 2.0) for time in times])
        sums = [container(time, SUM, 4.0 if turn < 3 else 1.0, None) for turn, time in enumerate(times)]
        put(lake, "profiles", node, [*sums, *(container(time, name, 1.0, 2.0) for time in times for name in (WEB, DB))])
        losses = [LOST] * 3 + [left] * 3
        told = [harm(time, WEB, DB, lost, "correlated") for time, lost in zip(times, losses, strict=True)]
        put(lake, "verdicts", node, [row | {"culprit": "", "culprit_workload": ""} for row in told])
        put(lake, "actions", node, [action(T0 + 900, "set"), *more, action(T0 + 1800, "restored")])
    return lake


def test_a_neighbour_that_was_restrained_tells_by_what_went(tmp_path: Path) -> None:
    names, by_resource = collect(restrained(tmp_path))
    sums = by_resource["cpu"]
    (row, other) = (sums.evidence == Evidence.TRIAL).nonzero()[0]
    assert {names[sums.victims[row]], names[sums.victims[other]]} == {WEB}
    assert names[sums.neighbours[row]] == SUM
    assert sums.neighbours[row] != ALL
    assert sums.seconds[row] == 300.0
    assert sums.pressure[row] / 300 == pytest.approx(3 / 8), "from four cores to one, of eight"
    assert sums.lost[row] == pytest.approx(LOST - LEFT)
    table = {row["workload"]: row["resources"] for row in msgspec.json.decode(ask(tmp_path, "-o", "json"))}
    assert table[SUM]["cpu"]["aggressiveness"] > 0
    assert table[WEB]["cpu"]["trials"]
    assert not table[WEB]["cpu"]["correlated"]
    assert table[WEB]["cpu"]["sensitivity"] == pytest.approx((LOST - LEFT) / 300 / (3 / 8)), "what a unit of use cost"
    assert not table[DB], "it was never tried, and its use never varied"


@pytest.mark.parametrize(
    ("left", "more"),
    [
        pytest.param(20.0, (), id="most of the loss stayed"),
        pytest.param(LEFT, (action(T0 + 900, "set") | {"target": f"/{DB}"},), id="another one, which used no less"),
    ],
)
def test_what_is_no_trial(tmp_path: Path, left: float, more: tuple[dict[str, Any], ...]) -> None:
    _, by_resource = collect(restrained(tmp_path, left=left, more=more))
    assert not (by_resource["cpu"].evidence == Evidence.TRIAL).any()


def test_without_tables_nothing_is_said(tmp_path: Path) -> None:
    assert msgspec.json.decode(ask(tmp_path, "-o", "json")) == []
