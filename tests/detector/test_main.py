"""koord-detector train: from Parquet to a model file, and what it says when it cannot."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from detector.__main__ import main
from detector.models.format import decode_models


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "time": np.arange(250.0),
            "workload": ["web"] * 200 + ["rare"] * 50,
            "container": ["app"] * 250,
            "cpi": rng.normal(2, 0.1, 250),
            "lost": rng.normal(1, 0.1, 250),
            "note": ["x"] * 250,
            "interference": [False] * 250,
        }
    )
    pq.write_table(table, tmp_path / "profile.parquet")
    return tmp_path / "profile.parquet"


def test_train_writes_models_and_names_who_was_skipped(profile: Path, tmp_path: Path) -> None:
    output = tmp_path / "models.json"
    ran = CliRunner().invoke(main, ["train", str(profile), "-o", str(output)])
    assert ran.exit_code == 0, ran.output
    file = decode_models(output.read_bytes())
    assert file.features == ("cpi", "lost")
    assert [(model.key.workload, model.key.container) for model in file.models] == [("web", "app")]
    assert "rare: skipped" in ran.output
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".new"] == []


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        pytest.param(["-f", "note"], 2, "no such numeric column", id="feature is text"),
        pytest.param(["-f", "absent"], 2, "absent", id="feature is absent"),
        pytest.param(["--min-samples", "1000"], 1, "nothing written", id="nobody has enough"),
    ],
)
def test_train_refuses(profile: Path, tmp_path: Path, options: list[str], code: int, said: str) -> None:
    output = tmp_path / "models.json"
    ran = CliRunner().invoke(main, ["train", str(profile), "-o", str(output), *options])
    assert (ran.exit_code, output.exists()) == (code, False)
    assert said in ran.output


def test_a_file_that_is_no_parquet_is_asked_wrongly(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    ran = CliRunner().invoke(main, ["train", str(path), "-o", str(tmp_path / "out")])
    assert ran.exit_code == 2
