"""`koord-manager profile` on small tables: the loss a unit of pressure, and objects that the scheduler reads."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from api.crds import WorkloadProfile
from api.kube.workload import Workload
from controllers.__main__ import main
from scheduler.interference.profile import MICRO, Profiles
from tests.controllers.analysis.test_analyze import DB, SUM, T0, WEB, container, harm, node_row, put

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


def test_without_tables_nothing_is_said(tmp_path: Path) -> None:
    assert msgspec.json.decode(ask(tmp_path, "-o", "json")) == []
