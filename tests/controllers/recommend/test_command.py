"""`koord-manager recommend` on profiles as nodes write them."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from controllers.__main__ import main
from koordlet.profiles.rows import ProfileSegment
from koordlet.profiles.segment import write

pa = pytest.importorskip("pyarrow", reason="profiles are Parquet files: pip install pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NOW, MINUTES = 1_700_000_000.0, 24 * 60


def profile(path: Path, containers: list[tuple[str, str, str]], **figures: list[float]) -> None:
    """Write a day of one sample a minute of each container: (workload, container, path), constant figures."""
    rows = [each for each in containers for _ in range(MINUTES)]
    columns = {name: np.repeat(np.array(values), MINUTES) for name, values in figures.items()}
    columns["time"] = np.tile(NOW + np.arange(MINUTES) * 60.0, len(containers))
    texts = {name: [row[place] for row in rows] for place, name in enumerate(("workload", "container", "path"))}
    packed = {name: column.astype("<f8").tobytes() for name, column in columns.items()}
    write(ProfileSegment(texts, {"interference": [False] * len(rows)}, packed), path)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["recommend", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_requests_and_limits_of_a_day(tmp_path: Path) -> None:
    profile(
        tmp_path / "a.parquet",
        [("shop/Deployment/web", "app", "/a"), ("shop/Deployment/web", "app", "/b"), ("batch/Job/sum", "main", "/c")],
        cpu_cores=[0.5, 0.5, 1.0],
        memory_bytes=[1e9, 1e9, 2e8],
        cpu_wait_neighbour=[0.05, 0.05, 0.0],
        cpu_wait_quota=[0.0, 0.0, 0.5],
    )
    table = msgspec.json.decode(run("--from", str(tmp_path), "-o", "json"))
    assert [row["workload"] for row in table] == ["batch/Job/sum", "shop/Deployment/web"]
    job, web = table
    assert 575 <= web["cpu_millicores"]["target"] <= 575 * 1.06
    assert web["confidence_days"] == pytest.approx(1.0, abs=0.01)
    assert web["cpu_wait_seconds"] == pytest.approx(0.05 * 86400)
    assert web["curable_seconds"] == pytest.approx(0.05 * 86400), "a request of 0.6 entitles to all that is waited"
    assert web["unthrottled_millicores"] is None
    assert 1500 <= job["unthrottled_millicores"] <= 1500 * 1.06
    assert "shop/" not in run("--from", str(tmp_path), "--workload", "batch/")


def test_a_table_for_people(tmp_path: Path) -> None:
    profile(tmp_path / "a.parquet", [("shop/Deployment/web", "app", "/a")], cpu_cores=[0.5])
    heads, row = run("--from", str(tmp_path / "a.parquet")).splitlines()
    assert heads.split()[:5] == ["WORKLOAD", "CONTAINER", "DAYS", "CPU", "MEMORY"]
    assert row.split()[:2] == ["shop/Deployment/web", "app"]
    assert " - " in row, "memory was not measured"


@pytest.mark.parametrize(("name", "reason"), [("empty", "no Parquet file"), ("torn", "torn.parquet")])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "torn.parquet").write_bytes(b"PAR1 and no more")
    done = CliRunner().invoke(main, ["recommend", "--from", str(tmp_path / name)])
    assert done.exit_code == 2
    assert reason in done.output


def test_another_table_is_no_profile(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"time": [1.0]}), tmp_path / "x.parquet")
    done = CliRunner().invoke(main, ["recommend", "--from", str(tmp_path)])
    assert done.exit_code == 2
    assert "no column workload" in done.output


def test_an_oom_kill_raises_memory_above_all_use(tmp_path: Path) -> None:
    containers = [("shop/Deployment/web", "app", "/a"), ("shop/Deployment/db", "app", "/b")]
    once = np.zeros(2 * MINUTES)
    once[MINUTES - 1] = 1.0
    figures = {"cpu_cores": [0.5, 0.5], "memory_bytes": [1e9, 1e9], "memory_request_bytes": [2e9, 2e9]}
    profile(tmp_path / "a.parquet", containers, **figures)
    segment = pq.read_table(tmp_path / "a.parquet").append_column("oom_kills", pa.array(once))
    pq.write_table(segment, tmp_path / "a.parquet")
    db, web = sorted(msgspec.json.decode(run("--from", str(tmp_path), "-o", "json")), key=lambda row: row["workload"])
    assert 1e9 <= db["memory_bytes"]["target"] < 1.3e9
    assert web["memory_bytes"]["target"] >= 2.4e9, "1.2 times the request"


def test_an_export_is_read_by_node_and_its_other_tables_are_not(tmp_path: Path) -> None:
    for day in ("2023-11-14", "2023-11-15"):
        folder = tmp_path / "profiles" / f"date={day}" / "node=a"
        folder.mkdir(parents=True)
        profile(folder / "part-0.parquet", [("shop/Deployment/web", "app", "/a")], cpu_cores=[0.5])
    other = tmp_path / "verdicts" / "date=2023-11-14" / "node=a"
    other.mkdir(parents=True)
    (other / "part-0.parquet").write_bytes(b"no profile")
    (row,) = msgspec.json.decode(run("--from", str(tmp_path), "-o", "json"))
    assert row["confidence_days"] == pytest.approx(1.0, abs=0.01), "equal times of one node's container count once"


def test_why_a_request_is_what_it_is(tmp_path: Path) -> None:
    profile(
        tmp_path / "a.parquet",
        [("shop/Deployment/web", "app", "/a")],
        cpu_cores=[0.5],
        cpu_wait_neighbour=[0.05],
        cpu_wait_quota=[0.1],
    )
    lines = run("--from", str(tmp_path / "a.parquet"), "-o", "why").splitlines()
    assert lines[0] == "shop/Deployment/web app"
    (request,) = [line for line in lines if "cpu: request" in line]
    target = int(request.partition("request ")[2].partition("m")[0])
    assert 575 <= target <= 575 * 1.06
    assert f"p90 of use ({target / 1.15:.0f}m) x 1.15" in request
    assert any("memory: no sample" in line for line in lines)
    assert any("4320 s a day for CPUs that neighbours held" in line for line in lines)
    assert any("none with a limit of" in line for line in lines)
