"""Export of a node: the tables of the schema, in partitions; repeatable; torn files and hostile lines left out."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from api.lake import METADATA_KEY, SCHEMA, TABLES
from api.verdicts import CgroupRef, Culprit, How, Severity, Verdict, VerdictState
from api.window import Window
from koordlet.__main__ import main
from koordlet.profiles.lake import NodeCapacity, export
from koordlet.profiles.settings import ProfileSettings
from koordlet.profiles.writer import ProfileWriter
from tests.koordlet.profiles.test_rows import frame

pa = pytest.importorskip("pyarrow", reason="exports are Parquet files: pip install pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="exports are Parquet files: pip install pyarrow")

AMOUNTS = {"/web": (0.5, 1.0, 1e9, 2e9), "/batch": (0.25, float("nan"), 1e8, float("nan"))}
VERDICT = Verdict(
    time=1.7e9,
    state=VerdictState.OPEN,
    victim="/web",
    resource="cpu",
    cause="neighbour",
    lost_seconds_per_second=0.4,
    severity=Severity.LOW,
    culprits=(Culprit("/batch", 0.75, How.DIRECT, CgroupRef("batch", workload="Job/shop/batch")),),
    rule="cpu",
    victim_ref=CgroupRef("web", namespace="shop", workload="Deployment/shop/web"),
)
LINE = {
    "schema": "koord.audit/v1",
    "time": "2023-11-14T22:13:30Z",
    "strategy": "response",
    "verdict": "/web|cpu",
    "target": "/batch",
    "qos": "BE",
    "priority": "koord-batch",
    "file": "cpu.weight",
    "from": "100",
    "to": "10",
    "reason": "r",
    "dry_run": False,
    "lease_seconds": 30.0,
    "outcome": "set",
}


def recorded(directory: Path) -> Path:
    """Profiles of 20 s with a verdict in effect and an OOM kill."""
    settings = ProfileSettings(enabled=True, directory=str(directory), every_seconds=2.0)
    profiles = ProfileWriter(settings, "EPYC", 1.0, lambda info: AMOUNTS[info.path])
    for second in range(20):
        window = Window([frame(second), frame(second + 1)])
        kills = [(window.cgroups[1], 1)] if second == 10 else []
        profiles.after_tick(window, [VERDICT], kills)
    profiles.close()
    return directory


def rows(lake: Path, table: str) -> list[dict[str, object]]:
    return pq.read_table(lake / table).to_pylist()


def test_every_table_with_its_columns_and_sums(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    audit.write_bytes(msgspec.json.encode(LINE) + b"\nnot json\n" + msgspec.json.encode(LINE | {"schema": "x"}) + b"\n")
    source, lake = recorded(tmp_path / "profiles"), tmp_path / "lake"
    (source / "profile-2023-11-14T000000Z-000009.parquet").write_bytes(b"torn")
    capacity = NodeCapacity(8, 4, 16 << 30)
    arguments = {"node": "n1", "capacity": capacity, "grain_seconds": 60.0}
    first = export(source, [audit, tmp_path / "absent"], lake, **arguments)
    assert export(source, [audit], lake, **arguments) == first, "a repeated export replaces what is there"
    assert first == {"profiles": 2, "nodes": 1, "verdicts": 2, "actions": 1}
    for table in TABLES:
        (path,) = (lake / table / "date=2023-11-14" / "node=n1").glob("*")
        assert pq.read_schema(path).names == list(TABLES[table])
        assert pq.read_schema(path).metadata[METADATA_KEY.encode()] == SCHEMA.encode()
    web, batch = sorted(rows(lake, "profiles"), key=lambda row: row["path"], reverse=True)
    assert (web["cpu_cores"], web["cpu_request_cores"], web["memory_limit_bytes"]) == pytest.approx((0.5, 0.5, 2e9))
    assert (web["harmed_ratio"], batch["harmed_ratio"], batch["oom_kills"], web["oom_kills"]) == (1.0, 0.0, 1.0, 0.0)
    assert batch["cpu_limit_cores"] is None
    assert web["seconds"] == pytest.approx(20.0), "of the grain's 60 s nothing else was sampled"
    (node,) = rows(lake, "nodes")
    assert node["cpu_used_other_cores"] == pytest.approx(1.5)
    assert (node["logical_cores"], node["physical_cores"], node["cpu_requested_cores"]) == (8.0, 4.0, 0.75)
    lost = {row["culprit"]: row["lost_seconds"] for row in rows(lake, "verdicts")}
    assert lost == pytest.approx({"/batch": 0.4 * 20 * 0.75, "": 0.4 * 20 * 0.25})
    (action,) = rows(lake, "actions")
    assert (action["qos"], action["priority"]) == ("BE", "koord-batch")
    assert (action["victim"], action["rule"], action["value_before"], action["dry_run"]) == ("/web", "cpu", "100", 0.0)


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(f'[profiles]\ndirectory = "{tmp_path}/none"\n[enforcer]\naudit_file = ""\n')
    done = CliRunner().invoke(main, ["export", "--config", str(config), "--to", str(tmp_path / "lake")])
    assert done.exit_code == 1
    assert "nothing to export" in done.output
    assert "[profiles] enabled" in done.output
    done = CliRunner().invoke(main, ["export", "--config", str(config), "--to", str(tmp_path), "--node", "../x"])
    assert done.exit_code == 2


def test_the_command_exports(tmp_path: Path) -> None:
    source = recorded(tmp_path / "profiles")
    config = tmp_path / "settings.toml"
    config.write_text(f'[profiles]\ndirectory = "{source}"\n[enforcer]\naudit_file = "{tmp_path}/audit.jsonl"\n')
    done = CliRunner().invoke(main, ["export", "--config", str(config), "--to", str(tmp_path / "lake"), "--node", "a"])
    assert done.exit_code == 0, done.output
    assert "profiles: 2 rows" in done.output
    assert np.isfinite([row["logical_cores"] for row in rows(tmp_path / "lake", "nodes")]).all()


def written(directory: Path, name: str, samples: dict[float, dict[str, float]]) -> None:
    """Write profiles: cores by path by time."""
    found = [(time, path, cores) for time, each in samples.items() for path, cores in each.items()]
    table = {
        "time": [time for time, _, _ in found],
        "workload": [path.strip("/") for _, path, _ in found],
        "path": [path for _, path, _ in found],
        "qos": ["LS" for _ in found],
        "cpu_cores": [cores for _, _, cores in found],
    }
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), directory / name)


def test_a_container_counts_for_as_long_as_it_was_there(tmp_path: Path) -> None:
    """Each of ten containers uses a core for 30 s of 300, one after the other, beside one that stays."""
    samples = {1.7e9 + 10 * turn: {f"/job{turn // 3}": 1.0, "/web": 1.0} for turn in range(30)}
    written(tmp_path / "profiles", "profile-2023-11-14T221320Z-000001.parquet", samples)
    export(tmp_path / "profiles", [], tmp_path / "lake", node="n", capacity=NodeCapacity(8, 4, 1), grain_seconds=300.0)
    found = rows(tmp_path / "lake", "profiles")
    assert sum(row["seconds"] * row["cpu_cores"] for row in found) == pytest.approx(600.0)
    nodes = rows(tmp_path / "lake", "nodes")
    used = sum(row["seconds"] * row["cpu_used_service_cores"] for row in nodes)
    assert used == pytest.approx(600.0), "two cores for 300 s"
    assert max(row["cpu_used_service_cores"] for row in nodes) == pytest.approx(2.0)


def test_what_the_node_has_deleted_since_stays_exported(tmp_path: Path) -> None:
    profiles, begin = tmp_path / "profiles", 1.7e9 // 600 * 600
    for part in (0, 1):
        times = [begin + 600 * part + 10 * turn for turn in range(60)]
        name = f"profile-2023-11-14T22{part + 1}000Z-000001.parquet"
        written(profiles, name, {time: {"/web": 1.0 + part} for time in times})
    arguments = {"node": "n", "capacity": NodeCapacity(8, 4, 1), "grain_seconds": 300.0}
    export(profiles, [], tmp_path / "lake", **arguments)
    before = rows(tmp_path / "lake", "profiles")
    min(profiles.glob("*.parquet")).unlink()
    assert export(profiles, [], tmp_path / "lake", **arguments)["profiles"] == 4
    assert rows(tmp_path / "lake", "profiles") == before
    assert [row["cpu_cores"] for row in before] == [1.0, 1.0, 2.0, 2.0]
