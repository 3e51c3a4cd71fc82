"""`koord-manager analyze` on small tables whose answers are reckoned by hand."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from api.lake import TABLES, kind_of
from controllers.__main__ import main
from controllers.analysis.engines import Spark
from controllers.analysis.questions import QUESTIONS

pa = pytest.importorskip("pyarrow", reason="tables are Parquet files: pip install pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("duckdb", reason="questions are asked by DuckDB: pip install duckdb")

ROOT = Path(__file__).parents[3]
T0 = 1_700_000_000 // 86_400 * 86_400.0
GIB = float(1 << 30)
WEB, DB, SUM = "Deployment/shop/web", "StatefulSet/shop/db", "Job/batch/sum"


def put(lake: Path, table: str, node: str, rows: list[dict[str, Any]], date: str = "2023-11-14") -> None:
    columns = {}
    for name in TABLES[table]:
        kind = pa.string() if kind_of(name) == "text" else pa.float64()
        columns[name] = pa.array([row.get(name) for row in rows], kind)
    folder = lake / table / f"date={date}" / f"node={node}"
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "part-0.parquet")


def node_row(time: float, service: float, batch: float, requested: float, memory: float) -> dict[str, float]:
    return {
        "time": time,
        "seconds": 300.0,
        "logical_cores": 8.0,
        "physical_cores": 4.0,
        "memory_total_bytes": 10 * GIB,
        "cpu_used_service_cores": service,
        "cpu_used_batch_cores": batch,
        "cpu_used_other_cores": 0.0,
        "memory_used_service_bytes": GIB,
        "memory_used_batch_bytes": 0.0,
        "memory_used_other_bytes": 0.0,
        "cpu_requested_cores": requested,
        "memory_requested_bytes": memory * GIB,
    }


def harm(time: float, victim: str, culprit: str, lost: float, how: str = "direct") -> dict[str, Any]:
    return {
        "time": time,
        "seconds": 300.0,
        "victim": f"/{victim}",
        "victim_workload": victim,
        "victim_namespace": "shop",
        "resource": "cpu",
        "culprit": f"/{culprit}" if culprit else "",
        "culprit_workload": culprit,
        "culprit_namespace": culprit.split("/")[1] if culprit else "",
        "how": how if culprit else "",
        "lost_seconds": lost,
    }


def container(time: float, workload: str, cores: float, request: float | None) -> dict[str, Any]:
    return {
        "time": time,
        "seconds": 300.0,
        "workload": workload,
        "namespace": workload.split("/")[1],
        "path": f"/{workload}",
        "cpu_cores": cores,
        "memory_bytes": GIB,
        "cpu_request_cores": request,
    }


def action(time: float, outcome: str) -> dict[str, Any]:
    names = {"strategy": "response", "victim": f"/{WEB}", "rule": "cpu", "target": f"/{SUM}", "file": "cpu.max"}
    return names | {"time": time, "outcome": outcome, "dry_run": 0.0, "lease_seconds": 30.0}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "la'ke"
    put(folder, "nodes", "a", [node_row(T0, 2.0, 1.0, 4.0, 9.5), node_row(T0 + 300, 4.0, 0.0, 4.0, 9.5)])
    put(folder, "nodes", "b", [node_row(T0, 1.0, 0.0, 8.0, 2.0)])
    losses = [harm(T0 + turn * 300, WEB, SUM, lost) for turn, lost in enumerate((30.0, 30.0, 30.0, 6.0, 6.0))]
    put(folder, "verdicts", "a", [*losses, harm(T0, WEB, "", 5.0), harm(T0, DB, WEB, 8.0, "correlated")])
    put(folder, "actions", "a", [action(T0 + 900, "set"), action(T0 + 1500, "restored")])
    busy = [container(T0 + turn * 300, SUM, 4.0 if turn < 3 else 1.0, None) for turn in range(5)]
    put(folder, "profiles", "a", [*busy, container(T0, WEB, 2.0, 4.0)])
    return folder


def ask(lake: Path, question: str, *more: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["analyze", "--from", str(lake), question, "-o", "json", *more])
    assert done.exit_code == 0, done.output
    return msgspec.json.decode(done.output)


def test_utilisation_by_class(lake: Path) -> None:
    found = {row["class"]: row for row in ask(lake, "utilisation")}
    assert found["service"]["core_hours"] == pytest.approx(7 * 300 / 3600, abs=0.06)
    assert found["service"]["logical_percent"] == pytest.approx(100 * 7 / 24, abs=0.01)
    assert found["batch"]["physical_percent"] == pytest.approx(100 / 12, abs=0.01)
    assert sum(row["logical_percent"] for row in found.values()) == pytest.approx(100, abs=0.02)


def test_reclaimable_at_all_times_and_at_the_peak(lake: Path) -> None:
    b, a = ask(lake, "reclaimable")
    assert (b["node"], b["reclaimable_cores"], b["reclaimable_at_peak_cores"]) == ("b", 7.0, 7.0)
    assert (a["reclaimable_cores"], a["reclaimable_at_peak_cores"]) == (1.0, 0.0)


def test_victims_culprits_and_who_should_be_apart(lake: Path) -> None:
    web, db = ask(lake, "victims")
    assert (web["victim_workload"], web["lost_seconds"], web["measured_seconds"]) == (WEB, 107.0, 102.0)
    assert web["worst_seconds_a_second"] == pytest.approx(0.1)
    assert (db["lost_seconds"], db["measured_seconds"]) == (8.0, 0.0)
    first, second = ask(lake, "culprits")
    assert (first["culprit_workload"], first["caused_seconds"]) == (SUM, 102.0)
    assert second["culprit_workload"] == WEB
    pair = ask(lake, "apart")[0]
    assert (pair["victim_workload"], pair["culprit_workload"], pair["nodes"]) == (WEB, SUM, 1)
    assert pair["lost_seconds_a_second"] == pytest.approx(102 / 1500)


def test_what_if_requests_were_sold_above_the_cores(lake: Path) -> None:
    found = {float(row["ratio"]): row for row in ask(lake, "overcommit")}
    assert found[1.0]["overloaded_percent"] == 0.0
    assert found[1.5]["overloaded_percent"] == pytest.approx(33.3333), "node a uses all of it in one of three"
    assert found[4.0]["overloaded_percent"] == pytest.approx(66.6667)
    assert found[1.0]["utilisation_percent"] == pytest.approx(100 * (0.5 + 1.0 + 0.125) / 3, abs=0.01)


def test_mean_of_all_day_and_stranded_capacity(lake: Path) -> None:
    (day,) = ask(lake, "mean")
    assert day["day"] == "2023-11-14"
    assert (day["logical_percent"], day["physical_percent"]) == pytest.approx((100 * 8 / 24, 100 * 8 / 12), abs=0.01)
    found = {row["ran_out"]: row for row in ask(lake, "stranded")}
    assert found["memory"]["stranded_cores_a_node"] == pytest.approx(4.0)
    assert found["cpu"]["stranded_gib_a_node"] == pytest.approx(8.0)


def test_cost_by_quota(lake: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('cpu_core_hour = 12.0\nmemory_gib_hour = 0.0\nlost_hour = 3600.0\n[quotas]\nshop = "retail"\n')
    found = {row["payer"]: row for row in ask(lake, "cost", "--prices", str(prices), "--by", "quota")}
    assert found["retail"]["asked"] == pytest.approx(4.0)
    assert found["retail"]["harm_caused"] == pytest.approx(8.0)
    assert found["batch"]["used"] == pytest.approx(14.0)
    assert found["batch"]["harm_caused"] == pytest.approx(102.0)
    put(lake, "verdicts", "c", [harm(T0, WEB, "Job/gone/left", 3.0)])
    found = {row["payer"]: row for row in ask(lake, "cost", "--prices", str(prices), "--by", "quota")}
    assert (found["gone"]["asked"], found["gone"]["harm_caused"]) == (0.0, 3.0), "harm of what has no row of its own"
    prices.write_text('[quotas]\n"shop" = "x\' OR 1"\n')
    done = CliRunner().invoke(main, ["analyze", "--from", str(lake), "cost", "--prices", str(prices), "--by", "quota"])
    assert done.exit_code == 2


def test_what_protection_gave_back_and_took(lake: Path) -> None:
    (row,) = ask(lake, "earned")
    assert (row["victim_workload"], row["episodes"]) == (WEB, 1)
    before, during = (90.0 + 5.0) / 900, 12.0 / 600
    assert row["given_back_seconds"] == pytest.approx((before - during) * 600, abs=0.06)
    assert row["work_lost_core_seconds"] == pytest.approx(3.0 * 600)


def test_a_table_for_people_a_picture_and_the_text(lake: Path, tmp_path: Path) -> None:
    picture = tmp_path / "mean.png"
    done = CliRunner().invoke(main, ["analyze", "--from", str(lake), "mean", "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    assert "logical percent" in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    done = CliRunner().invoke(main, ["analyze", "--from", str(lake), "victims", "--limit", "1"])
    assert "1 more rows" in done.output
    done = CliRunner().invoke(main, ["analyze", "--from", str(lake), "cost", "--sql"])
    assert "FROM profiles" in done.output
    assert "{" not in done.output


def test_compacted_tables_give_the_same_answers(lake: Path, tmp_path: Path) -> None:
    before = {question: ask(lake, question) for question in QUESTIONS}
    done = CliRunner().invoke(main, ["compact", "--from", str(lake), "--to", str(tmp_path / "months")])
    assert done.exit_code == 0, done.output
    assert "nodes: 3 rows" in done.output
    assert {question: ask(tmp_path / "months", question) for question in QUESTIONS} == before


def test_a_folder_without_tables_and_a_torn_file(tmp_path: Path) -> None:
    for question in QUESTIONS:
        assert all(not row.get("lost_seconds") for row in ask(tmp_path, question))
    folder = tmp_path / "verdicts" / "date=2023-11-14" / "node=a"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"torn")
    done = CliRunner().invoke(main, ["analyze", "--from", str(tmp_path), "victims"])
    assert done.exit_code == 1
    assert "part-0.parquet" in done.output


def test_an_engine_that_is_not_installed_is_named(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql", None)
    done = CliRunner().invoke(main, ["analyze", "--from", str(lake), "victims", "--engine", "spark"])
    assert done.exit_code == 1
    assert "pip install pyspark" in done.output


def test_spark_gives_the_answers_of_duckdb(lake: Path) -> None:
    pytest.importorskip("pyspark", reason="no pyspark, which is no dependency: make test-spark")
    with Spark(lake) as engine:
        for name, question in QUESTIONS.items():
            sql = CliRunner().invoke(main, ["analyze", "--from", str(lake), name, "--sql"]).output
            found = engine.ask(sql)
            rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
            expected = ask(lake, name)
            assert len(rows) == len(expected), question.title
            for row, wanted in zip(rows, expected, strict=True):
                assert {key: _plain(value) for key, value in row.items()} == pytest.approx(
                    {key: _plain(value) for key, value in wanted.items()}
                ), question.title


def _plain(value: Any) -> Any:
    """Return decimals, which one engine gives as texts and the other as numbers, as floats."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def test_the_notebook_runs(lake: Path, tmp_path: Path) -> None:
    lake.rename(tmp_path / "lake")
    cells = msgspec.json.decode((ROOT / "docs/analysis.ipynb").read_bytes())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    script = tmp_path / "notebook.py"
    script.write_text(code.replace("/srv/lake", str(tmp_path / "lake")) + "\nprint(answer.rows[0])\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{(WEB, SUM, 102.0)}\n", done.stderr
    assert (tmp_path / "mean.png").exists()
