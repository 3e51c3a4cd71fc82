"""Traces from files as they come: the public format, recorded NodeMetrics, plain series; what is none is named."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from controllers.__main__ import main
from controllers.forecast.traces import TraceError, generated, machine_usage, node_metrics, plain_series
from tests.capacity import a_report

READERS = {
    "machine_usage": machine_usage,
    "node_metrics": node_metrics,
    "series": lambda path: plain_series([path]),
}


def test_machine_usage_as_published(tmp_path: Path) -> None:
    path = tmp_path / "machine_usage.csv"
    path.write_text(
        "m_1,0,10,20,,,1.0,2.0,3\nm_1,10,30,20,,,1.0,2.0,3\nm_1,3600,50,20,,,,,\nm_2,7200,,20,,,,,\nm_2,300,7\n"
    )
    trace = machine_usage(path)
    assert trace.samples.shape == (2, 2, 12)
    assert trace.samples[0, 0, 0] == 20.0
    assert trace.samples[0, 1, 0] == 50.0
    assert trace.samples[1, 0, 1] == 7.0
    assert np.isfinite(trace.samples).sum() == 3


def test_recorded_node_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reports = [
        a_report("a", used=("2500m", 1), updated="2027-01-15T08:00:00Z"),
        a_report("a", used=("3500m", 1), updated="2027-01-15T08:06:00Z"),
        a_report("b", used=("1", 1), updated="2027-01-15T09:00:00Z"),
        a_report("b", updated=None),
    ]
    path.write_bytes(b"\n".join(msgspec.json.encode(each) for each in reports) + b"\n\n")
    trace = node_metrics(path)
    assert trace.samples[0, 0, :2].tolist() == [2.5, 3.5]
    assert trace.samples[1, 1, 0] == 1.0


@pytest.mark.parametrize(
    ("reader", "content", "words"),
    [
        pytest.param("machine_usage", "m_1,0\n", ":1: expected machine_id", id="columns"),
        pytest.param("machine_usage", "m_1,x,1\n", "could not convert", id="no-number"),
        pytest.param("machine_usage", "m_1,0,1\nm_1,1e12,1\n", "its times are no seconds", id="far"),
        pytest.param("machine_usage", "m_1,inf,1\n", "a time is no number", id="infinite"),
        pytest.param("machine_usage", "", "no sample", id="empty"),
        pytest.param("node_metrics", "{}\n{", ":2: no NodeMetric", id="torn"),
        pytest.param("series", "ts,value\n1\n", "expected lines of ts,value", id="short-line"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, reader: str, content: str, words: str) -> None:
    path = tmp_path / "trace"
    path.write_text(content)
    with pytest.raises(TraceError, match=words) as caught:
        READERS[reader](path)
    assert str(path) in str(caught.value)


def test_the_command_compares_on_each_trace(tmp_path: Path) -> None:
    path = tmp_path / "machine_usage.csv"
    samples = generated(series=1, days=5).samples.reshape(-1)
    path.write_text("".join(f"m_1,{place * 300},{value:.2f}\n" for place, value in enumerate(samples)))
    done = CliRunner().invoke(main, ["backtest", "--machine-usage", str(path), "--series", str(series_file(tmp_path))])
    assert done.exit_code == 0, done.output
    assert "machine_usage.csv: 1 series, 120 hours" in done.output
    assert "Koordinator peak" in done.output
    assert "at equal cost seasonal misses fewer peaks than" in done.output
    assert "too short" in done.output
    done = CliRunner().invoke(main, ["backtest", "--node-metrics", str(path)])
    assert done.exit_code == 2


def series_file(folder: Path) -> Path:
    path = folder / "series.csv"
    path.write_text("ts,value\n" + "".join(f"{1_700_000_000 + 60 * minute},1.5\n" for minute in range(300)))
    return path
