"""The simulate command: tables on standard output, files on request, exit code 2 for a bad trace."""

from pathlib import Path

from click.testing import CliRunner

from scheduler.simulation.command import simulate


def trace(folder: Path) -> list[str]:
    nodes = folder / "nodes.csv"
    pods = folder / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},32000,65536,4,T4\n" for i in range(4)))
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    header += "creation_time,deletion_time,scheduled_time\n"
    pods.write_text(
        header + "".join(f"p{i},2000,2048,1,{250 + 250 * (i % 4)},,LS,Running,{i},{i + 50},{i}\n" for i in range(40))
    )
    return ["--nodes", str(nodes), "--pods", str(pods)]


def test_fragmentation_writes_table_csv_and_plot(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["fragmentation", *trace(tmp_path), "--seeds", "1", "--policy", "gradient", "--policy", "packing"]
    result = CliRunner().invoke(simulate, [*arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "| gradient |" in result.output
    assert (out / "fragmentation.csv").read_text().startswith("policy,seed,arrived")
    assert "<svg" in (out / "fragmentation.svg").read_text()


def test_bad_trace_is_a_usage_error(tmp_path: Path) -> None:
    arguments = trace(tmp_path)
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli\nn0,1\n")
    result = CliRunner().invoke(simulate, ["fragmentation", *arguments])
    assert result.exit_code == 2
    assert "nodes.csv:2: no column memory_mib" in result.output


def test_replay_frees_what_departs_and_takes_settings(tmp_path: Path) -> None:
    settings = tmp_path / "scheduler.toml"
    settings.write_text('[plugins.deviceshare]\nscoring_strategy = "MostAllocated"\n')
    arguments = ["replay", *trace(tmp_path), "--settings", str(settings), "--policy", "spreading"]
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 0, result.output
    assert "| settings |" in result.output
    assert "| spreading |" in result.output


def test_unknown_setting_is_a_usage_error(tmp_path: Path) -> None:
    settings = tmp_path / "scheduler.toml"
    settings.write_text("scheduler = 1\n")
    result = CliRunner().invoke(simulate, ["replay", *trace(tmp_path), "--settings", str(settings)])
    assert result.exit_code == 2
    assert "scheduler: unknown key" in result.output


def test_an_unknown_key_of_a_plugin_is_a_usage_error(tmp_path: Path) -> None:
    settings = tmp_path / "scheduler.toml"
    settings.write_text("[plugins.deviceshare]\ncolour = 1\n")
    result = CliRunner().invoke(simulate, ["replay", *trace(tmp_path), "--settings", str(settings)])
    assert result.exit_code == 2
    assert "colour: unknown key" in result.output


def test_day_writes_table_csv_and_plot(tmp_path: Path) -> None:
    arguments = ["day", "--nodes", "6", "--hours", "1.5", "--seeds", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 0, result.output
    assert "| request-only |" in result.output
    assert (tmp_path / "day.csv").read_text().startswith("policy,seed,hour")
    assert "<svg" in (tmp_path / "day.svg").read_text()
